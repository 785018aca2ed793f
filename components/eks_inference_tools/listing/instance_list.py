"""Instance types of the catalog, with what a region asks for them and where it has them. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.catalog.zones import says_zones_of, sold_as, zone_ids
from eks_inference_tools.cost.money import Offer, offer
from eks_inference_tools.cost.price_book import PriceBook
from eks_inference_tools.listing.columns import Column, Listing, columns_of, shape_of
from stackgraph.graph.wording import counted

_MIB = 1024


SHAPE = {
    "region": str,
    "instances": [
        shape_of(
            InstanceType,
            memory_gib=float,
            neuron_cores=int,
            zones=[str],
            usd_per_hour=float | None,
            price_kind=str | None,
            price_source=str | None,
            price_notes=[str],
            quota=str | None,
        )
    ],
}


@dataclass(frozen=True)
class InstanceRow:
    """One instance type in a region."""

    offer: Offer
    zones: tuple[str, ...]
    """Zones of the region that offer the type, or every size of its family where they differ little."""

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


def instances(region: str, book: PriceBook, *, named: bool = True) -> Listing[InstanceRow]:
    """The list. Where somebody ``named`` the region, it leaves out types of which the catalog knows neither zone nor price."""

    def notes(rows: Sequence[InstanceRow], left_out: int) -> Iterator[str]:
        if any(row.type.devices for row in rows):
            yield "memory: of all devices; Neuron cores: those that pods can ask for."
        if unzoned := dict.fromkeys(name for row in rows if not row.zones for name in sold_as([row.type])):
            yield f"no zone of {region} is known to offer every size of {', '.join(unzoned)}."
        if scarce := [row.type.name for row in rows if row.type.needs_reservation]:
            yield f"{', '.join(scarce)}: capacity only by reservation or capacity block."
        if left_out:
            yield f"{counted(left_out, 'more type')} left out: neither a zone nor a price of {region} is known."
        if any(row.usd is None for row in rows):
            yield f"USD/h -: no price of {region}; --prices gives your own (docs/cost.md)."
        yield "--format json has every column, with its source and date."

    return Listing(
        "instance type",
        [InstanceRow(offer(one, region, book), zone_ids(region, one.name)) for one in instance_types().values()],
        tells=lambda row: (row.type.name, row.type.chip, row.type.accelerator or "", row.type.architecture),
        filters={
            "accelerator": lambda row, kind: kind == (row.type.accelerator or "none"),
            "family": lambda row, names: row.type.family in names,
            "chip": lambda row, names: row.type.chip in names,
            "engine": lambda row, engine: engine.serves(row.type),
            "min_memory": lambda row, gib: row.memory_gib >= gib,
            "under": lambda row, usd: row.usd is not None and row.usd <= usd,
            "efa": lambda row, _: row.type.efa_interfaces > 0,
        },
        stays=lambda row: row.known_there or not named,
        orders={"price": lambda row: (row.usd is None, row.usd or 0), "memory": lambda row: row.memory_gib},
        columns=(
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
        ),
        notes=notes,
        record=_record,
        about=f"; prices and zones of {region}",
        facts={"region": region},
    )


def _record(row: InstanceRow) -> dict[str, Any]:
    """Prices are in USD an hour."""
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
