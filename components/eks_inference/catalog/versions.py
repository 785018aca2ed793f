"""Pinned versions: loads ``versions.toml``.

The library pins everything it installs to an exact version, and only here. A row that suits every Kubernetes minor version has
one reference; other rows have a pin for each minor version (``"1.35"``).
"""

from dataclasses import dataclass
from datetime import date
from typing import Any

from eks_inference.catalog.tables import NotInCatalogError, find, rows, table, version_numbers


@dataclass(frozen=True)
class Chart:
    """A Helm chart: ``reference`` is an OCI reference (``oci://…``) or the address of a chart repository (``https://…``)."""

    name: str
    reference: str
    version: str

    def location(self, reference: str) -> tuple[str, str | None]:
        """Returns Helm's ``chart`` and ``repository`` arguments for ``settings.chart(self.reference)``.

        An OCI mirror of a chart repository holds the chart under its own name.
        """
        if not reference.startswith("oci://"):
            return self.name, reference
        return (reference if self.reference.startswith("oci://") else f"{reference.rstrip('/')}/{self.name}"), None


@dataclass(frozen=True)
class Support:
    """The last days of standard and of extended support for a Kubernetes version in EKS."""

    standard: date
    extended: date


def kubernetes_versions() -> tuple[str, ...]:
    """All Kubernetes minor versions with pins, the oldest first."""
    return tuple(rows(table("versions.toml")["kubernetes"]))


def support(kubernetes_version: str) -> Support:
    """Returns when support of a Kubernetes minor version ends. Raises ``KeyError`` if the catalog does not have the version."""
    return Support(**_row("kubernetes", kubernetes_version))


def chart(name: str) -> Chart:
    """Returns the pinned chart. Raises ``KeyError`` with the nearest names if it is unknown."""
    row = _row("charts", name)
    return Chart(name=name, reference=row["reference"], version=row["version"])


def image(name: str, kubernetes_version: str | None = None) -> str:
    """Returns the pinned image reference, without mirrors.

    ``kubernetes_version`` is required for images that follow the cluster's minor version (``kube-scheduler``) and ignored for
    others. Raises ``KeyError`` with the nearest names, or with the minor versions that have a pin.
    """
    row = _row("images", name)
    return row["reference"] if "reference" in row else _of_minor("images", name, kubernetes_version)


def addon(name: str, kubernetes_version: str) -> str:
    """The version of an EKS add-on (``v1.22.4-eksbuild.3``) for a Kubernetes minor version."""
    return _of_minor("addons", name, kubernetes_version)


def ami_release(ami_type: str, kubernetes_version: str) -> str:
    """The release version (``1.35.6-20260714``) of an EKS AMI type for a Kubernetes minor version."""
    return _of_minor("ami_releases", ami_type.partition("_")[0], kubernetes_version)


def neuron_driver(release_version: str) -> str:
    """The version of aws-neuronx-dkms in an AL2023 Neuron AMI, e.g. ``2.29.0`` for release ``1.35.6-20260714``.

    All AMIs of one build date share it. Raises ``KeyError`` if the catalog does not have the build.
    """
    return _row("neuron_drivers", release_version.rpartition("-")[2])


def nvidia_driver(release_version: str) -> str:
    """The version of the NVIDIA driver in an AL2023 AMI for GPUs. Raises ``KeyError`` if the catalog does not have the build."""
    return _row("nvidia_drivers", release_version.rpartition("-")[2])


def neuron_sdk_driver(sdk: str) -> str:
    """The Neuron driver released with a Neuron SDK, e.g. ``2.26.5`` for SDK ``2.28.0``. SDK patch releases share it.

    Raises ``KeyError`` if the catalog does not have the SDK.
    """
    return _row("neuron_sdk_drivers", _minor(sdk))


def neuron_driver_floor(sdk: str) -> str | None:
    """The newest Neuron driver line that does not work with containers of an SDK: ``2.26`` (with 2.26.10) for SDK ``2.31.1``.

    None if AWS states no such limit.
    """
    floors = rows(table("versions.toml")["neuron_driver_floors"])
    since = [floor for floor in floors if version_numbers(floor) <= version_numbers(_minor(sdk))]
    return floors[max(since, key=version_numbers)] if since else None


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _of_minor(section: str, name: str, kubernetes_version: str | None) -> str:
    pins = rows(_row(section, name))
    if kubernetes_version not in pins:
        raise NotInCatalogError(f"{section}.{name} has no pin for Kubernetes {kubernetes_version}; available: {', '.join(pins)}")
    return pins[kubernetes_version]


def _row(section: str, name: str) -> Any:
    return find(f"versions.toml [{section}]", name, rows(table("versions.toml")[section]))
