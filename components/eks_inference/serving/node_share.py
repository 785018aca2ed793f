"""Computes how much of a node the pods of a server can use. Pure; no pulumi."""

from dataclasses import replace

from eks_inference.catalog.instances import InstanceType
from eks_inference.placement import Placement
from eks_inference.pools.reservations import DAEMONS_CPU_MILLIS, DAEMONS_MEMORY_MIB, Allocatable, allocatable

# What pods of default size leave free, also for device plugin, monitors, logs and CloudWatch; inferred.
_LEFT_CPU_MILLIS = 1000
_LEFT_MEMORY_MIB = 2048


def room(placement: Placement) -> Allocatable:
    """Returns the most that pods can use of a node beside its DaemonSets."""
    return _less(allocatable(placement.instance_type, placement.kubelet), DAEMONS_CPU_MILLIS, DAEMONS_MEMORY_MIB)


def share(instance: InstanceType, devices: int) -> Allocatable:
    """Returns the default size of a pod: the share of a node that goes with this many of its devices."""
    whole = _less(allocatable(instance), _LEFT_CPU_MILLIS, _LEFT_MEMORY_MIB)
    part = devices / instance.devices if instance.devices else 1
    return replace(whole, cpu_millis=int(whole.cpu_millis * part), memory_mib=int(whole.memory_mib * part))


def _less(usable: Allocatable, cpu_millis: int, memory_mib: int) -> Allocatable:
    left_cpu, left_memory = usable.cpu_millis - cpu_millis, usable.memory_mib - memory_mib
    return replace(usable, cpu_millis=max(left_cpu, 0), memory_mib=max(left_memory, 0))
