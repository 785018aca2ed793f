"""Checks a server's choice of pool and instance type. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from eks_inference.faults import Fault, did_you_mean
from eks_inference.pools.spec import PoolSpec
from eks_inference.serving.shape import PoolChoice


def pool_faults(path: tuple[str, ...], choice: PoolChoice, pools: Mapping[str, PoolSpec]) -> Iterator[Fault]:
    """Yields what is wrong with a server's choice of pool and instance type."""
    pool = pools.get(choice.pool)
    if not choice.pool:
        yield Fault((*path, *choice.pool_path), "this key is required and missing", allowed=", ".join(sorted(pools)))
        return
    if pool is None:
        yield no_such_pool((*path, *choice.pool_path), choice.pool, pools)
        return
    types = sorted(instance.name for instance in pool.instances())
    key, allowed = (*path, *choice.type_path), ", ".join(types)
    accelerator = pool.instances()[0].accelerator
    if choice.accelerators and accelerator not in choice.accelerators:
        fitting = [name for name, one in pools.items() if one.instances()[0].accelerator in choice.accelerators]
        message = f"its nodes have {'devices of the wrong kind' if accelerator else 'no accelerator'} for this server"
        given = f"{choice.pool} ({types[0]})"
        yield Fault((*path, *choice.pool_path), message, given, ", ".join(fitting) or "there is none yet")
        return
    if choice.instance_type is None and len(types) > 1:
        yield Fault(key, f"pool '{choice.pool}' has several instance types: name one", allowed=allowed)
    elif choice.instance_type is not None and choice.instance_type not in types:
        hint = did_you_mean(choice.instance_type, types)
        message = f"pool '{choice.pool}' has no such instance type"
        yield Fault(key, message, given=choice.instance_type, allowed=allowed, hint=hint)


def alternative_faults(path: tuple[str, ...], places: Sequence[PoolChoice], pools: Mapping[str, PoolSpec]) -> Iterator[Fault]:
    """Yields what is wrong with places beside each other, the server's own first: each alone is right."""
    accelerator = pools[places[0].pool].instances()[0].accelerator
    before: set[tuple[str, str]] = set()
    for pool_choice in places:
        first, key = pools[pool_choice.pool].instances()[0], (*path, *pool_choice.pool_path)
        place = pool_choice.pool, pool_choice.instance_type or first.name
        given = f"{pool_choice.pool} ({place[1]})"
        if first.accelerator != accelerator:
            hint = "make another server of this model there: an endpoint leads the model's name to both"
            yield Fault(key, f"its nodes have no {accelerator} devices, which the other places have", given, hint=hint)
        elif place in before:
            yield Fault(key, "the pods run there already", given, hint="leave it out, or name another pool or instance_type")
        before.add(place)


def no_such_pool(path: tuple[str | int, ...], given: str, pools: Mapping[str, PoolSpec]) -> Fault:
    """Names the pools that there are."""
    allowed = ", ".join(sorted(pools))
    return Fault(path, "there is no pool of this name", given, allowed, hint=did_you_mean(given, pools))
