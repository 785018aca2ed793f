"""Counts the pods that find no place on the nodes of a pool. Pure; no pulumi.

Source: Kubernetes scheduling: a pod takes its devices, CPU and memory from one node.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from eks_inference.place.nodes import DAEMONS_CPU_MILLIS, DAEMONS_MEMORY_MIB, Allocatable, allocatable, less
from eks_inference.place.placement import Placement
from eks_inference.serving.facts import ServingFacts


def room(placement: Placement) -> Allocatable:
    """Returns the most that pods can use of a node beside its DaemonSets."""
    return less(allocatable(placement.instance_type, placement.kubelet), DAEMONS_CPU_MILLIS, DAEMONS_MEMORY_MIB)


@dataclass(frozen=True)
class EqualPods:
    """Equal pods in one pool. ``placement`` is that of the pool."""

    name: str
    placement: Placement
    devices: int
    cpu_millis: int
    memory_mib: int
    fewest: int
    most: int
    """Once servers are scaled out, and while they are rolled out."""


def equal_pods(name: str, server: ServingFacts) -> EqualPods:
    """Returns the pods of a server."""
    sizes = server.devices, server.cpu_millis, server.memory_mib, server.pods_min, server.pods_max + server.pods_beside
    return EqualPods(name, server.placement, *sizes)


def left_over(groups: Sequence[EqualPods], nodes: int, counts: Sequence[int]) -> dict[str, int]:
    """Returns how many pods of each group find no node: first fit, largest pods first. ``counts`` has the pods of each group."""
    placement = groups[0].placement
    usable = room(placement)
    free = [[placement.instance_type.devices, usable.cpu_millis, usable.memory_mib] for _ in range(nodes)]
    left: dict[str, int] = {}
    for group, count in sorted(zip(groups, counts, strict=True), key=lambda pair: -pair[0].devices):
        wish = (group.devices, group.cpu_millis, group.memory_mib)
        for _ in range(count):
            node = next((node for node in free if all(have >= want for have, want in zip(node, wish, strict=True))), None)
            if node is None:
                left[group.name] = left.get(group.name, 0) + 1
                continue
            for index, want in enumerate(wish):
                node[index] -= want
    return left
