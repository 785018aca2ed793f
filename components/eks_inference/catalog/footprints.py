"""What charts and EKS add-ons run, as data: ``footprints.toml`` and its typed loader."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from eks_inference.catalog.accelerators import Accelerator
from eks_inference.catalog.tables import missing, rows, table

WorkloadKind = Literal["DaemonSet", "Deployment", "StatefulSet"]
Wish = Literal["required", "preferred"]


@dataclass(frozen=True)
class ContainerFootprint:
    """One container. ``cpu`` and ``memory`` are quantities, empty for none; ``at`` are the paths at which values say otherwise;
    ``image`` is a name of the catalog's images, empty for one it does not know.
    """

    name: str
    cpu: str = ""
    memory: str = ""
    at: tuple[str, ...] = ()
    image: str = ""


@dataclass(frozen=True)
class WorkloadFootprint:
    """One workload of a chart or add-on. ``footprints.toml`` says what the fields mean; an empty text or path stands for none."""

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
    apart: Wish | None = None
    spread: Wish | None = None
    without_label: str = ""
    devices: Accelerator | None = None


@dataclass(frozen=True)
class Footprint:
    """All workloads of a chart or add-on. ``namespace`` is where EKS puts an add-on; empty for charts, whose release says it."""

    name: str
    workloads: tuple[WorkloadFootprint, ...]
    namespace: str
    source: str
    read: str


@cache
def charts() -> dict[str, Footprint]:
    """All known charts, by their bare names."""
    return _load("charts")


@cache
def addons() -> dict[str, Footprint]:
    """All known EKS add-ons, by name."""
    return _load("addons")


def chart(name: str) -> Footprint:
    """A chart's footprint; ``KeyError`` with the nearest names when it is not in the catalog."""
    if name not in charts():
        raise missing(f"no footprint of the chart '{name}' is in the catalog", name, charts())
    return charts()[name]


def addon(name: str) -> Footprint:
    """An add-on's footprint; ``KeyError`` with the nearest names when it is not in the catalog."""
    if name not in addons():
        raise missing(f"no footprint of the add-on '{name}' is in the catalog", name, addons())
    return addons()[name]


def _load(group: str) -> dict[str, Footprint]:
    return {
        name: Footprint(
            name=name,
            workloads=tuple(_workload(workload) for workload in row["workloads"]),
            namespace=row.get("namespace", ""),
            source=row["source"],
            read=row["read"],
        )
        for name, row in rows(table("footprints.toml")[group]).items()
    }


def _workload(row: dict[str, Any]) -> WorkloadFootprint:
    containers = tuple(ContainerFootprint(**_frozen(container)) for container in row["containers"])
    return WorkloadFootprint(**{**_frozen(row), "containers": containers})


def _frozen(row: dict[str, Any]) -> dict[str, Any]:
    return {key: _tuples(value) if isinstance(value, list) else value for key, value in row.items()}


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
