"""Checks a server's choice of pool and instance type. Pure."""

from collections.abc import Iterator, Mapping

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


def no_such_pool(path: tuple[str | int, ...], given: str, pools: Mapping[str, PoolSpec]) -> Fault:
    """Names the pools that there are."""
    allowed = ", ".join(sorted(pools))
    return Fault(path, "there is no pool of this name", given, allowed, hint=did_you_mean(given, pools))
