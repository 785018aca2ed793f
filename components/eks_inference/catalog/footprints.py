"""Workloads of charts and EKS add-ons: loads ``footprints.toml``."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from eks_inference.catalog.accelerators import Accelerator
from eks_inference.catalog.tables import Row, arguments, rows, table

WorkloadKind = Literal["DaemonSet", "Deployment", "StatefulSet"]
Strength = Literal["required", "preferred"]


@dataclass(frozen=True)
class ContainerFootprint:
    """One container.

    ``cpu`` and ``memory`` are quantities; empty means no request. Values at one of the paths ``at`` override them. ``image`` is a
    name in the catalog's images; empty if the catalog does not have the image.
    """

    name: str
    cpu: str = ""
    memory: str = ""
    at: tuple[str, ...] = ()
    image: str = ""


@dataclass(frozen=True)
class WorkloadFootprint:
    """One workload of a chart or add-on. ``footprints.toml`` documents the fields; an empty string or path means none."""

    kind: WorkloadKind
    name: str
    containers: tuple[ContainerFootprint, ...]
    replicas: int = 1
    replicas_at: str = ""
    place_at: tuple[str, ...] = ()
    tolerations: tuple[dict[str, Any], ...] = ()
    priority: str = ""
    host_network: bool = False
    ports: tuple[int, ...] = ()
    namespace_at: str = ""
    enabled_at: tuple[tuple[str, bool], ...] = ()
    claim: str = ""
    claim_at: str = ""
    claim_kept_at: str = ""
    apart: Strength | None = None
    spread: Strength | None = None
    without_label: str = ""
    devices: Accelerator | None = None


@dataclass(frozen=True)
class Footprint(Row):
    """All workloads of a chart or add-on. ``namespace`` is set for add-ons; a chart runs in the namespace of its release."""

    workloads: tuple[WorkloadFootprint, ...]
    namespace: str = ""


@cache
def charts() -> dict[str, Footprint]:
    """All known charts by name, without repository."""
    return _load("charts")


@cache
def addons() -> dict[str, Footprint]:
    """All known EKS add-ons by name."""
    return _load("addons")


def _load(group: str) -> dict[str, Footprint]:
    found = rows(table("footprints.toml")[group])
    return {
        name: Footprint(**{**row, "name": name, "workloads": tuple(map(_workload, row["workloads"]))})
        for name, row in found.items()
    }


def _workload(row: dict[str, Any]) -> WorkloadFootprint:
    containers = tuple(ContainerFootprint(**arguments(container)) for container in row["containers"])
    return WorkloadFootprint(**{**arguments(row), "containers": containers})
