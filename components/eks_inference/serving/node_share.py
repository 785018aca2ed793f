"""Computes how much of a node the pods of a server can use. Pure; no pulumi."""

from eks_inference.catalog.instances import InstanceType
from eks_inference.pools.plan import Allocatable, allocatable

# Least that DaemonSets request on every node: VPC CNI 50m, kube-proxy 100m, EBS CSI node 30m and 120Mi (defaults of the EKS
# add-ons), rounded up.
DAEMONS_CPU_MILLIS = 200
DAEMONS_MEMORY_MIB = 300

# What pods of default size leave free, also for device plugin, monitors, logs and CloudWatch; inferred.
_LEFT_CPU_MILLIS = 1000
_LEFT_MEMORY_MIB = 2048


def room(instance: InstanceType) -> Allocatable:
    """Returns the most that pods can use of a node beside its DaemonSets."""
    return _less(allocatable(instance), DAEMONS_CPU_MILLIS, DAEMONS_MEMORY_MIB)


def share(instance: InstanceType, devices: int) -> Allocatable:
    """Returns the default size of a pod: the share of a node that goes with this many of its devices."""
    whole = _less(allocatable(instance), _LEFT_CPU_MILLIS, _LEFT_MEMORY_MIB)
    part = devices / instance.devices if instance.devices else 1
    return Allocatable(cpu_millis=int(whole.cpu_millis * part), memory_mib=int(whole.memory_mib * part))


def _less(usable: Allocatable, cpu_millis: int, memory_mib: int) -> Allocatable:
    return Allocatable(cpu_millis=max(usable.cpu_millis - cpu_millis, 0), memory_mib=max(usable.memory_mib - memory_mib, 0))
