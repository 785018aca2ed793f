"""What the pods of a server can use of a node. Pure; no pulumi."""

from eks_inference.catalog.instances import InstanceType
from eks_inference.pools.plan import Allocatable, allocatable

# What the DaemonSets of every node here ask for at least: VPC CNI 50m, kube-proxy 100m, EBS CSI node 30m and 120Mi (defaults of
# the EKS add-ons); rounded up.
DAEMONS_CPU_MILLIS = 200
DAEMONS_MEMORY_MIB = 300

# What a pod leaves them when nobody says how large it is to be: also device plugin, monitors, logs and CloudWatch; inferred.
_LEFT_CPU_MILLIS = 1000
_LEFT_MEMORY_MIB = 2048


def room(instance: InstanceType) -> Allocatable:
    """The most that pods can use of a node beside its DaemonSets."""
    return _less(allocatable(instance), DAEMONS_CPU_MILLIS, DAEMONS_MEMORY_MIB)


def share(instance: InstanceType, devices: int) -> Allocatable:
    """The part of a node that goes with some of its devices: what a pod gets when nobody says."""
    whole = _less(allocatable(instance), _LEFT_CPU_MILLIS, _LEFT_MEMORY_MIB)
    part = devices / instance.devices if instance.devices else 1
    return Allocatable(cpu_millis=int(whole.cpu_millis * part), memory_mib=int(whole.memory_mib * part))


def _less(usable: Allocatable, cpu_millis: int, memory_mib: int) -> Allocatable:
    return Allocatable(cpu_millis=max(usable.cpu_millis - cpu_millis, 0), memory_mib=max(usable.memory_mib - memory_mib, 0))
