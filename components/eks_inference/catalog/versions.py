"""Pinned versions as data: ``versions.toml`` and its typed loader.

Everything the library installs is pinned exactly, here and nowhere else. A row that serves every Kubernetes minor version is a
plain string; one that depends on it is a table keyed by minor version (``"1.35"``).
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any


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


@cache
def _versions() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(files("eks_inference.catalog").joinpath("versions.toml").read_text("utf-8"))


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
    return _of_minor("images", name, kubernetes_version)


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
    return _of_minor("neuron_drivers", release_version.rpartition("-")[2], None)


def _of_minor(table: str, name: str, kubernetes_version: str | None) -> str:
    row = _row(table, name)
    if isinstance(row, str):
        return row
    if kubernetes_version not in row:
        raise KeyError(f"{table}.{name} has no pin for Kubernetes {kubernetes_version}; there are: {', '.join(row)}")
    return row[kubernetes_version]


def _row(table: str, name: str) -> Any:
    rows = _versions()[table]
    if name in rows:
        return rows[name]
    nearest = get_close_matches(name, rows, n=3, cutoff=0.5)
    hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
    raise KeyError(f"'{name}' is not in versions.toml [{table}]{hint}")
