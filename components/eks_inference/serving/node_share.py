"""What the pods of a server can use of a node. Pure; no pulumi."""

from eks_inference.catalog.instances import InstanceType
from eks_inference.pools.plan import Allocatable, allocatable

# What the node's DaemonSets ask for together (network, DNS, Pod Identity, plugin, monitor, logs), rounded up; inferred.
DAEMONS_CPU_MILLIS = 1000
DAEMONS_MEMORY_MIB = 2048


def room(instance: InstanceType) -> Allocatable:
    """What pods can use of a node beside its DaemonSets."""
    usable = allocatable(instance)
    return Allocatable(
        cpu_millis=max(usable.cpu_millis - DAEMONS_CPU_MILLIS, 0), memory_mib=max(usable.memory_mib - DAEMONS_MEMORY_MIB, 0)
    )


def share(instance: InstanceType, devices: int) -> Allocatable:
    """The part of ``room`` that goes with some of the node's devices: what a pod gets when nobody says."""
    whole = room(instance)
    part = devices / instance.devices if instance.devices else 1
    return Allocatable(cpu_millis=int(whole.cpu_millis * part), memory_mib=int(whole.memory_mib * part))
