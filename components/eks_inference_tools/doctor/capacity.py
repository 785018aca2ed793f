"""Reservations and capacity blocks that pools name, and those that the account has for types that need one. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from eks_inference.catalog.instances import instance_types
from eks_inference.place.placement import INSTANCE_TYPE_LABEL
from eks_inference_tools.doctor.findings import Finding, error, ok, unknown, warning
from eks_inference_tools.doctor.questions import Inquiry, call
from eks_inference_tools.placing.placeholders import known_region
from eks_inference_tools.reading.node_groups import node_groups
from eks_inference_tools.reading.node_pools import FAMILY_LABEL, node_pools
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, is_token, items, joined, text

TOPIC = "reservations"

_BLOCK_HOURS = 24
"""The shortest capacity block is a day (EC2 user guide, "Find and purchase Capacity Blocks")."""

_STATES = ["active", "scheduled", "payment-pending", "pending"]


@dataclass(frozen=True)
class Wanted:
    """Nodes of a pool. ``count`` is the most there can be; 0 when only pods tell. ``block``: the pool says it is one."""

    pool: str
    region: str
    types: tuple[str, ...]
    zones: frozenset[str]
    count: int
    block: bool = False


def capacity(graph: Graph, today: date) -> Iterator[Inquiry]:
    """Yields the reservations that the graph names, and what the account has where a type needs one and none is named."""
    for wanted, ids, groups in _pools(graph):
        for one in ids:
            asked = call("ec2.DescribeCapacityReservations", wanted.region, CapacityReservationIds=[one])
            yield Inquiry(
                TOPIC,
                f"{one} of {wanted.pool}",
                (asked,),
                lambda answer, one=one, wanted=wanted: _named(answer, one, wanted, today),
            )
        for group in groups:
            said = f"{wanted.pool}: the reservations of {group} are not looked up"
            yield Inquiry(TOPIC, wanted.pool, (), lambda said=said: [unknown(said, "compare them with the pool by hand")])
        scarce = [one for one in wanted.types if one in instance_types() and instance_types()[one].needs_reservation]
        if scarce and not ids and not groups:
            has = call(
                "ec2.DescribeCapacityReservations",
                wanted.region,
                Filters=[{"Name": "instance-type", "Values": scarce}, {"Name": "state", "Values": _STATES}],
            )
            offers = call(
                "ec2.DescribeCapacityBlockOfferings",
                wanted.region,
                InstanceType=scarce[0],
                InstanceCount=max(wanted.count, 1),
                CapacityDurationHours=_BLOCK_HOURS,
            )
            yield Inquiry(
                TOPIC,
                f"{scarce[0]} of {wanted.pool}",
                (has,),
                lambda answer, offered, wanted=wanted, type_=scarce[0]: _unnamed(answer, offered, wanted, type_),
                (offers,),
            )


def _pools(graph: Graph) -> Iterator[tuple[Wanted, tuple[str, ...], tuple[str, ...]]]:
    """Pools with the ids of their reservations and the resource groups that hold others."""
    for group in node_groups(graph):
        target = at(
            group.template.document if group.template else None, "capacityReservationSpecification", "capacityReservationTarget"
        )
        ids = _texts(at(target, "capacityReservationId"))
        zones = group.subnets.zone_ids or group.subnets.zones
        wanted = Wanted(
            group.pool,
            known_region(graph, group.resource),
            tuple(one for one in group.instance_types if not is_token(one)),
            zones,
            group.sizes[2] or 0,
            group.is_capacity_block,
        )
        yield wanted, ids, _texts(at(target, "capacityReservationResourceGroupArn"))
    for pool in node_pools(graph):
        terms = items(at(pool.node_class.document if pool.node_class else None, "capacityReservationSelectorTerms"))
        ids = tuple(one for term in terms for one in _texts(at(term, "id")))
        families = pool.chosen(FAMILY_LABEL)
        chosen = tuple(one for one in pool.chosen(INSTANCE_TYPE_LABEL) if not is_token(one))
        chosen = chosen or tuple(one.name for one in instance_types().values() if one.family in families)
        wanted = Wanted(pool.name, known_region(graph, pool.resource), chosen, pool.subnets.zone_ids, pool.replicas or 0)
        yield wanted, ids, tuple(f"tags {text(at(term, 'tags'))}" for term in terms if at(term, "tags"))


def _texts(value: Any) -> tuple[str, ...]:
    return (text(value),) if value and not is_token(value) else ()


# -- what the account says -------------------------------------------------------------------------------------------------------


def _named(answer: Mapping[str, Any] | None, id_: str, wanted: Wanted, today: date) -> Iterator[Finding]:
    row = next((item for item in items((answer or {}).get("CapacityReservations"))), None)
    if row is None:
        yield error(
            f"{wanted.pool}: {wanted.region} has no reservation {id_} for this account",
            "name one of this account and region: capacity_reservation_id",
            f"aws ec2 describe-capacity-reservations --region {wanted.region}",
        )
        return
    wrong, doubtful = list(_faults(row, wanted)), list(_doubts(row, wanted, today))
    shown = f"{wanted.pool}: {_described(row)}"
    facts = _facts(row)
    if wrong:
        yield error(f"{shown}: {'; '.join(wrong)}", "name a reservation that suits the pool, or change the pool", **facts)
    elif doubtful:
        yield warning(f"{shown}: {'; '.join(doubtful)}", "deploy while it is active and has room", **facts)
    else:
        yield ok(shown, **facts)


def _faults(row: Mapping[str, Any], wanted: Wanted) -> Iterator[str]:
    """Why nodes of the pool never start in the reservation."""
    type_, zone = text(row.get("InstanceType")), text(row.get("AvailabilityZoneId"))
    if wanted.types and type_ and type_ not in wanted.types:
        yield f"the pool has {' or '.join(wanted.types)}"
    if wanted.zones and zone and not {zone, text(row.get("AvailabilityZone"))} & wanted.zones:
        yield f"the pool has only {', '.join(sorted(wanted.zones))}"
    total = row.get("TotalInstanceCount")
    if isinstance(total, int) and wanted.count > total:
        yield f"the pool may have {wanted.count} nodes"
    if text(row.get("State")) in ("expired", "cancelled", "failed", "payment-failed", "unsupported", "cancelling"):
        yield "it gives no capacity any more"
    is_block = text(row.get("ReservationType")) == "capacity-block"
    if is_block and not wanted.block:
        yield "it is a capacity block, and the pool does not set capacity_type: capacity_block"
    if wanted.block and text(row.get("ReservationType")) == "default":
        yield "the pool sets capacity_type: capacity_block, and this is not one"


def _doubts(row: Mapping[str, Any], wanted: Wanted, today: date) -> Iterator[str]:
    """Why nodes do not start now, or not for long."""
    state, free, end = text(row.get("State")), row.get("AvailableInstanceCount"), row.get("EndDate")
    if state != "active":
        yield "it is not active yet"
    elif isinstance(free, int) and free < wanted.count:
        yield f"{free} are free, the pool may have {wanted.count}; those of this stack, if it runs, are among the others"
    if isinstance(end, datetime) and end.astimezone(UTC).date() - today < timedelta(days=1):
        yield "it ends within a day"


def _unnamed(answer: Mapping[str, Any], offered: Mapping[str, Any] | None, wanted: Wanted, type_: str) -> Iterator[Finding]:
    """What the account could use for a type that EC2 hardly sells on demand."""
    rows = items(answer.get("CapacityReservations"))
    blocks = items((offered or {}).get("CapacityBlockOfferings"))
    for row in rows:
        yield warning(
            f"{wanted.pool} names no reservation; the account has {_described(row)}",
            f"set capacity_reservation_id: {text(row.get('CapacityReservationId'))}"
            + (" and capacity_type: capacity_block" if text(row.get("ReservationType")) == "capacity-block" else ""),
            **_facts(row),
        )
    if not rows:
        text_ = f"{wanted.pool} names no reservation, and the account has none of {type_}, which is rarely available on demand"
        found = [_offer(block) for block in blocks]
        if offered is not None:
            text_ += f"; capacity blocks of a day for {max(wanted.count, 1)}: {'; '.join(found) or 'none'}"
        request = (
            "aws ec2 describe-capacity-block-offerings"
            f" --instance-type {type_} --instance-count {max(wanted.count, 1)}"
            f" --capacity-duration-hours {_BLOCK_HOURS} --region {wanted.region}"
        )
        remedy = "reserve capacity, or buy a block (which cannot be given back), and set capacity_reservation_id"
        yield error(text_, remedy, request, type=type_, region=wanted.region, offers=found)


def _offer(row: Mapping[str, Any]) -> str:
    fee = joined(row.get("UpfrontFee"), row.get("CurrencyCode"))
    return f"{_when(row.get('StartDate'))} in {text(row.get('AvailabilityZone'))}, {fee}"


def _described(row: Mapping[str, Any]) -> str:
    kind = "block" if text(row.get("ReservationType")) == "capacity-block" else "reservation"
    zone = text(row.get("AvailabilityZoneId")) or text(row.get("AvailabilityZone"))
    parts = [
        f"{kind} {text(row.get('CapacityReservationId'))} of {row.get('TotalInstanceCount')} × {text(row.get('InstanceType'))}",
        f"in {zone}, {text(row.get('State'))}",
        f"from {_when(row.get('StartDate'))}" if row.get("StartDate") else "",
        f"until {_when(row.get('EndDate'))}" if row.get("EndDate") else "",
    ]
    return " ".join(filter(None, parts))


def _facts(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = (
        "CapacityReservationId",
        "InstanceType",
        "AvailabilityZoneId",
        "State",
        "TotalInstanceCount",
        "AvailableInstanceCount",
    )
    dates = {key: _when(row.get(key)) for key in ("StartDate", "EndDate") if row.get(key)}
    return {key: row.get(key) for key in keys} | dates


def _when(value: Any) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC") if isinstance(value, datetime) else text(value)
