"""Plans the disks and the network interfaces of a pool's nodes. Pure; no pulumi."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eks_inference.catalog.instances import FAST_IMAGE_PULL, GP3, InstanceType
from eks_inference.faults import Fault, SpecError
from eks_inference.pools.node_spec import EfaLayout, EfaSpec
from eks_inference.pools.spec import PoolSpec

_DEFAULT_ROOT_GIB = 100
_DEFAULT_ACCELERATED_ROOT_GIB = 500  # the source systems' size: a Neuron image and a 70B checkpoint do not fit in 100


def root_volume_gib(spec: PoolSpec) -> int:
    """Returns the size of the root disk in GiB."""
    if spec.root_volume_gib is not None:
        return spec.root_volume_gib
    return _DEFAULT_ACCELERATED_ROOT_GIB if spec.instances()[0].accelerator else _DEFAULT_ROOT_GIB


def root_volume_mib_s(spec: PoolSpec) -> int:
    """Returns the throughput of the root disk in MiB/s.

    At EC2's own 125, 19 GB of a Neuron image and 26 GB of weights take six minutes to write, and at the default here 72 seconds.
    """
    if spec.root_volume_mib_s is not None:
        return spec.root_volume_mib_s
    loads_models = spec.instances()[0].accelerator and not all(instance.nvme_gb for instance in spec.instances())
    return FAST_IMAGE_PULL.mib_s if loads_models else GP3.least_mib_s


def root_volume_iops(spec: PoolSpec) -> int:
    """Returns the operations a second of the root disk."""
    return spec.root_volume_iops or max(GP3.least_iops, GP3.iops_per_mib_s * root_volume_mib_s(spec))


def paid_mib_s(spec: PoolSpec) -> int | None:
    """Returns the throughput to ask for, or None for the baseline of gp3.

    What every volume has is left out: a change of the launch template would replace the nodes of existing stacks for nothing.
    """
    throughput = root_volume_mib_s(spec)
    return throughput if throughput > GP3.least_mib_s else None


def paid_iops(spec: PoolSpec) -> int | None:
    """Returns the operations a second to ask for, like ``paid_mib_s``."""
    iops = root_volume_iops(spec)
    return iops if iops > GP3.least_iops else None


def has_local_disks(spec: PoolSpec) -> bool:
    """Returns whether any instance type of the pool has an instance store. nodeadm skips the RAID on types without one."""
    return any(instance.nvme_gb > 0 for instance in spec.instances())


def disk_gib(spec: PoolSpec) -> int:
    """Returns the size of the smallest disk that holds images and pods: local disks, or the root disk of a type without any."""
    return min(round(instance.nvme_gb * 1e9 / 2**30) or root_volume_gib(spec) for instance in spec.instances())


def image_disk_mib_s(spec: PoolSpec, instance: InstanceType) -> int | None:
    """Returns the throughput of the disk that holds images and what pods download; None: local disks, whose speed is unknown."""
    return None if instance.nvme_gb else min(root_volume_mib_s(spec), instance.ebs_mib_s)


def feature_gates(spec: PoolSpec) -> dict[str, Any]:
    """Returns the part of a NodeConfig that turns on parallel image pulls; empty where they are off."""
    return {"featureGates": {FAST_IMAGE_PULL.gate: True}} if spec.fast_image_pull else {}


# Every layout follows the rules of EC2: card 0, device 0 is the primary interface and is never efa-only; an efa-only interface
# has no IP address; each card carries one EFA; a card has at least two slots (ec2:DescribeInstanceTypes, of every type in the
# catalog). The cards that carry EFAs and IP interfaces differ by family: ``first_efa_card`` and ``ip_card_step`` in the catalog.
# Sources: EC2 user guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards"; for ``hybrid`` and
# ``all_efa`` the layouts of terraform-aws-eks v21 and of the Neuron project's node group template for Trn2.

InterfaceKind = Literal["efa", "efa-only", "interface"]
"""Interface types of EC2: an EFA with an IP address, an EFA without one, an IP address only."""


@dataclass(frozen=True)
class Interface:
    """A network interface: its network card, its slot on the card, and its type."""

    network_card: int
    device: int
    kind: InterfaceKind


_Slots = tuple[tuple[int, InterfaceKind], ...]
"""The interfaces of a card, as (device, kind)."""

_PLAIN: _Slots = ((0, "interface"),)
_IP_FIRST: _Slots = ((0, "interface"), (1, "efa-only"))

_LAYOUTS: Mapping[EfaLayout, tuple[_Slots, _Slots]] = {
    "hybrid": (((0, "efa"),), ((1, "efa-only"),)),
    "ip_optimized": (_IP_FIRST, ((0, "efa-only"),)),
    "bandwidth": (_IP_FIRST, ((0, "efa-only"), (1, "interface"))),
    "all_efa": (((0, "efa"),), ((1, "efa"),)),
}
"""Interfaces of the first card and of each other card."""


def interfaces(instance: InstanceType, efa: EfaSpec) -> tuple[Interface, ...]:
    """Returns the interfaces of a node, the primary one first. Raises like ``efa_count``."""
    first, others = _LAYOUTS[efa.layout]
    cards = [_PLAIN] * instance.first_efa_card + [others] * efa_count(instance, efa)
    if instance.first_efa_card == 0:
        cards[0] = first
    return tuple(
        Interface(card, device, kind)
        for card, slots in enumerate(cards)
        for device, kind in slots
        if kind != "interface" or card % instance.ip_card_step == 0
    )


def efa_count(instance: InstanceType, efa: EfaSpec) -> int:
    """Returns the number of EFA interfaces of a node: as specified, or all that the instance type offers.

    Raises ``SpecError`` when the type offers none, or fewer than specified.
    """
    offered = instance.efa_interfaces
    wanted = offered if efa.interfaces is None else efa.interfaces
    if offered == 0:
        message = f"{instance.name} has no EFA"
        raise SpecError([Fault(("efa",), message, hint="omit efa, or choose an instance type with EFA")])
    if wanted > offered:
        message = f"{instance.name} has fewer EFA interfaces"
        raise SpecError([Fault(("efa", "interfaces"), message, given=str(wanted), allowed=f"1 to {offered}")])
    return wanted
