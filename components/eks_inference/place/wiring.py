"""Where handles belong: cluster, network and region. All handles of one component must belong together.

Only what a program says is compared: a handle that does not say where it belongs goes anywhere.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from eks_inference.catalog.zones import region_of_zone
from eks_inference.faults import Fault
from eks_inference.specs.settings import StackSettings

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Home:
    """Where a handle belongs. Empty: unknown, or nowhere in particular.

    A cluster is known by its name and region, as in one AWS account; a network by its handle.
    """

    cluster: str = ""
    network: Any = None
    region: str = ""


ANYWHERE = Home()


def home_of(handle: Any) -> Home:
    """Returns where a handle, a component or a placement belongs."""
    if isinstance(handle, StackSettings):
        return Home(region=handle.region)
    if type(handle).__module__.startswith("pulumi"):  # an Output has every attribute; resources of SDKs are no handles
        return ANYWHERE
    own = getattr(handle, "home", None)
    known = own if isinstance(own, Home) else joined(map(home_of, _parts(handle)))
    if hasattr(handle, "vpc_id") and hasattr(handle, "private_subnets"):
        zones = [subnet.zone_id for subnet in handle.private_subnets[:1]]
        return Home(network=handle, region=known.region or region_of_zone(next(iter(zones), "")))
    if isinstance(settings := getattr(handle, "settings", None), StackSettings) and hasattr(handle, "certificate_authority"):
        return Home(f"{handle.name} in {settings.region}", known.network, settings.region)
    if zones := getattr(handle, "zone_ids", ()):  # of a pool
        return replace(known, region=region_of_zone(zones[0]) or known.region)
    return known


def joined(homes: Iterable[Home]) -> Home:
    """Returns what is known of any, the first before the others."""
    every = tuple(homes)
    return Home(
        cluster=next((home.cluster for home in every if home.cluster), ""),
        network=next((home.network for home in every if home.network is not None), None),
        region=next((home.region for home in every if home.region), ""),
    )


def strangers(arguments: Mapping[str, Any]) -> Iterator[Fault]:
    """Yields a fault for each argument that belongs elsewhere than ``settings``, else ``cluster``, else the first that says."""
    leading = [name for name in ("settings", "cluster") if name in arguments]
    handles = [handle for name in dict.fromkeys((*leading, *arguments)) for handle in _handles((name,), arguments[name])]
    homes = [(path, handle, home_of(handle)) for path, handle in handles]
    told: set[Path] = set()
    for what, same in _COMPARED.items():
        known = [(path, handle, found) for path, handle, home in homes if (found := getattr(home, what))]
        for path, handle, found in known[1:]:
            first, _, expected = known[0]
            if path not in told and not same(found, expected):
                told.add(path)
                yield Fault(
                    ("zone_ids",) if path == ("spec",) else path,
                    f"belongs to another {what} than {first[0]}",
                    given=f"{_shown(handle)} of {_shown(found)}" if found is not handle else _shown(handle),
                    allowed=f"{what} {_shown(expected)}",
                    hint=f"pass what was made for the same {what}",
                )


def _parts(handle: Any) -> Iterator[Any]:
    """What a handle was made of, or its cluster."""
    if is_dataclass(handle) and not isinstance(handle, type):
        yield from (getattr(handle, field.name) for field in fields(handle) if field.name in _TELLING)
    elif (cluster := getattr(handle, "cluster", handle)) is not handle:
        yield cluster


_TELLING = ("settings", "cluster", "network")
"""Fields of handles that say where they belong."""


def _handles(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _handles((*path, str(key)), one)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for position, one in enumerate(value):
            yield from _handles((*path, position), one)
    else:
        yield path, value


def _same_network(one: Any, other: Any) -> bool:
    """Whether two handles may be of the same VPC. An id that only a deployment knows may be any, unless it is of a ``Vpc``."""
    if one.vpc_id is other.vpc_id or not all(isinstance(each.vpc_id, str) or _name(each) for each in (one, other)):
        return True
    return isinstance(one.vpc_id, str) and one.vpc_id == other.vpc_id


def _same(one: str, other: str) -> bool:
    return one == other


_COMPARED = {"cluster": _same, "network": _same_network, "region": _same}


def _name(handle: Any) -> str:
    """The name of a component. Handles of what exists have none."""
    return getattr(handle, "_name", "")


def _shown(handle: Any) -> str:
    if isinstance(handle, str):
        return handle
    id_ = getattr(handle, "vpc_id", "")
    name = _name(handle) or getattr(handle, "pool", "") or (id_ if isinstance(id_, str) else "")
    return f"{type(handle).__name__} '{name}'" if name else type(handle).__name__
