"""Vectors of the rules about shared file systems."""

from typing import Any

from eks_inference.storage.rules import StoreFacts, model_contents, store_facts
from eks_inference.storage.spec import LustreStoreSpec
from vectors import Vector

LLAMA_70B_GIB = 131.4
LLAMA_405B_GIB = 755.95


def lustre(zones: tuple[str, ...] = ("use2-az3",), weights_gib: float = LLAMA_70B_GIB, **spec: Any) -> StoreFacts:
    """Returns FSx for Lustre beside a pool, with a 70B model that is compiled once, with changes."""
    return store_facts(
        LustreStoreSpec.model_validate({"kind": "fsx_lustre", **spec}),
        network_zone_ids=("use2-az1", "use2-az3"),
        pools={"di": zones},
        contents=model_contents(weights_gib, (64,)),
        path=("servers", "llama", "store"),
    )


VECTORS = {
    "STO001": Vector(lustre, lambda: lustre(zone_id="use2-az1"), "may start outside use2-az1, the zone of the file system"),
    "STO002": Vector(lustre, lambda: lustre(weights_gib=LLAMA_405B_GIB), "1511.9 GiB do not fit into 1200 GiB"),
    "STO004": Vector(lustre, lambda: lustre(zone_id="use2-az2"), "no private subnet for the file system"),
}
