"""Whether the stack's zones exist for this account, and offer the pools' instance types. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference_tools.cost.estimate import Estimate
from eks_inference_tools.doctor.findings import Finding, error, ok, unknown, warning
from eks_inference_tools.doctor.questions import Inquiry, call
from eks_inference_tools.placing.placeholders import known_region
from eks_inference_tools.reading.machines import SUBNET_TYPE, Subnets, known
from eks_inference_tools.reading.node_groups import node_groups
from eks_inference_tools.reading.node_pools import FAMILY_LABEL, node_pools
from stackgraph.graph.document import Graph, is_read
from stackgraph.graph.values import grouped, is_token, items, text, unique

TOPIC = "zones and offerings"


@dataclass(frozen=True)
class Wanted:
    """Instance types of a pool: one of ``types`` has to be offered in its zones; ``c5.*`` stands for any size."""

    pool: str
    region: str
    types: tuple[str, ...]
    zones: tuple[str, ...]
    """Names or ids. Empty: only a deployment knows them."""


def zones(graph: Graph, found: Estimate) -> Iterator[Inquiry]:
    """Yields the zones of subnets, and the types of pools in them."""
    subnets = grouped((known_region(graph, one), one) for one in graph.of_type(SUBNET_TYPE) if not is_read(one))
    for region, members in subnets.items():
        names = unique(
            known(member.inputs.get("availabilityZoneId")) or known(member.inputs.get("availabilityZone")) for member in members
        )
        if names:
            listed = call("ec2.DescribeAvailabilityZones", region)
            yield Inquiry(TOPIC, "zones", (listed,), lambda answer, names=names, region=region: _zones(answer, names, region))
    for region, wanted in grouped((pool.region, pool) for pool in pools(graph, found)).items():
        types = sorted({type_ for one in wanted for type_ in one.types})
        offered = call(
            "ec2.DescribeInstanceTypeOfferings",
            region,
            LocationType="availability-zone-id",
            Filters=[{"Name": "instance-type", "Values": types}],
        )
        listed = call("ec2.DescribeAvailabilityZones", region)
        for one in wanted:
            subject = f"{' or '.join(one.types)} of {one.pool}"
            yield Inquiry(TOPIC, subject, (offered,), lambda answer, zones, one=one: _offered(answer, zones, one), (listed,))


def pools(graph: Graph, found: Estimate) -> Iterator[Wanted]:
    """The pools with the types that their nodes have: of Karpenter's, those that the pods get, or any of the families."""
    for group in node_groups(graph):
        if types := tuple(one for one in group.instance_types if not is_token(one)):
            yield Wanted(group.pool, known_region(graph, group.resource), types, _known_zones(group.subnets))
    placed = grouped((line.charge.urn, line.charge.item) for line in found.lines if line.charge.capacity)
    for pool in node_pools(graph):
        families = [one for one in pool.chosen(FAMILY_LABEL) if not is_token(one)]
        region, in_zones = known_region(graph, pool.resource), _known_zones(pool.subnets)
        if types := unique(placed.get(pool.urn, ())):
            yield from (Wanted(pool.name, region, (type_,), in_zones) for type_ in types)
        elif families:
            yield Wanted(pool.name, region, tuple(f"{family}.*" for family in families), in_zones)


def _known_zones(subnets: Subnets) -> tuple[str, ...]:
    return tuple(sorted(subnets.zone_ids or subnets.zones))


def _zones(answer: Mapping[str, Any], names: Iterable[str], region: str) -> Iterator[Finding]:
    rows = {text(item.get(key)): item for item in items(answer.get("AvailabilityZones")) for key in ("ZoneId", "ZoneName")}
    for name in names:
        if (row := rows.get(name)) is None:
            there = ", ".join(unique(text(row.get("ZoneId")) for row in rows.values()))
            yield error(f"{region} has no zone {name} for this account; it has {there or 'none'}", "set network.zone_ids")
            continue
        shown = f"{text(row.get('ZoneId'))} is {text(row.get('ZoneName'))} in this account"
        state = text(row.get("State"))
        if text(row.get("OptInStatus")) == "not-opted-in":
            yield error(f"{shown}, and not enabled", "enable the zone group, or set network.zone_ids")
        elif state not in ("", "available", "information"):
            said = "; ".join(text(item.get("Message")) for item in items(row.get("Messages")))
            yield warning(f"{shown}, and {state}{': ' + said if said else ''}", "wait, or set network.zone_ids")
        else:
            yield ok(shown, zone=text(row.get("ZoneId")), name=text(row.get("ZoneName")))


def _offered(answer: Mapping[str, Any], zones: Mapping[str, Any] | None, wanted: Wanted) -> Iterator[Finding]:
    ids = {text(item.get("ZoneName")): text(item.get("ZoneId")) for item in items((zones or {}).get("AvailabilityZones"))}
    offered = {
        text(item.get("Location"))
        for item in items(answer.get("InstanceTypeOfferings"))
        if any(_is(text(item.get("InstanceType")), type_) for type_ in wanted.types)
    }
    mine = {ids.get(zone, zone) for zone in wanted.zones}
    what = f"{' or '.join(wanted.types)} ({wanted.pool})"
    there = ", ".join(sorted(offered)) or "no zone"
    facts: Mapping[str, Any] = {"types": wanted.types, "zones": sorted(offered), "region": wanted.region}
    remedy = "choose another type or region; network.zone_ids, and zone_ids of a managed pool, choose the zones"
    if not offered:
        yield error(f"{what}: {wanted.region} offers it in no zone", remedy, **facts)
    elif not mine:
        yield unknown(f"{what}: offered in {there}; the pool's zones are known only after deployment", **facts)
    elif mine <= offered:
        yield ok(f"{what}: offered in {', '.join(sorted(mine))}", **facts)
    elif mine & offered:
        text_ = f"{what}: offered in {there}, not in {', '.join(sorted(mine - offered))}: nodes start only where it is offered"
        yield warning(text_, remedy, **facts)
    else:
        yield error(f"{what}: offered in {there}; the pool has only {', '.join(sorted(mine))}", remedy, **facts)


def _is(type_: str, pattern: str) -> bool:
    return type_ == pattern or (pattern.endswith("*") and type_.startswith(pattern[:-1]))
