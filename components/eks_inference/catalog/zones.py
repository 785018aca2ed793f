"""Availability zones: loads ``zones.toml``, and for types without accelerators ``instances_general.json``.

Zones are identified by id (``usw2-az4``): each account maps names such as ``us-west-2a`` to different zones.
"""

from collections.abc import Collection, Mapping
from functools import cache

from eks_inference.catalog.instances import InstanceType, general, instance_types
from eks_inference.catalog.tables import NotInCatalogError, rows, table


@cache
def refused_by_control_plane() -> frozenset[str]:
    """Zones in which EKS does not accept control-plane subnets."""
    return frozenset(table("zones.toml")["control_plane_refuses"]["zones"])


@cache
def regions() -> tuple[str, ...]:
    """All known regions, sorted."""
    return tuple(sorted(_regions()))


def region_zone_ids(region: str) -> tuple[str, ...]:
    """All zones of a region that an EKS control plane accepts. Raises ``KeyError`` for an unknown region."""
    return tuple(_region(region)["zones"])


def sold_as(instances: Collection[InstanceType]) -> list[str]:
    """What decides the zones of a pool: families, and a type with zones of its own where no other size of its family is there."""
    apart = {name for offered in _regions().values() for name in offered}
    families = {instance.family for instance in instances if instance.name not in apart}
    return sorted(families | {instance.name for instance in instances if instance.family not in families})


def zone_ids(region: str, name: str) -> tuple[str, ...]:
    """The zones of a region that offer an instance type, or every size of a family (``inf2``), preferred zones first.

    Empty if the region does not offer it. Raises ``KeyError`` for an unknown region or family.
    """
    family = name.partition(".")[0]
    accelerated = _family_is_accelerated().get(family)
    if accelerated is None:
        raise NotInCatalogError(
            f"instance family '{family}' is not in the catalog; known: {', '.join(sorted(_family_is_accelerated()))}"
        )
    offered = _region(region)
    usual = [] if accelerated else general()["zones"][region].get(family, offered["zones"])
    return tuple(offered.get(name, offered.get(family, usual)))


def says_zones_of(name: str) -> bool:
    """Whether the catalog says where a type or family is offered: not of a team's own instance types with accelerators."""
    family = name.partition(".")[0]
    return not _family_is_accelerated().get(family) or any(family in offered for offered in _regions().values())


def region_of_zone(zone_id: str) -> str:
    """The region of a zone (``usw2-az4``): ``us-west-2``. Empty for a zone of no known region."""
    return _regions_by_prefix().get(zone_id.partition("-az")[0], "")


@cache
def _regions_by_prefix() -> Mapping[str, str]:
    return {zone.partition("-az")[0]: region for region in regions() for zone in region_zone_ids(region)[:1]}


def _family_is_accelerated() -> Mapping[str, bool]:
    return {instance_type.family: instance_type.accelerator is not None for instance_type in instance_types().values()}


@cache
def _regions() -> Mapping[str, Mapping[str, list[str]]]:
    return rows(table("zones.toml")["regions"])


def _region(region: str) -> Mapping[str, list[str]]:
    if region not in _regions():
        raise NotInCatalogError(f"region '{region}' is not in the catalog; known: {', '.join(regions())}")
    return _regions()[region]
