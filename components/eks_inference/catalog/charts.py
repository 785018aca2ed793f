"""The pinned charts: names and types of their values (``chart_values.json``), what a stack relies on, and the workloads of charts
and EKS add-ons (``footprints.toml``).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal

from eks_inference.catalog import tables
from eks_inference.catalog.instances import Accelerator
from eks_inference.catalog.tables import Row, arguments, rows, table

_MISSING = object()
_TYPES: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "number": (int, float, str),
    "text": (str, int, float),
    "list": (list, tuple),
    "integer": (int,),
    "string": (str,),  # of add-ons: EKS takes no other
}
ADDONS = "add-ons"
"""Stands for a chart, of which the values are the configuration of each add-on by its name."""


@dataclass(frozen=True)
class Misspelt:
    """A value that the chart does not take as it is written. ``nearest`` is empty where only its type is wrong."""

    path: tuple[str, ...]
    allowed: str
    nearest: str = ""


def version(chart: str) -> str:
    """The version whose names and types these are."""
    return _known()[chart]["version"]


def relied(chart: str) -> Mapping[str, Any]:
    """Values that the rest of a stack relies on beside those that it sets."""
    return tables.table("chart_values.toml")["relied"].get(chart, {})


def relies_on(chart: str, path: Sequence[str | int]) -> bool:
    """Whether the rest of a stack relies on the chart's own value here, so that another one is refused."""
    value: Any = relied(chart)
    for key in path:
        if not isinstance(value, Mapping) or not value:
            break
        value = value.get(key, _MISSING)
    return value is not _MISSING and (not isinstance(value, Mapping) or not value) and bool(chart)


def judged(chart: str) -> Mapping[str, str | None]:
    """Dotted paths of values that somebody has judged, with the highest quantity for which that holds."""
    rows = tables.table("chart_values.toml")["judged"]
    return {row["path"]: row.get("most") for row in rows if row["chart"] == chart}


def requested(chart: str, path: Sequence[str | int]) -> str:
    """What a chart or an add-on requests by itself where values have CPU or memory of a container; empty: nothing known."""
    footprint = addons().get(str(path[0] if path else "")) if chart == ADDONS else charts().get(chart)
    where, what = ".".join(map(str, path[chart == ADDONS : -2])), str(path[-1]) if path else ""
    found = (one for workload in (footprint.workloads if footprint else ()) for one in workload.containers if where in one.at)
    return next((text for one in found if (text := {"cpu": one.cpu, "memory": one.memory}.get(what, ""))), "")


def misspelt(chart: str, values: Mapping[str, Any]) -> Iterator[Misspelt]:
    """Yields what the chart does not take as it is written: a name close to one that it has, or another type.

    A name that is close to none may be one that a template passes on, so nothing is said of it.
    """
    known = _known()[chart]
    yield from _misspelt(known["values"], values, frozenset(known["mentioned"]), ())


def _misspelt(
    known: Mapping[str, Any], values: Mapping[str, Any], mentioned: frozenset[str], path: tuple[str, ...]
) -> Iterator[Misspelt]:
    for key, value in values.items():
        here = (*path, key)
        takes = known.get(key)
        if takes is None:
            if isinstance(key, str) and key not in mentioned and (near := get_close_matches(key, known, n=1, cutoff=0.75)):
                yield Misspelt(here, ", ".join(known), near[0])
        elif isinstance(takes, Mapping) and isinstance(value, Mapping):
            yield from _misspelt(takes, value, mentioned, here)
        elif value is not None and not _fits(takes, value):
            yield Misspelt(here, "a mapping" if isinstance(takes, Mapping) else f"a {takes}")


def _fits(takes: Any, value: Any) -> bool:
    if isinstance(takes, Mapping):
        return False
    if takes == "any":
        return True
    return isinstance(value, _TYPES[takes]) and (takes == "boolean" or not isinstance(value, bool))


@cache
def _known() -> Mapping[str, Any]:
    rows = table("chart_values.toml")["addons"]
    variables = {name: {"env": dict.fromkeys(texts, "string")} for name, texts in rows["texts"].items()}
    addons = {"values": {name: {**row, **variables.get(name, {})} for name, row in rows["values"].items()}, "mentioned": ()}
    return {**json.loads((tables.FOLDER / "chart_values.json").read_text("utf-8")), ADDONS: addons}


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
    defines: tuple[str, ...] = ()


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
        name: Footprint(**{**arguments(row), "name": name, "workloads": tuple(map(_workload, row["workloads"]))})
        for name, row in found.items()
    }


def _workload(row: dict[str, Any]) -> WorkloadFootprint:
    containers = tuple(ContainerFootprint(**arguments(container)) for container in row["containers"])
    return WorkloadFootprint(**{**arguments(row), "containers": containers})
