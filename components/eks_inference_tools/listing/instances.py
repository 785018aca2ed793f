"""Instance types of the catalog, with what a region asks for them and where it has them. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.catalog.zones import says_zones_of, zone_ids
from eks_inference_tools.cost.offers import Offer, offer
from eks_inference_tools.cost.price_book import PriceBook
from eks_inference_tools.listing.searching import says
from eks_inference_tools.listing.table import Column, columns_of
from stackgraph.graph.wording import counted

_MIB = 1024


@dataclass(frozen=True)
class InstanceRow:
    """One instance type in a region."""

    offer: Offer
    zones: tuple[str, ...]
    """Zones of the region that offer every size of the family that the catalog has."""

    @property
    def type(self) -> InstanceType:
        return self.offer.instance

    @property
    def memory_gib(self) -> int:
        """Memory of all devices."""
        return self.type.devices * self.type.device_memory_gib

    @property
    def cores(self) -> int:
        """Schedulable NeuronCores; 0 for GPUs."""
        return self.type.devices * self.type.cores_per_device

    @property
    def usd(self) -> float | None:
        return self.offer.price.usd if self.offer.price else None

    @property
    def known_there(self) -> bool:
        """Whether the catalog has a zone or a price of the region, or says of no region where the type is offered."""
        return bool(self.zones or self.offer.price) or not says_zones_of(self.type.family)


@dataclass(frozen=True)
class InstanceFilter:
    """What to list. An empty field excludes nothing."""

    texts: tuple[str, ...] = ()
    accelerator: str = ""
    """``neuron``, ``nvidia``, or ``none`` for types without devices."""
    families: frozenset[str] = frozenset()
    chips: frozenset[str] = frozenset()
    engine: EngineProfile | None = None
    memory_gib: int = 0
    under: float | None = None
    efa: bool = False
    in_region: bool = False
    """Only types with a zone or a price of the region in the catalog: ``instances`` counts the others."""

    def takes(self, row: InstanceRow) -> bool:
        one = row.type
        return (
            says(self.texts, (one.name, one.chip, one.accelerator or "", one.architecture))
            and (not self.accelerator or self.accelerator == (one.accelerator or "none"))
            and (not self.families or one.family in self.families)
            and (not self.chips or one.chip in self.chips)
            and (self.engine is None or self.engine.serves(one))
            and row.memory_gib >= self.memory_gib
            and (self.under is None or (row.usd is not None and row.usd <= self.under))
            and (one.efa_interfaces > 0 or not self.efa)
        )


Order = Callable[[InstanceRow], Any]

ORDERS: Mapping[str, Order] = {
    "family": lambda _: 0,
    "price": lambda row: (row.usd is None, row.usd or 0),
    "memory": lambda row: row.memory_gib,
}
"""Orders of a list by name; rows that are equal keep the order of the catalog."""


@dataclass(frozen=True)
class Instances:
    """The list: ``rows`` of a region, out of ``of`` that the catalog has."""

    region: str
    rows: tuple[InstanceRow, ...]
    of: int
    elsewhere: int = 0
    """Types that are left out only because the catalog has neither a zone nor a price of the region."""


def instances(region: str, wanted: InstanceFilter, book: PriceBook, order: str = "family") -> Instances:
    """Returns what the filter takes."""
    every = [InstanceRow(offer(one, region, book), zone_ids(region, one.family)) for one in instance_types().values()]
    taken = [row for row in every if wanted.takes(row)]
    there = [row for row in taken if row.known_there or not wanted.in_region]
    return Instances(region, tuple(sorted(there, key=ORDERS[order])), len(every), len(taken) - len(there))


def columns(region: str) -> tuple[Column[InstanceRow], ...]:
    """The columns of the table."""
    return (
        Column("instance", "type", lambda row: row.type.name),
        Column("chip", "", lambda row: row.type.chip),
        Column("devices", "", lambda row: _number(row.type.devices), right=True),
        Column("memory", "GiB", lambda row: _number(row.memory_gib), right=True),
        Column("Neuron", "cores", lambda row: _number(row.cores), right=True, spare=3),
        Column("vCPU", "", lambda row: str(row.type.vcpus), right=True),
        Column("host", "GiB", lambda row: f"{row.type.memory_mib / _MIB:g}", right=True, spare=2),
        Column("EFA", "", lambda row: _number(row.type.efa_interfaces), right=True),
        Column("disk", "GB", lambda row: _number(row.type.nvme_gb), right=True, spare=4),
        Column("USD/h", region, lambda row: "" if row.usd is None else f"{row.usd:.2f}", right=True),
        Column("price", "", lambda row: row.offer.price_kind, spare=1),
        Column("zones", "", lambda row: ", ".join(row.zones), spare=5),
    )


def notes(found: Instances) -> Iterator[str]:
    """What to know about the table."""
    if any(row.type.devices for row in found.rows):
        yield "memory: of all devices; Neuron cores: those that pods can ask for."
    if unzoned := _families(row for row in found.rows if not row.zones):
        yield f"no zone of {found.region} is known to offer every size of {', '.join(unzoned)}."
    if scarce := [row.type.name for row in found.rows if row.type.needs_reservation]:
        yield f"{', '.join(scarce)}: capacity only by reservation or capacity block."
    if found.elsewhere:
        others = counted(found.elsewhere, "more type")
        yield f"{others} left out: neither a zone nor a price of {found.region} is known."
    if any(row.usd is None for row in found.rows):
        yield f"USD/h -: no price of {found.region}; --prices gives your own (docs/cost.md)."
    yield "--format json has every column, with its source and date."


def document(found: Instances) -> dict[str, Any]:
    """The list as JSON. Prices are in USD an hour."""
    return {"region": found.region, "instances": [_row(row) for row in found.rows]}


def _row(row: InstanceRow) -> dict[str, Any]:
    price = row.offer.price
    return {
        **columns_of(row.type),
        "memory_gib": row.memory_gib,
        "neuron_cores": row.cores,
        "zones": list(row.zones),
        "usd_per_hour": row.usd,
        "price_kind": row.offer.price_kind or None,
        "price_source": row.offer.source,
        "price_notes": list(price.notes) if price else [],
        "quota": row.offer.quota.title if row.offer.quota else None,
    }


def _number(value: int) -> str:
    return str(value) if value else ""


def _families(rows: Iterable[InstanceRow]) -> list[str]:
    return list(dict.fromkeys(row.type.family for row in rows))
