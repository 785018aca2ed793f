"""Pinned versions as data: ``versions.toml`` and its typed loader.

Everything the library installs is pinned exactly, here and nowhere else. A row that serves every Kubernetes minor version has one
reference; one that depends on it has a pin for each minor version (``"1.35"``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.catalog.tables import missing, rows, table, version_numbers


@dataclass(frozen=True)
class Chart:
    """A Helm chart: ``reference`` is an OCI reference (``oci://…``) or the address of a chart repository (``https://…``)."""

    name: str
    reference: str
    version: str

    def location(self, reference: str) -> tuple[str, str | None]:
        """Helm's ``chart`` and ``repository`` arguments, given ``settings.chart(self.reference)``.

        A repository mirrored into an OCI registry holds the chart under its own name there.
        """
        if not reference.startswith("oci://"):
            return self.name, reference
        return (reference if self.reference.startswith("oci://") else f"{reference.rstrip('/')}/{self.name}"), None


def kubernetes_versions() -> tuple[str, ...]:
    """The Kubernetes minor versions the catalog has every pin for, oldest first."""
    return tuple(_versions()["kubernetes"]["supported"])


def chart(name: str) -> Chart:
    """The pinned chart; ``KeyError`` with the nearest names when there is none."""
    row = _row("charts", name)
    return Chart(name=name, reference=row["reference"], version=row["version"])


def image(name: str, kubernetes_version: str | None = None) -> str:
    """The pinned image reference, before mirrors.

    ``kubernetes_version`` is needed by images that follow the cluster's minor version (``kube-scheduler``) and ignored by others.
    Raises ``KeyError`` with the nearest names, or with the minor versions there are.
    """
    row = _row("images", name)
    return row["reference"] if "reference" in row else _of_minor("images", name, kubernetes_version)


def addon(name: str, kubernetes_version: str) -> str:
    """The version of an EKS add-on (``v1.22.4-eksbuild.3``) for a Kubernetes minor version."""
    return _of_minor("addons", name, kubernetes_version)


def ami_release(ami_type: str, kubernetes_version: str) -> str:
    """The release version (``1.35.6-20260714``) of an EKS AMI type for a Kubernetes minor version."""
    return _of_minor("ami_releases", ami_type, kubernetes_version)


def neuron_driver(release_version: str) -> str:
    """The version of aws-neuronx-dkms inside an AL2023 Neuron AMI, e.g. ``2.29.0`` for release ``1.35.6-20260714``.

    All Kubernetes versions of one build date share it. Raises ``KeyError`` when the build is not in the catalog.
    """
    return _row("neuron_drivers", release_version.rpartition("-")[2])


def neuron_sdk_driver(sdk: str) -> str:
    """The Neuron driver released with a Neuron SDK, e.g. ``2.26.5`` for SDK ``2.28.0``: patch releases keep it.

    Raises ``KeyError`` for an SDK that is not in the catalog.
    """
    return _row("neuron_sdk_drivers", _minor(sdk))


def neuron_driver_floor(sdk: str) -> str | None:
    """The Neuron driver line up to which containers of an SDK do not work: ``2.26``, that is 2.26.10 too, for SDK ``2.31.1``.

    None for SDKs without such a statement.
    """
    floors = rows(_versions()["neuron_driver_floors"])
    since = [one for one in floors if version_numbers(one) <= version_numbers(_minor(sdk))]
    return floors[max(since, key=version_numbers)] if since else None


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _versions() -> Mapping[str, Mapping[str, Any]]:
    return table("versions.toml")


def _of_minor(section: str, name: str, kubernetes_version: str | None) -> str:
    pins = rows(_row(section, name))
    if kubernetes_version not in pins:
        raise KeyError(f"{section}.{name} has no pin for Kubernetes {kubernetes_version}; there are: {', '.join(pins)}")
    return pins[kubernetes_version]


def _row(section: str, name: str) -> Any:
    known = rows(_versions()[section])
    if name not in known:
        raise missing(f"'{name}' is not in versions.toml [{section}]", name, known)
    return known[name]
