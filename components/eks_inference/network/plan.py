"""Plans the zones of a network and the addresses of each subnet. Pure; no pulumi.

A VPC is divided into a grid of eight equal blocks. The number in a zone's id is its position: block *n* is the private subnet of
zone ``…-az<n>``. Block 0 is divided into eight again; its part *n* is the public subnet of zone *n*. The ranges of a zone depend
only on the VPC's range and the zone's id, so adding, removing or reordering zones moves no other subnet. Part 0 of block 0 is
divided once more: its part *n* is the subnet of load balancers in zone *n*, where there is one::

    10.1.0.0/16    10.1.0.0/19                     10.1.32.0/19   10.1.64.0/19   10.1.96.0/19   10.1.128.0/19 …
                   public: 10.1.4.0/22 (az1) …     private az1    private az2    private az3    private az4

Private subnets are the larger ones: with the VPC CNI every pod has its own address, and a node keeps spare ones.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from eks_inference.catalog import zones
from eks_inference.faults import Fault, SpecError

_BITS = 3
"""Address bits that number the blocks of the grid: eight blocks, for at most six zones per region."""
RESERVED_ADDRESSES = 5
"""Addresses that AWS reserves in every subnet (VPC user guide, "Subnet CIDR blocks")."""
LARGEST_VPC, SMALLEST_VPC = 16, 21
"""Prefix lengths. AWS allows no VPC larger than /16. In a /21, private subnets are /24 and public ones /27, the smallest that AWS
load balancers accept (Elastic Load Balancing user guide, "Subnets for your load balancer")."""
_NOT_FOR_VPCS = tuple(
    ipaddress.IPv4Network(block) for block in ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4")
)
"""EC2 refuses these as the range of a VPC (EC2 API, CreateVpc; IANA, IPv4 special-purpose addresses)."""
SMALLEST_VPC_WITH_LOAD_BALANCERS = 18
"""In a /18, subnets of load balancers are /27."""
MIN_ZONES = 2
"""EKS requires control-plane subnets in at least two zones (EKS user guide, "Subnet requirements for clusters")."""
DEFAULT_ZONES = 3


@dataclass(frozen=True)
class ZonePlan:
    """The address ranges of one zone. ``public`` is None in a network without public subnets, as is ``load_balancer`` in one
    without subnets of load balancers."""

    zone_id: str
    private: ipaddress.IPv4Network
    public: ipaddress.IPv4Network | None
    load_balancer: ipaddress.IPv4Network | None = None


def address_block(value: str) -> str:
    """Returns the text of an address block. Raises ``ValueError`` for another text."""
    try:
        ipaddress.ip_network(value)
    except ValueError as fault:
        hint = ""
        if "host bits" in str(fault):
            hint = f"; the block that contains it is {ipaddress.ip_network(value, strict=False)}"
        raise ValueError(f"{value!r} is not an address block: {fault}{hint}") from None
    return value


def vpc_range(cidr: str) -> ipaddress.IPv4Network:
    """Parses the address range of a VPC. Raises ``ValueError`` with the arithmetic when the grid does not fit."""
    try:
        network = ipaddress.IPv4Network(cidr)
    except ValueError as error:
        raise ValueError(f"'{cidr}' is not an IPv4 range: {error}") from None
    if network.prefixlen < LARGEST_VPC:
        raise ValueError(f"a VPC is at most a /{LARGEST_VPC}; '{cidr}' is larger")
    if reserved := next((block for block in _NOT_FOR_VPCS if network.overlaps(block)), None):
        raise ValueError(
            f"'{cidr}' is within {reserved}, which no host can have: choose a range within 10.0.0.0/8, 172.16.0.0/12 or "
            "192.168.0.0/16"
        )
    if network.prefixlen > SMALLEST_VPC:
        private, public = network.prefixlen + _BITS, network.prefixlen + 2 * _BITS
        raise ValueError(
            f"'{cidr}' is too small: divided into 2^{_BITS} blocks it gives each zone a private /{private} ({_usable(private)}) "
            f"and a public /{public} ({_usable(public)}); needed are /{SMALLEST_VPC + _BITS} and /{SMALLEST_VPC + 2 * _BITS}: "
            f"choose a range of /{LARGEST_VPC} to /{SMALLEST_VPC}"
        )
    return network


def has_room_for_load_balancers(cidr: str) -> bool:
    """Returns whether subnets of load balancers in this range are large enough for AWS."""
    return vpc_range(cidr).prefixlen <= SMALLEST_VPC_WITH_LOAD_BALANCERS


def plan_subnets(
    cidr: str, zone_ids: Sequence[str], *, public: bool = True, load_balancers: bool = False
) -> tuple[ZonePlan, ...]:
    """Returns one ``ZonePlan`` per zone, in the given order.

    Raises ``ValueError`` when the range cannot hold the grid, a zone is given twice, or a zone does not fit into the grid.
    """
    grid = list(vpc_range(cidr).subnets(_BITS))
    public_grid = list(grid[0].subnets(_BITS))
    balanced = list(public_grid[0].subnets(_BITS)) if load_balancers else []
    if len(set(zone_ids)) < len(zone_ids):
        raise ValueError(f"a zone is given twice: {', '.join(zone_ids)}")
    plans = []
    for zone_id in zone_ids:
        match = re.search(r"-az(\d+)$", zone_id)
        if match is None:
            raise ValueError(f"'{zone_id}' is not a zone id such as usw2-az4")
        number = int(match[1])
        if not 0 < number < len(grid):
            raise ValueError(f"zone '{zone_id}' does not fit into the grid, which has room for az1 to az{len(grid) - 1}")
        plans.append(
            ZonePlan(zone_id, grid[number], public_grid[number] if public else None, balanced[number] if load_balancers else None)
        )
    return tuple(plans)


def network_zones(
    region: str, families: Sequence[str], *, wanted: Sequence[str] = (), count: int | None = None
) -> tuple[str, ...]:
    """Returns the ``wanted`` zones, or else ``count`` zones for the instance families. Raises ``SpecError``."""
    return check_zones(region, wanted) if wanted else choose_zones(region, families, count)


def check_zones(region: str, zone_ids: Sequence[str]) -> tuple[str, ...]:
    """Returns the given zones. Raises ``SpecError`` when EKS would refuse them or they belong to another region.

    A zone that the catalog does not know passes, because regions grow.
    """
    faults: list[Fault] = []
    known = zones.region_zone_ids(region) if region in zones.regions() else ()
    prefix = known[0].partition("-")[0] + "-" if known else ""
    for position, zone_id in enumerate(zone_ids):
        path = ("zone_ids", position)
        if zone_id in zones.refused_by_control_plane():
            faults.append(Fault(path, "EKS accepts no control-plane subnet in this zone", zone_id, ", ".join(known)))
        elif not zone_id.startswith(prefix):
            faults.append(Fault(path, f"the zone is not in {region}", given=zone_id, allowed=", ".join(known)))
    if len(zone_ids) < MIN_ZONES:
        message = f"an EKS control plane needs subnets in at least {MIN_ZONES} zones"
        faults.append(Fault(("zone_ids",), message, given=", ".join(zone_ids)))
    if faults:
        raise SpecError(faults)
    return tuple(zone_ids)


def choose_zones(region: str, families: Sequence[str] = (), count: int | None = None) -> tuple[str, ...]:
    """Returns zones of a region for nodes of the given instance families (``inf2``, ``m5``) or types, best first.

    At least one of the zones offers each family. Zones that offer more families come first, then those that the catalog prefers
    for the scarcest family. ``count`` is the number of zones; None means ``DEFAULT_ZONES``, or all zones of a smaller region.
    More zones are the same ones and further ones behind them. A family of which the catalog has no zones decides nothing.

    Raises ``SpecError`` when the region does not offer a family, when the families need more zones, or when the region has fewer.
    """
    if region not in zones.regions():
        known = ", ".join(zones.regions())
        fault = Fault(("zone_ids",), "the catalog has no zones for this region", region, known, "set zone_ids yourself")
        raise SpecError([fault])
    available = zones.region_zone_ids(region)
    offered = {family: zones.zone_ids(region, family) for family in dict.fromkeys(families) if zones.says_zones_of(family)}
    absent = [
        Fault(
            ("zone_ids",),
            f"{family} is not offered in {region}, according to the catalog",
            allowed=", ".join(other for other in zones.regions() if zones.zone_ids(other, family)),
            hint="if your account has access to it, set zone_ids of the network: a pool takes its zones from those",
        )
        for family, where in offered.items()
        if not where
    ]
    if absent:
        raise SpecError(absent)
    wanted = min(DEFAULT_ZONES, len(available)) if count is None else count
    if wanted > len(available):
        raise SpecError([Fault(("zones",), f"{region} has {len(available)} zones", str(count), ", ".join(available))])
    ranked = _by_rank(available, offered)
    for chosen in (some for size in range(MIN_ZONES, wanted + 1) for some in combinations(ranked, size)):
        if all(set(where) & set(chosen) for where in offered.values()):
            return (*chosen, *(zone for zone in ranked if zone not in chosen))[:wanted]
    where = "; ".join(f"{family}: {', '.join(offer)}" for family, offer in offered.items())
    raise SpecError([Fault(("zones",), "with so few zones, no choice offers every instance family", str(wanted), where)])


def _by_rank(available: Sequence[str], offered: Mapping[str, Sequence[str]]) -> list[str]:
    # Among equally scarce families, one that lists every zone in plain order expresses no preference.
    scarcest = min(offered.values(), key=lambda where: (len(where), tuple(where) == tuple(available)), default=())

    def rank(zone_id: str) -> tuple[int, int, int]:
        offers = sum(zone_id in where for where in offered.values())
        preference = scarcest.index(zone_id) if zone_id in scarcest else len(scarcest)
        return -offers, preference, available.index(zone_id)

    return sorted(available, key=rank)


def _usable(prefix: int) -> str:
    total = 2 ** (32 - prefix) if prefix <= 32 else 0
    return f"{max(total - RESERVED_ADDRESSES, 0)} addresses"
