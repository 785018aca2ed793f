"""Which network interfaces a node of an EFA pool starts with: instance type and layout in, interfaces out.

Rules of EC2 that every layout keeps: card 0, device 0 is the primary interface and is never efa-only; an efa-only interface has
no IP address; each card carries one EFA; a card has two slots at least (ec2:DescribeInstanceTypes, of every type in the catalog).
Which cards carry EFAs and IP interfaces differs by family: ``first_efa_card`` and ``ip_card_step`` of the catalog.
Sources: EC2 user guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards"; for ``hybrid`` and
``all_efa`` the layouts of terraform-aws-eks v21 and of the Neuron project's node group template for Trn2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from eks_inference.catalog.instances import InstanceType
from eks_inference.faults import Fault, SpecError
from eks_inference.pools.spec import EfaLayout, EfaSpec

InterfaceKind = Literal["efa", "efa-only", "interface"]
"""EC2's interface types: an EFA with an IP address, an EFA alone, an IP address alone."""


@dataclass(frozen=True)
class Interface:
    """One network interface: the card it is on, its slot there, and what it is."""

    network_card: int
    device: int
    kind: InterfaceKind

    @property
    def is_efa(self) -> bool:
        return self.kind != "interface"


_Slots = tuple[tuple[int, InterfaceKind], ...]
"""What stands in the slots of a card, as (device, kind)."""


@dataclass(frozen=True)
class _Layout:
    """What the cards of a node carry."""

    first_card: _Slots
    other_cards: _Slots


_PLAIN: _Slots = ((0, "interface"),)
_IP_FIRST: _Slots = ((0, "interface"), (1, "efa-only"))

_LAYOUTS: Mapping[EfaLayout, _Layout] = {
    "hybrid": _Layout(((0, "efa"),), ((1, "efa-only"),)),
    "ip_optimized": _Layout(_IP_FIRST, ((0, "efa-only"),)),
    "bandwidth": _Layout(_IP_FIRST, ((0, "efa-only"), (1, "interface"))),
    "all_efa": _Layout(((0, "efa"),), ((1, "efa"),)),
}


def interfaces(instance: InstanceType, efa: EfaSpec) -> tuple[Interface, ...]:
    """The interfaces of a node, primary one first. Raises as ``efa_count``."""
    layout, cards = _LAYOUTS[efa.layout], instance.first_efa_card + efa_count(instance, efa)
    return tuple(
        Interface(card, device, kind)
        for card in range(cards)
        for device, kind in _slots(instance, layout, card)
        if kind != "interface" or card % instance.ip_card_step == 0
    )


def _slots(instance: InstanceType, layout: _Layout, card: int) -> _Slots:
    if card < instance.first_efa_card:
        return _PLAIN
    return layout.other_cards if card else layout.first_card


def efa_count(instance: InstanceType, efa: EfaSpec) -> int:
    """How many EFA interfaces a node has: those asked for, or all that the instance type offers.

    Raises ``SpecError`` when the type offers none, or fewer than asked for.
    """
    offered = instance.efa_interfaces
    wanted = offered if efa.interfaces is None else efa.interfaces
    if offered == 0:
        message = f"{instance.name} has no EFA"
        raise SpecError([Fault(("efa",), message, hint="leave efa out, or choose an instance type that offers it")])
    if wanted > offered:
        message = f"{instance.name} has fewer EFA interfaces"
        raise SpecError([Fault(("efa", "interfaces"), message, given=str(wanted), allowed=f"1 to {offered}")])
    return wanted
