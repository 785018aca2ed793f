"""Vectors of the rules about shared file systems."""

from typing import Any

from eks_inference.storage.facts import StoreFacts, model_contents, store_facts
from eks_inference.storage.spec import LustreStoreSpec
from vectors import Vector

LLAMA_70B_GIB = 131.4


def lustre(zones: tuple[str, ...] = ("use2-az3",), degrees: tuple[int, ...] = (64,), **spec: Any) -> StoreFacts:
    """FSx for Lustre beside a pool, with a 70B model compiled once, changed."""
    return store_facts(
        LustreStoreSpec.model_validate({"kind": "fsx_lustre", **spec}),
        network_zone_ids=("use2-az1", "use2-az3"),
        pools={"di": zones},
        contents=model_contents(LLAMA_70B_GIB, degrees),
        path=("servers", "llama", "store"),
    )


VECTORS = {
    "STO001": Vector(lustre, lambda: lustre(zone_id="use2-az1"), "may start outside of use2-az1, where the file system is"),
    "STO002": Vector(lustre, lambda: lustre(degrees=(1, 2, 4, 8, 16, 32, 64, 64, 64)), "1314.0 GiB do not fit into 1200 GiB"),
    "STO004": Vector(lustre, lambda: lustre(zone_id="use2-az2"), "no private subnet where the file system is"),
}
