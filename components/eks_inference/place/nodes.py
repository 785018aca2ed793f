"""Computes what pods can use of a node after the kubelet's reservations, and the share of one pod; parses quantities
(``k8s.io/apimachinery``, resource.Quantity). Pure; no pulumi.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from eks_inference.catalog.instances import DEVICE_RESOURCES, InstanceType

_SUFFIXES = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    **{prefix: Decimal(1000) ** power for power, prefix in enumerate("kMGT", 1)},
    **{f"{prefix}i": Decimal(1024) ** power for power, prefix in enumerate("KMGT", 1)},
}

# Reservations of nodeadm (kubelet/config.go): from, to (millicores of a node), share in ten-thousandths; evictionHard.
_CPU_SLICES = ((0, 1000, 600), (1000, 2000, 100), (2000, 4000, 50), (4000, None, 25))
_EVICTION_MIB = 100

# The guest sees less memory than EC2 advertises. The default of Karpenter's vmMemoryOverheadPercent is the only published figure;
# large types actually lose less.
_GUEST_MEMORY = 0.925

_AMOUNT = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?(%|m|k|[MGT]|[KMGT]i)?")

DAEMONS_CPU_MILLIS = 200
DAEMONS_MEMORY_MIB = 300
DAEMON_PODS = 4
"""Least that DaemonSets request on every node: VPC CNI 50m, kube-proxy 100m, EBS CSI node 30m and 120Mi, Pod Identity agent
nothing (defaults of the EKS add-ons), rounded up."""


# What pods of default size leave free, also for device plugin, monitors, logs and CloudWatch; inferred.
_LEFT_CPU_MILLIS = 1000
_LEFT_MEMORY_MIB = 2048


def amount(quantity: str) -> Decimal:
    """Returns a quantity as a number: 0.5 for ``500m``, 110 000 000 000 for ``110G``. Raises ``ValueError`` for other text."""
    number = quantity.rstrip("mkKMGTi")
    suffix = quantity[len(number) :]
    if suffix not in _SUFFIXES or not number.replace(".", "", 1).isdecimal():
        raise ValueError(f"{quantity!r} is not a quantity")
    return Decimal(number) * _SUFFIXES[suffix]


def cpu_millis(quantity: str) -> int:
    """Returns a CPU quantity in millicores."""
    return int(amount(quantity) * 1000)


def memory_mib(quantity: str) -> int:
    """Returns a memory quantity in MiB, rounded down."""
    return int(amount(quantity) / 1024**2)


@dataclass(frozen=True)
class Allocatable:
    """The resources of a node that pods can use, DaemonSets included. ``pods`` is their largest number."""

    cpu_millis: int
    memory_mib: int
    pods: int


def allocatable(instance: InstanceType, kubelet: Mapping[str, Any] | None = None) -> Allocatable:
    """Returns the resources that pods can use on a node of this type. ``kubelet`` has fields of KubeletConfiguration.

    By default AL2023 reserves: of the guest's memory 255 MiB + 11 MiB per pod that the node may run, and the eviction threshold
    of 100 MiB; of the CPU 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest. The result then
    equals Karpenter's reference of instance types, so Karpenter starts a node for every request that fits. Settings replace these
    figures one by one (nodeadm merges them by key); values that are no quantities, e.g. unknown ones, change nothing.
    """
    settings = kubelet or {}
    millis, guest = instance.vcpus * 1000, instance.memory_mib * _GUEST_MEMORY
    cpu = sum((min(millis, end or millis) - start) * share // 10_000 for start, end, share in _CPU_SLICES if millis > start)
    kept_cpu = _kept(settings, "kubeReserved", "cpu", 1000, cpu) + _kept(settings, "systemReserved", "cpu", 1000, 0)
    kept_memory = (
        _kept(settings, "kubeReserved", "memory", 2**-20, 255 + 11 * instance.max_pods)
        + _kept(settings, "systemReserved", "memory", 2**-20, 0)
        + _kept(settings, "evictionHard", "memory.available", 2**-20, _EVICTION_MIB, whole=guest)
    )
    return Allocatable(int(millis - kept_cpu), int(guest - kept_memory), _pods(instance, settings))


def less(usable: Allocatable, cpu_millis: int, memory_mib: int) -> Allocatable:
    """Returns what remains of it."""
    left_cpu, left_memory = usable.cpu_millis - cpu_millis, usable.memory_mib - memory_mib
    return replace(usable, cpu_millis=max(left_cpu, 0), memory_mib=max(left_memory, 0))


def share(instance: InstanceType, devices: int, kubelet: Mapping[str, Any] | None = None) -> Allocatable:
    """Returns a pod's default size: the share of a node that goes with this many devices."""
    whole = less(allocatable(instance, kubelet), _LEFT_CPU_MILLIS, _LEFT_MEMORY_MIB)
    part = devices / instance.devices if instance.devices else 1
    return replace(whole, cpu_millis=int(whole.cpu_millis * part), memory_mib=int(whole.memory_mib * part))


def pod_size(
    instance: InstanceType,
    devices: int,
    *,
    cpu: str | None,
    memory: str | None,
    kubelet: Mapping[str, Any] | None = None,
    claimed: bool = False,
) -> dict[str, str]:
    """Returns requests and limits of a pod. CPU and memory default to a share of the node in proportion to the devices.

    ``claimed`` devices are not among them: the pod names claims instead (``claimed_devices.py``).
    """
    mine = share(instance, devices, kubelet)
    held = {DEVICE_RESOURCES[instance.accelerator]: str(devices)} if instance.accelerator and not claimed else {}
    return {
        "cpu": cpu or str(max(mine.cpu_millis // 1000, 1)),
        "memory": memory or f"{mine.memory_mib // 1024}Gi",
        **held,
    }


def kept_disk_gib(gib: float, kubelet: Mapping[str, Any]) -> float:
    """Returns what a disk of this size keeps from images and pods by these settings: reservations and a threshold."""
    reserved = sum(_kept(kubelet, section, "ephemeral-storage", 1 / 2**30, 0) for section in ("kubeReserved", "systemReserved"))
    free = (_kept(kubelet, "evictionHard", f"{one}.available", 1 / 2**30, 0, whole=gib) for one in ("nodefs", "imagefs"))
    return reserved + max(free)


def free_inodes(gib: float, kubelet: Mapping[str, Any]) -> int:
    """Returns what thresholds leave of the inodes of a disk with XFS.

    Source: mkfs.xfs(8): inodes of 512 bytes in at most 25 % of a disk below 1 TiB, 5 % of one below 50 TiB.
    """
    most = gib * 2**30 / 512 * (0.25 if gib < 1024 else 0.05)
    return int(most - max(_kept(kubelet, "evictionHard", f"{one}.inodesFree", 1, 0, whole=most) for one in ("nodefs", "imagefs")))


def _kept(settings: Mapping[str, Any], section: str, key: str, unit: float, default: float, *, whole: float = 0) -> float:
    given = settings.get(section)
    value = given.get(key) if isinstance(given, Mapping) else None
    if not isinstance(value, str) or not _AMOUNT.fullmatch(value):
        return default
    if value in ("0%", "100%"):  # the kubelet ignores such a threshold
        return 0
    return whole * float(value[:-1]) / 100 if value.endswith("%") else float(amount(value)) * unit


def _pods(instance: InstanceType, settings: Mapping[str, Any]) -> int:
    most, per_core = settings.get("maxPods"), settings.get("podsPerCore")
    limit = most if isinstance(most, int) and not isinstance(most, bool) else instance.max_pods
    return min(limit, per_core * instance.vcpus) if isinstance(per_core, int) and per_core else limit
