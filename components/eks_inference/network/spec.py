"""Spec of a network: addresses, zones, NAT and endpoints."""

import operator
from ipaddress import IPv4Network
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from eks_inference.aws.iam import RetentionDays
from eks_inference.network.plan import (
    LARGEST_VPC,
    MIN_ZONES,
    SMALLEST_VPC,
    SMALLEST_VPC_WITH_LOAD_BALANCERS,
    has_room_for_load_balancers,
    vpc_range,
)
from eks_inference.specs.base import Form, Spec, ZoneId, distinct, follows
from eks_inference.specs.late import Late

Endpoint = Literal[
    "ec2",
    "ecr",
    "eks",
    "eks-auth",
    "elasticfilesystem",
    "elasticloadbalancing",
    "fsx",
    "logs",
    "monitoring",
    "s3",
    "sns",
    "sqs",
    "ssm",
    "sts",
]
"""A service with an endpoint in the VPC. ``s3`` is a gateway endpoint, free of charge; the others are interface endpoints, billed
per zone and hour. ``ecr`` stands for two services (``ecr.api``, ``ecr.dkr``)."""

WITHOUT_INTERNET: frozenset[Endpoint] = frozenset({"ec2", "ecr", "eks-auth", "s3"})
"""Endpoints that nodes need without a route to the internet: nodeadm and the VPC CNI call EC2, images come from ECR and S3, Pod
Identity calls EKS Auth (EKS user guide, "Deploy private clusters with limited internet access")."""


class FlowLogsSpec(Spec):
    """Flow logs of the VPC in CloudWatch Logs, which bills them by their size."""

    traffic: Literal["ACCEPT", "ALL", "REJECT"] = Field(
        default="REJECT",
        description="What is logged: refused traffic, or accepted traffic or all, which are much more.",
    )
    retention_days: RetentionDays = Field(default=30, description="Retention of the log lines.")


SubnetId = Annotated[Late, Form(r"subnet-[0-9a-f]{8,17}", "the id of a subnet, such as subnet-0a1b2c3d4e5f60718")]


class ExistingSubnetSpec(Spec):
    """An existing subnet and its range, by which NetworkPolicies admit the load balancer of a gateway that is in it."""

    id: SubnetId = Field(description="Id of the subnet.")
    cidr: Annotated[str, AfterValidator(lambda cidr: str(IPv4Network(cidr)))] = Field(description="Its range of addresses.")


ExistingSubnet = Annotated[
    Annotated[SubnetId, Tag("id")] | Annotated[ExistingSubnetSpec, Tag("range")],
    Discriminator(lambda given: "range" if isinstance(given, dict | ExistingSubnetSpec) else "id"),
]


class ExistingVpcSpec(Spec):
    """A VPC that is there, in which nothing is made or changed. Its subnets stand by their zones."""

    id: Annotated[Late, Form(r"vpc-[0-9a-f]{8,17}", "the id of a VPC, such as vpc-0a1b2c3d4e5f60718")] = Field(
        description="Id of the VPC."
    )
    private_subnets: dict[ZoneId, ExistingSubnet] = Field(
        min_length=MIN_ZONES,
        description="Subnets for nodes and pods by zone, also from a secondary range of the VPC, such as 100.64.0.0/16. An "
        "internal gateway needs their ranges: {usw2-az1: {id: subnet-0a1b2c3d4e5f60718, cidr: 10.0.0.0/20}}.",
    )
    public_subnets: dict[ZoneId, ExistingSubnet] = Field(
        default_factory=dict, description="Subnets of internet-facing load balancers by zone, with their ranges."
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        subnets = [*self.private_subnets.values(), *self.public_subnets.values()]
        ids = [subnet.id if isinstance(subnet, ExistingSubnetSpec) else subnet for subnet in subnets]
        distinct(tuple(one for one in ids if isinstance(one, str)))
        return self


class NetworkSpec(Spec):
    """A VPC with one private and, optionally, one public subnet in each of its zones. ``plan.py`` assigns their addresses.

    Zones are given by id, because a name such as ``us-west-2a`` means a different data centre in every account, and only some
    data centres have accelerators.
    """

    cidr: Annotated[str, AfterValidator(lambda cidr: str(vpc_range(cidr)))] = Field(
        default="10.1.0.0/16",
        description=f"Address range of the VPC, /{LARGEST_VPC} to /{SMALLEST_VPC}. Each private subnet gets an eighth of it.",
    )
    zone_ids: Annotated[tuple[ZoneId, ...], AfterValidator(distinct)] = Field(
        default=(), description="The zones to span; a single NAT gateway is in the first. Absent: chosen from the catalog."
    )
    zones: int | None = Field(
        default=None,
        ge=MIN_ZONES,
        # No region has more zones that an EKS control plane accepts (catalog/zones.toml).
        le=5,
        description="How many zones to choose from the catalog, by the instance families in use. Absent: 3, or all.",
    )
    public_subnets: bool = Field(default=True, description="Public subnets, for NAT gateways and internet-facing load balancers.")
    nat: Literal["single", "per_zone", "none"] = Field(
        default="single",
        description=(
            "How private subnets reach the internet: 'single' (one NAT gateway in the first zone; cheap, but lost with it), "
            "'per_zone' (one NAT gateway in each zone), 'none' (no internet access, only endpoints and mirrors)."
        ),
    )
    endpoints: Annotated[tuple[Endpoint, ...], AfterValidator(distinct)] = Field(
        default=("s3",), description="Services with an endpoint in the VPC. 'ecr' needs 's3', which stores the image layers."
    )

    load_balancer_subnets: bool = Field(
        default=False,
        exclude_if=operator.not_,
        json_schema_extra=follows,
        description="Subnets that hold internal load balancers and nothing else, so that NetworkPolicies can tell their "
        f"addresses from those of pods. Needs a range of /{SMALLEST_VPC_WITH_LOAD_BALANCERS} or larger. Absent: true with an "
        "internal gateway in such a range.",
    )
    flow_logs: FlowLogsSpec | None = Field(default=None, description="Log of the traffic in the VPC. Absent: none.")
    existing: ExistingVpcSpec | None = Field(
        default=None,
        description="A VPC that is there, instead of a new one. cidr is then its range, and nat says no more than whether its "
        "private subnets reach the internet.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.existing:
            return self._of_existing(self.existing)
        if self.zone_ids and self.zones is not None:
            raise ValueError("give zone_ids or zones, not both")
        if self.nat != "none" and not self.public_subnets:
            raise ValueError(f"nat '{self.nat}' needs a public subnet for its gateway: set public_subnets, or nat to 'none'")
        if "ecr" in self.endpoints and "s3" not in self.endpoints:
            raise ValueError("endpoint 'ecr' also needs 's3': image layers come from S3")
        if self.load_balancer_subnets and not has_room_for_load_balancers(self.cidr):
            needed = f"/{SMALLEST_VPC_WITH_LOAD_BALANCERS}"
            raise ValueError(f"load_balancer_subnets: {self.cidr} has no room for them: they need a range of {needed} or larger")
        missing = sorted(WITHOUT_INTERNET - set(self.endpoints))
        if self.nat == "none" and missing:
            raise ValueError(f"without NAT no node can join the cluster: add the endpoints {', '.join(missing)}")
        return self

    def _of_existing(self, existing: ExistingVpcSpec) -> Self:
        """What others ask of a network follows from the subnets of an existing one (stack/defaults.py)."""
        given = [key for key in ("zones", "load_balancer_subnets", "flow_logs") if getattr(self, key)]
        given += ["endpoints"] if self.endpoints not in ((), ("s3",)) else []
        given += ["zone_ids"] if self.zone_ids != tuple(existing.private_subnets) else []
        given += ["public_subnets"] if self.public_subnets != bool(existing.public_subnets) else []
        if given:
            raise ValueError(f"{', '.join(given)}: of a new VPC only; leave out this, or existing")
        return self
