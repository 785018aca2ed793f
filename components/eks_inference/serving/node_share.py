"""Computes how much of a node the pods of a server can use. Pure; no pulumi."""

from eks_inference.nodes import DAEMONS_CPU_MILLIS, DAEMONS_MEMORY_MIB, Allocatable, allocatable, less
from eks_inference.placement import Placement


def room(placement: Placement) -> Allocatable:
    """Returns the most that pods can use of a node beside its DaemonSets."""
    return less(allocatable(placement.instance_type, placement.kubelet), DAEMONS_CPU_MILLIS, DAEMONS_MEMORY_MIB)
