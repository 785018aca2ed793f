"""Plans the network interfaces of a node in an EFA pool from its instance type and layout. Pure; no pulumi.

Every layout follows the rules of EC2: card 0, device 0 is the primary interface and is never efa-only; an efa-only interface has
no IP address; each card carries one EFA; a card has at least two slots (ec2:DescribeInstanceTypes, of every type in the catalog).
The cards that carry EFAs and IP interfaces differ by family: ``first_efa_card`` and ``ip_card_step`` in the catalog.
Sources: EC2 user guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards"; for ``hybrid`` and
``all_efa`` the layouts of terraform-aws-eks v21 and of the Neuron project's node group template for Trn2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from eks_inference.catalog.instances import InstanceType
from eks_inference.faults import Fault, SpecError
from eks_inference.pools.efa_spec import EfaLayout, EfaSpec

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
