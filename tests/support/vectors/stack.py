"""Vectors of the rules about whole stacks."""

from dataclasses import replace
from typing import Any

from eks_inference.pools.plan import placement_of
from eks_inference.stack.facts import StackFacts
from eks_inference.stack.spec import StackSpec
from vectors import Vector
from vectors.serving import server

CORE = {"kind": "managed", "instance_types": ["m5.xlarge"], "size": 2}
NODE = {"kind": "managed", "instance_types": ["inf2.48xlarge"], "size": 1, "root_volume_gib": 1024}


def stack(pool: dict[str, Any] = NODE, *, pods_max: int = 3, **facts: Any) -> StackFacts:
    """Returns three pods of four devices on one inf2.48xlarge, with changes."""
    spec = StackSpec.model_validate({"name": "s", "pools": {"core": CORE, "inf2": pool}})
    placement = placement_of("inf2", spec.pools["inf2"], "inf2.48xlarge", spec.cluster.version)
    wish = {"devices": 4, "pods_min": 3, "cpu_millis": 60_000, "memory_mib": 200_000, **facts}
    one = replace(server(), path=("servers", "llama"), placement=placement, pods_max=pods_max, **wish)
    return StackFacts(spec, {"llama": one})


def with_pools(managed: int) -> StackFacts:
    """Returns a stack with as many managed pools, and one of Karpenter."""
    pools = {f"p{number}": CORE for number in range(managed)}
    karpenter = {"kind": "karpenter", "instance_types": ["m5.xlarge"]}
    return StackFacts(StackSpec.model_validate({"name": "s", "core_pool": "p0", "pools": {**pools, "k": karpenter}}), {})


VECTORS = {
    "CAP001": Vector(stack, lambda: stack(pods_min=4, pods_max=4), "there is no room for 1 pod of 'llama'"),
    "CAP002": Vector(stack, lambda: stack({**NODE, "root_volume_gib": 100}), "on each node"),
    "CAP003": Vector(lambda: with_pools(30), lambda: with_pools(31), "EKS refuses the rest of the managed pools"),
    "KAR003": Vector(
        lambda: stack({"kind": "karpenter", "instance_types": ["inf2.48xlarge"]}, devices=12),
        lambda: stack({"kind": "karpenter", "instance_types": ["inf2.48xlarge"]}),
        "which devices are adjacent",
    ),
}
