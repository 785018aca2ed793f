"""Specs of EFA interfaces and of placement groups."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from eks_inference.late import Late
from eks_inference.spec import Form, Spec

EfaLayout = Literal["hybrid", "ip_optimized", "bandwidth", "all_efa"]


class EfaSpec(Spec):
    """Elastic Fabric Adapter: network interfaces with direct access to the device memory of other nodes in the zone.

    Sources: EC2 user guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards"; terraform-aws-eks
    and pulumi-eks, which both use hybrid.
    """

    layout: EfaLayout = Field(
        default="hybrid",
        description="Interfaces of the network cards. hybrid: an EFA with an IP address on the first card, EFAs without one on "
        "the others. ip_optimized: a plain primary interface and EFAs without addresses. bandwidth: like ip_optimized, with "
        "plain interfaces on the other cards too. all_efa: EFAs with one VPC address each on all cards. Where a card has only "
        "two slots (Trn2, P5), ip_optimized and bandwidth leave pods the addresses of one interface, about 50: set "
        "kubelet.maxPods.",
    )
    interfaces: int | None = Field(
        default=None,
        ge=1,
        description="EFA interfaces per node, one per network card. Default: all that the instance type offers.",
    )


PlacementGroupName = Annotated[Late, Form(r"[ -~]{1,255}", "the name of a placement group: 1 to 255 ASCII characters")]


class ExistingPlacementGroup(Spec):
    """An existing placement group, for example one created together with a reservation."""

    name: PlacementGroupName = Field(description="Name of the placement group, in ASCII.")


def _placement_form(given: Any) -> str:
    return "existing" if isinstance(given, dict | ExistingPlacementGroup) else "chosen"


PlacementGroupChoice = Annotated[
    Annotated[Literal["auto", "none"], Tag("chosen")] | Annotated[ExistingPlacementGroup, Tag("existing")],
    Discriminator(_placement_form),
]
