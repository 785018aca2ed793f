"""The node and the server of the smoke test: loads ``smoke.toml`` and fits them to a stack. Pure."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from eks_inference.catalog.instances import InstanceType
from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference.stack.spec import StackSpec

_NAMES = ("smoke", "first-flight", "smoke-of-first-flight")
"""What pool and server are called: the first that the stack has not taken."""


@dataclass(frozen=True)
class Smoke:
    """One accelerator node and one server on it, as keys of a stack object.

    ``own`` says whether the node is the first of a pool of the stack, which then stays.
    """

    pool: str
    node: Mapping[str, Any]
    server: str
    serving: Mapping[str, Any]
    own: bool


def smoke_of(spec: StackSpec, written: Mapping[str, Any]) -> Smoke | None:
    """Returns the smoke test for the first accelerator of a stack; None without one, or without a row for its chip.

    ``written`` is the stack object with all its values. The node is that of the row, the cheapest with the chip, unless the
    stack's own pool is of that type anyway, or its type is sold in reservations only: those are for one type.
    """
    for pool, its in spec.pools.items():
        row = _row(its.instances()[0])
        if row is None:
            continue
        own = isinstance(its, ManagedPoolSpec) and bool(
            its.reserved or its.instances()[0].needs_reservation or its.instance_types == (row["instance"],)
        )
        server = _free(spec.servers)
        if own:
            first = {key: value for key, value in written["pools"][pool].items() if key != "autoscaled"} | {"size": 1}
            return Smoke(pool, first, server, _serving(row, pool), own)
        node = {"kind": "managed", "instance_types": [row["instance"]], "size": 1, "root_volume_gib": 100}
        name = _free(spec.pools)
        return Smoke(name, node, server, _serving(row, name), own)
    return None


def _row(instance: InstanceType) -> Mapping[str, Any] | None:
    if instance.accelerator is None:
        return None
    return rows().get(instance.chip) or rows().get(instance.accelerator)


def _serving(row: Mapping[str, Any], pool: str) -> Mapping[str, Any]:
    return {"kind": "vllm", **row["server"], "pool": pool, "devices": 1}


def _free(taken: Iterable[str]) -> str:
    return next((name for name in _NAMES if name not in taken), _NAMES[0])


@cache
def rows() -> Mapping[str, Mapping[str, Any]]:
    """The rows by chip; ``nvidia`` is for all chips of NVIDIA."""
    return tomllib.loads(files("eks_inference_tools.flight").joinpath("smoke.toml").read_text(encoding="utf-8"))
