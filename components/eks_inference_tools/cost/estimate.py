"""What a graph costs: its charges with their prices, what they come to, and what output tokens cost at a measured rate. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference.catalog.prices import HOUR, Price, outdated
from eks_inference.stack.nested import put
from eks_inference_tools.cost.charges import claimed_volumes, load_balancers, node_charges, service_charges
from eks_inference_tools.cost.price_book import (
    OWN,
    PARTS,
    SCALES,
    ByUse,
    Charge,
    OwnPrices,
    Part,
    PriceBook,
    Uncounted,
    prices_of,
)
from eks_inference_tools.placing.placed import PlacedNode, Placement, Placing
from eks_inference_tools.reading.clusters import parts
from eks_inference_tools.reading.pods import AFFINITY, PodSpec
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at, items, joined, unique

if TYPE_CHECKING:
    from eks_inference_tools.loadtest_report.record import Run

TEMPLATE = ("spec", "template", "spec")
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
_DEVICES = (DEVICE_RESOURCE, CORE_RESOURCE, GPU_RESOURCE)


@dataclass(frozen=True)
class Unused:
    """Unused capacity of an instance type in a pool: ``nodes`` without a pod that uses devices, free ``devices`` on others."""

    urn: str
    type: str
    nodes: int
    of_nodes: int
    devices: int
    of_devices: int


def unused(placements: Sequence[Placement]) -> Iterator[Unused]:
    """Yields what no pod uses at any of the scales. Says nothing where no pod of the program uses a device."""
    left = [_left(placement) for placement in placements]
    if not any(used for by_type in left for _, _, used in by_type.values()):
        return
    for key in left[0]:
        if all(key in by_type for by_type in left):
            nodes, devices, _ = (min(amounts) for amounts in zip(*(by_type[key] for by_type in left), strict=True))
            if nodes or devices:
                standing = [node for node in placements[0].nodes if (node.urn, node.instance.name) == key]
                each = standing[0].instance.devices
                yield Unused(*key, nodes, len(standing), devices, (len(standing) - nodes) * each)


def _left(placement: Placement) -> Mapping[tuple[str, str], tuple[int, int, int]]:
    """By pool and type: nodes that nothing uses, devices left on the others, and devices in use."""
    found: dict[tuple[str, str], tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for node in placement.nodes:
        if has := node.instance.devices:
            used = _used(node)
            nodes, devices, all_used = found[node.urn, node.instance.name]
            found[node.urn, node.instance.name] = (nodes + (not used), devices + (has - used if used else 0), all_used + used)
    return found


def _used(node: PlacedNode) -> int:
    """The devices of a node that pods ask for, a part of one counted whole. Claims may be for all of them."""
    if any(items(at(pod.template.spec.document, "resourceClaims")) for pod in node.pods):
        return node.instance.devices
    share = max(
        (
            sum((pod.template.spec.requests.get(name, Decimal(0)) for pod in node.pods), Decimal(0)) / number
            for name, number in node.devices.items()
            if name in _DEVICES
        ),
        default=Decimal(0),
    )
    return -int(-share * node.instance.devices // 1)


HOURS_PER_MONTH = 730
"""Of AWS's price list."""


@dataclass(frozen=True)
class Priced:
    """A charge with the price of one unit; None if nobody told one."""

    charge: Charge
    price: Price | None

    def usd_per_hour(self, scale: int) -> float:
        """What it costs at one of ``SCALES``, by position; 0 without a price."""
        if self.price is None:
            return 0.0
        per_hour = self.price.usd if self.price.unit == HOUR else self.price.usd / HOURS_PER_MONTH
        return self.charge.amounts[scale] * per_hour


@dataclass(frozen=True)
class Total:
    """USD per hour. ``at_least`` says that something in it has no price or was not counted."""

    usd_per_hour: float
    at_least: bool

    @property
    def usd_per_month(self) -> float:
        return self.usd_per_hour * HOURS_PER_MONTH


@dataclass(frozen=True)
class Estimate:
    """What a graph costs by list prices. Traffic, logs and contents (``by_use``) are in no total."""

    lines: tuple[Priced, ...]
    by_use: tuple[tuple[ByUse, Price | None], ...]
    uncounted: tuple[Uncounted, ...]
    unused: tuple[Unused, ...] = ()

    def total(self, scale: int, part: Part | None = None) -> Total:
        """The total at one of ``SCALES``, of one part or of all."""
        lines = [line for line in self.lines if part in (None, line.charge.part)]
        unknown = any(line.price is None and line.charge.amounts[scale] for line in lines)
        uncounted = part is None and bool(self.uncounted)
        return Total(sum(line.usd_per_hour(scale) for line in lines), unknown or uncounted)

    @cached_property
    def totals(self) -> tuple[Total, Total, Total]:
        """Idle, as deployed, at the most."""
        least, initial, most = (self.total(scale) for scale in range(len(SCALES)))
        return least, initial, most

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that have charges."""
        found = {line.charge.part for line in self.lines}
        return tuple(part for part in PARTS if part in found)

    def missing(self) -> tuple[str, ...]:
        """What has no price, in words."""
        return unique(_without_price(line.charge) for line in self.lines if line.price is None)

    def without_price(self) -> Mapping[str, float]:
        """The instances that have no price, by type: how many are deployed."""
        found: dict[str, float] = {}
        for line in self.lines:
            if line.price is None and line.charge.capacity and (number := line.charge.amounts[SCALES.index("initial")]):
                found[line.charge.item] = found.get(line.charge.item, 0) + number
        return found

    def price_of(self, urn: str, instance: str) -> Price | None:
        """The price of an instance of a pool."""
        return next((line.price for line in self.lines if (line.charge.urn, line.charge.item) == (urn, instance)), None)

    def notes(self) -> tuple[str, ...]:
        """What a reader has to know about the prices, each with what it concerns."""
        prices = [line.price for line in self.lines if line.price]
        return unique(f"{price.name}: {_noted(note, price)}" for price in prices for note in price.notes)


def estimate(graph: Graph, book: PriceBook) -> Estimate:
    """Returns what a graph costs. Amounts come from the graph alone, prices from ``book``.

    Pods with several places are at their first. What they cost more at their dearest is a line of its own, at the most.
    """
    found, dearest = _at_first(graph, book), graph

    def most(graph: Graph) -> tuple[bool, float]:
        total = _at_first(graph, book).total(SCALES.index("most"))
        return total.at_least, total.usd_per_hour

    for resource in graph.of_type(DEPLOYMENT):
        _, *others = PodSpec(at(resource.inputs, *TEMPLATE)).places
        dearest = max((dearest, *(moved(dearest, resource, other) for other in others)), key=most) if others else dearest
    if dearest is graph:
        return found
    (unknown, usd), (before, first) = most(dearest), most(graph)
    region = next((line.charge.region for line in _at_first(dearest, book).lines), "")
    charge = Charge("nodes", "elsewhere", "dearer places", "dearest places of all pods", region, graph.stack, (0, 0, 1))
    price = Price(charge.item, charge.region, usd - first, HOUR, "the prices of those nodes", "")
    return replace(found, lines=(*found.lines, Priced(charge, None if unknown and not before else price)))


def moved(graph: Graph, resource: Resource, place: PodSpec) -> Graph:
    """Returns the graph with the pods of a Deployment at one of their places alone."""
    inputs = put(resource.inputs, (*TEMPLATE, *AFFINITY), at(place.document, *AFFINITY))
    changed = (replace(one, inputs=inputs) if one.urn == resource.urn else one for one in graph.resources)
    return replace(graph, resources=tuple(changed))


def _at_first(graph: Graph, book: PriceBook) -> Estimate:
    charges, idle = _charges(graph)
    return Estimate(
        lines=tuple(Priced(charge, _price(charge, book)) for charge in charges if isinstance(charge, Charge)),
        by_use=tuple((charge, book.service(charge.item, charge.region)) for charge in charges if isinstance(charge, ByUse)),
        uncounted=tuple(dict.fromkeys(charge for charge in charges if isinstance(charge, Uncounted))),
        unused=idle,
    )


def estimated(graph: Graph, prices: OwnPrices | None = None) -> Estimate:
    """Returns what a graph costs. ``prices`` come before those of the stack, which come before those of the catalog."""
    return estimate(graph, PriceBook((prices or {}, prices_of(graph))))


def _charges(graph: Graph) -> tuple[Sequence[Charge | ByUse | Uncounted], tuple[Unused, ...]]:
    found: list[Charge | ByUse | Uncounted] = []
    idle: list[Unused] = []
    counted: set[str] = set()
    for part in parts(graph):
        placing = Placing(part.graph)
        placements = [placing.at(scale) for scale in SCALES]
        idle += unused([placing.at(scale, ending=True) for scale in SCALES[1:]])
        charges = (
            *node_charges(part.graph, placements),
            *claimed_volumes(part.graph, placing.workloads),
            *load_balancers(part.graph),
        )
        # What names no cluster, such as a node group whose cluster only a deployment knows, is in every part.
        found += [charge for charge in charges if charge.urn not in counted]
        counted |= {charge.urn for charge in charges}
    return [*found, *service_charges(graph)], tuple(idle)


def _price(charge: Charge, book: PriceBook) -> Price | None:
    if charge.capacity is None:
        return book.service(charge.item, charge.region)
    return book.instance(charge.item, charge.region, charge.capacity)


def _noted(note: str, price: Price) -> str:
    return f"{note}, {price.source}" if note == OWN else note


def _without_price(charge: Charge) -> str:
    where = charge.region or "an unknown region (aws:region)"
    if charge.capacity and (old := outdated(charge.item, charge.region)):
        return f"no price for {charge.item} in {where}: the only one found is {', '.join(old.notes)}"
    return f"no price for {charge.item} in {where}"


_SECONDS_PER_HOUR = 3600
_MILLION = 1_000_000

_SLOWEST = 1 / _SECONDS_PER_HOUR
"""A token an hour: what is slower is no rate that anything costs at."""


@dataclass(frozen=True)
class Rate:
    """Output tokens per second of a whole run. ``run`` says which."""

    run: str
    tokens_per_s: float

    def usd_per_million(self, deployed: Total) -> float:
        """What a million output tokens cost while the stack, as deployed, answers at this rate without a pause."""
        return deployed.usd_per_hour / (self.tokens_per_s * _SECONDS_PER_HOUR) * _MILLION


def rates(runs: "Iterable[Run]") -> Iterator[Rate]:
    """Yields the rates of the runs that tell one."""
    for run in runs:
        if run.output_tokens_per_s and run.output_tokens_per_s >= _SLOWEST:
            users = f"{run.users} users" if run.users else ""
            yield Rate(joined(run.label or run.tool, users, by=", "), run.output_tokens_per_s)
