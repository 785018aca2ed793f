"""The interface of a network for clusters and nodes, created here or existing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import pulumi
from pydantic import AfterValidator

from eks_inference.component import Handle
from eks_inference.network.plan import address_block
from eks_inference.network.spec import ExistingSubnetSpec, ExistingVpcSpec
from eks_inference.specs.base import ZoneId


@dataclass(frozen=True)
class Subnet(Handle):
    """A subnet: the id of its zone (``usw2-az4``, the same in every account, unlike ``us-west-2a``) and its own id.

    ``cidr`` is its range of addresses, which the subnets of a gateway's load balancer need.
    """

    zone_id: ZoneId
    id: pulumi.Input[str]
    cidr: Annotated[str, AfterValidator(address_block)] | None = None


class Network(Protocol):
    """A VPC, created by ``Vpc`` or described by ``ExistingVpc``."""

    @property
    def vpc_id(self) -> pulumi.Input[str]: ...
    @property
    def private_subnets(self) -> Sequence[Subnet]: ...
    @property
    def public_subnets(self) -> Sequence[Subnet]: ...
    @property
    def load_balancer_subnets(self) -> Sequence[Subnet]:
        """Private subnets that hold internal load balancers and nothing else; empty: there are none."""
        ...

    @property
    def isolated(self) -> bool:
        """Whether the private subnets have no route to the internet, so that nodes reach only endpoints of the VPC."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """Resources that must exist before a node can reach the internet, and must outlive it: routes and their associations."""
        ...


def existing_vpc(spec: ExistingVpcSpec, *, isolated: bool) -> ExistingVpc:
    """Returns the handle of a VPC that a stack file names."""
    private, public = (
        [
            Subnet(zone, one.id, one.cidr) if isinstance(one, ExistingSubnetSpec) else Subnet(zone, one)
            for zone, one in given.items()
        ]
        for given in (spec.private_subnets, spec.public_subnets)
    )
    return ExistingVpc(spec.id, private, public, isolated)


@dataclass(frozen=True)
class ExistingVpc(Handle):
    """An existing VPC. Its private subnets need a route out: to the internet, or ``isolated``, only to endpoints and mirrors.

    ``public_subnets`` may be empty.
    """

    vpc_id: pulumi.Input[str]
    private_subnets: Sequence[Subnet]
    public_subnets: Sequence[Subnet] = ()
    isolated: bool = False
    ready: Sequence[pulumi.Resource] = ()
    load_balancer_subnets: Sequence[Subnet] = ()
