"""The prices that count, a user's own before those of the catalog, and what AWS charges for by them. Pure."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from eks_inference.catalog.prices import BLOCK, HOUR, Price, block_price, instance_price, service_price, services
from eks_inference.catalog.tables import find
from eks_inference.faults import Fault, SpecError, faults_under, format_path
from eks_inference.specs.settings import region_fault
from eks_inference.stack.own_rows import OwnPrice, price_faults
from eks_inference_tools.placing.footprint import Scale
from eks_inference_tools.reading.clusters import PLATFORM
from stackgraph.graph.document import Graph
from stackgraph.problems import Problem, ProblemsFound

Capacity = Literal["on_demand", "spot", "reserved"]
"""How EC2 sells an instance; ``reserved`` is a capacity reservation or a capacity block."""

OwnPrices = Mapping[str, Mapping[str, OwnPrice]]
"""Prices by region and by instance type or service."""

OWN = "own price"
"""The note of a price that a user gave."""


@dataclass(frozen=True)
class PriceBook:
    """Prices by region. The first of ``layers`` that has a price decides; below all of them is the catalog."""

    layers: tuple[OwnPrices, ...] = ()

    def instance(self, type_: str, region: str, capacity: Capacity = "on_demand") -> Price | None:
        """The price of one hour. Spot and reserved capacity without an own price count as on demand, which a note says.

        A type that AWS sells in capacity blocks only costs what a block does, unless it is to be spot.
        """
        for own in self._own(type_, region):
            if (usd := getattr(own, capacity)) is not None:
                return Price(type_, region, usd, HOUR, own.source, "", (OWN,))
        if capacity == "on_demand":
            return instance_price(type_, region) or block_price(type_, region)
        price = self.instance(type_, region)
        if price and BLOCK in price.notes:
            return price if capacity == "reserved" else None
        return price and replace(price, notes=(*price.notes, _COUNTED[capacity].format(type_)))

    def service(self, name: str, region: str) -> Price | None:
        """The price of one unit of a service. Raises ``KeyError`` with the nearest names for an unknown one."""
        unit = find("service", name, services()).unit
        for own in self._own(name, region):
            if own.usd is not None:
                return Price(name, region, own.usd, unit, own.source, "", (OWN,))
        return service_price(name, region)

    def _own(self, name: str, region: str) -> list[OwnPrice]:
        return [layer[region][name] for layer in self.layers if name in layer.get(region, {})]


_COUNTED = {
    "spot": "counted as on demand; spot costs less: give prices.{}.spot",
    "reserved": "counted as on demand; a reservation or capacity block has its own price: give prices.{}.reserved",
}


# A user's own prices are those of a recorded stack and of a file, which has them by region, otherwise as a stack file does::
#
#     us-west-2:
#       trn2.48xlarge: {reserved: 35.76, source: "capacity block of 14 days, invoice of 2026-10"}
#       nat_gateway: {usd: 0.04, source: "private price list"}


def prices_of(graph: Graph) -> OwnPrices:
    """The prices that the stacks of a graph gave, by their region."""
    found: dict[str, dict[str, OwnPrice]] = {}
    for resource in graph.of_type(PLATFORM):
        given, region = resource.inputs.get("prices"), resource.inputs.get("region")
        if isinstance(given, Mapping) and isinstance(region, str):
            for name, own in given.items():
                # A platform has checked its own. Another program's resource of this type may have anything there.
                with contextlib.suppress(SpecError):
                    found.setdefault(region, {})[name] = OwnPrice.model_validate(own)
    return found


def read_price_file(path: Path) -> OwnPrices:
    """The prices of a file. Raises ``ProblemsFound`` with everything that is wrong in it."""
    from stackgraph.recorder.yaml_file import read_document

    document = read_document(path)
    faults: list[Fault] = []
    found = _regions(document.data, faults)
    if faults:
        faults.sort(key=lambda fault: document.line(fault.path))
        told = [Problem.of(fault, document.shown, document.line(fault.path), format_path(fault.path)) for fault in faults]
        raise ProblemsFound(told)
    return found


def _regions(data: Any, faults: list[Fault]) -> dict[str, dict[str, OwnPrice]]:
    if not isinstance(data, Mapping):
        faults.append(Fault((), "prices must be a mapping", type(data).__name__, "regions, each with prices by name"))
        return {}
    found: dict[str, dict[str, OwnPrice]] = {}
    for region, rows in data.items():
        if fault := region_fault(region):
            faults.append(Fault((region,), fault.message, region, fault.allowed, fault.hint))
        elif not isinstance(rows, Mapping):
            faults.append(Fault((region,), "a region has prices by name", type(rows).__name__, "instance types and services"))
        else:
            found[region] = _prices(region, rows, faults)
            faults += price_faults(found[region], (region,), catalog_only=False)
    return found


def _prices(region: str, rows: Mapping[str, Any], faults: list[Fault]) -> dict[str, OwnPrice]:
    found: dict[str, OwnPrice] = {}
    for name, row in rows.items():
        if not isinstance(row, Mapping):
            allowed = "on_demand, spot, reserved or usd, and source"
            faults.append(Fault((region, name), "a price is a mapping", type(row).__name__, allowed))
            continue
        try:
            with faults_under(region, name):
                # Strict, as in a stack file: a number in quotes is no number.
                found[name] = OwnPrice.model_validate_json(json.dumps(row), strict=True)
        except SpecError as error:
            faults += error.faults
    return found


Part = Literal["nodes", "control plane", "network", "storage", "logs", "other"]
PARTS: tuple[Part, ...] = ("nodes", "control plane", "network", "storage", "logs", "other")
"""The parts of a bill, in the order in which views show them."""

SCALES: tuple[Scale, ...] = ("least", "initial", "most")

Amounts = tuple[float, float, float]
"""Units at each of ``SCALES``."""


@dataclass(frozen=True)
class Charge:
    """Something that is billed for each hour or month that it exists.

    ``item`` is an instance type, with ``capacity`` as ``PriceBook`` calls it, or the name of a service. ``owner`` says in a word
    whose it is, such as the name of a pool.
    """

    part: Part
    owner: str
    what: str
    item: str
    region: str
    urn: str
    amounts: Amounts
    capacity: Capacity | None = None


@dataclass(frozen=True)
class ByUse:
    """Something that is billed by use, which nobody knows beforehand: traffic, logs, contents of buckets."""

    part: Part
    what: str
    item: str
    region: str
    urn: str


@dataclass(frozen=True)
class Uncounted:
    """Something that may cost money and is in no total, with the reason."""

    what: str
    why: str
    urn: str = ""

    @property
    def shown(self) -> str:
        return f"{self.what}: {self.why}"


Found = Iterator[Charge | ByUse | Uncounted]
