"""What a user decides about a network: its addresses, its zones and its ways out."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from eks_inference.network.plan import LARGEST_VPC, MIN_ZONES, SMALLEST_VPC, vpc_range
from eks_inference.spec import Spec, ZoneId

Endpoint = Literal["ec2", "ecr", "eks", "eks-auth", "elasticloadbalancing", "logs", "monitoring", "s3", "sqs", "ssm", "sts"]
"""A service reached inside the VPC. ``s3`` is a gateway endpoint, free of charge; the others are interface endpoints, billed by
zone and hour. ``ecr`` stands for its two (``ecr.api``, ``ecr.dkr``)."""

WITHOUT_INTERNET: frozenset[Endpoint] = frozenset({"ec2", "ecr", "eks-auth", "s3"})
"""What a node cannot do without when nothing leads to the internet: nodeadm and the VPC CNI call EC2, images come from ECR and
S3, Pod Identity asks EKS Auth (EKS user guide, "Deploy private clusters with limited internet access")."""


def _vpc_range(cidr: str) -> str:
    return str(vpc_range(cidr))


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise ValueError(f"given more than once: {', '.join(twice)}")
    return values


class NetworkSpec(Spec):
    """A VPC with one private and, if wanted, one public subnet in each of its zones. ``plan.py`` says which addresses each gets.

    Zones are named by id because the letter in ``us-west-2a`` means another building in every account, while accelerators
    exist in certain buildings only.
    """

    cidr: Annotated[str, AfterValidator(_vpc_range)] = Field(
        default="10.1.0.0/16",
        description=f"Address range of the VPC, /{LARGEST_VPC} to /{SMALLEST_VPC}. Each zone gets an eighth of it for its pods.",
    )
    zone_ids: Annotated[tuple[ZoneId, ...], AfterValidator(_distinct)] = Field(
        default=(), description="The zones to span, the one for a single NAT gateway first. Absent: taken from the catalog."
    )
    zones: int | None = Field(
        default=None,
        ge=MIN_ZONES,
        # No region has more that an EKS control plane takes (catalog/zones.toml).
        le=5,
        description="How many zones to take from the catalog: those that offer the instance families in use. Absent: 3, or all.",
    )
    public_subnets: bool = Field(default=True, description="Public subnets, for NAT gateways and internet-facing load balancers.")
    nat: Literal["single", "per_zone", "none"] = Field(
        default="single",
        description=(
            "How private subnets reach the internet: 'single' (one NAT gateway; cheap, and lost with its zone), "
            "'per_zone' (one in each zone), 'none' (not at all; endpoints and mirrors have to serve)."
        ),
    )
    endpoints: Annotated[tuple[Endpoint, ...], AfterValidator(_distinct)] = Field(
        default=("s3",), description="Services reached inside the VPC. 'ecr' needs 's3', where image layers are."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.zone_ids and self.zones is not None:
            raise ValueError("give zone_ids or zones, not both")
        if self.nat != "none" and not self.public_subnets:
            raise ValueError(f"nat '{self.nat}' puts its gateway in a public subnet: set public_subnets, or nat to 'none'")
        if "ecr" in self.endpoints and "s3" not in self.endpoints:
            raise ValueError("endpoint 'ecr' needs 's3' beside it: image layers are fetched from S3")
        missing = sorted(WITHOUT_INTERNET - set(self.endpoints))
        if self.nat == "none" and missing:
            raise ValueError(f"without NAT no node could join: add the endpoints {', '.join(missing)}")
        return self
