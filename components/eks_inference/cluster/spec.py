"""Spec of a cluster: version, endpoint access, administrators and add-ons."""

import ipaddress
import re
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from eks_inference.aws.iam import RetentionDays
from eks_inference.network.plan import address_block
from eks_inference.specs.base import Form, Spec, listed, repeated
from eks_inference.specs.late import Late

Version = Literal["1.33", "1.34", "1.35", "1.36"]
LogType = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]
NodelessAddon = Literal["vpc-cni", "kube-proxy", "eks-pod-identity-agent"]
"""Add-ons with DaemonSets only: EKS reports them active without a node, and nodes need them to become ready."""
NodeAddon = Literal["coredns", "aws-ebs-csi-driver", "metrics-server"]
"""Add-ons with Deployments: EKS reports them degraded until a node can run their pods."""

_VERSIONS: tuple[str, ...] = get_args(Version)
# EKS user guide, "Create an Amazon EKS cluster": serviceIpv4Cidr.
_SERVICE_RANGES = tuple(ipaddress.IPv4Network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))


def _supported(value: Any) -> Any:
    """Refuses a version with a reason, which a list of allowed values would lack."""
    if isinstance(value, float | int):
        raise ValueError(f"write the version in quotes: the number {value} does not distinguish 1.3 from 1.30")
    match = re.fullmatch(r"1\.(\d+)", value) if isinstance(value, str) else None
    if match is None or value in _VERSIONS:
        return value
    allowed = f"choose one of {', '.join(_VERSIONS)}"
    if int(match[1]) < int(_VERSIONS[0].removeprefix("1.")):
        raise ValueError(
            f"Kubernetes {value} dates from Amazon Linux 2 (EKS published AL2 images up to 1.32); nodes here run AL2023 only, "
            f"and no add-on, node image or scheduler version is pinned for it; {allowed}"
        )
    raise ValueError(f"no add-on, node image or scheduler version is pinned for Kubernetes {value} yet; {allowed}")


# EKS refuses an API server's allow list with addresses that never come from the internet (IANA, IPv4 special-purpose addresses).
_NOT_PUBLIC = tuple(
    ipaddress.IPv4Network(block)
    for block in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
        *("224.0.0.0/4", "240.0.0.0/4"),
    )
)


def _public_block(value: str) -> str:
    block = ipaddress.ip_network(address_block(value))
    if not isinstance(block, ipaddress.IPv4Network):
        raise ValueError(
            f"{value} is a block of IPv6 addresses, which EKS takes only for clusters of IPv6 pods: give IPv4 blocks"
        )
    if block.prefixlen and any(block.subnet_of(outer) for outer in _NOT_PUBLIC):
        raise ValueError(
            f"{value} is not public: the public endpoint cannot be reached from there, and EKS refuses it; give addresses that "
            "your network has on the internet, or use the private endpoint"
        )
    return value


def _service_block(value: str) -> str:
    block = ipaddress.ip_network(address_block(value))
    private = isinstance(block, ipaddress.IPv4Network) and any(block.subnet_of(outer) for outer in _SERVICE_RANGES)
    if not private or not 12 <= block.prefixlen <= 24:
        ranges = ", ".join(map(str, _SERVICE_RANGES))
        raise ValueError(f"{value} is not valid for services: EKS requires a block of /12 to /24 within {ranges}")
    return value


SupportedVersion = Annotated[Version, BeforeValidator(_supported), Field(json_schema_extra=listed("KubernetesVersion"))]
PublicCidr = Annotated[str, AfterValidator(_public_block), Field(description="An address block, e.g. 203.0.113.0/24.")]
ServiceCidr = Annotated[str, AfterValidator(_service_block)]
PrincipalArn = Annotated[
    Late,
    Form(
        r"arn:aws[a-z-]*:iam::\d{12}:(role|user)/[\w+=,.@/-]+",
        "the ARN of an IAM role or user (arn:aws:iam::<account>:role/<path and name>); for a session "
        "(arn:aws:sts::…:assumed-role/…) give the role, with its path",
    ),
]
AddonVersion = Annotated[str, Form(r"v\d+\.\d+\.\d+-eksbuild\.\d+", "the version of an EKS add-on, such as v1.21.1-eksbuild.1")]


class EndpointAccess(Spec):
    """Access to the Kubernetes API. By default only from the VPC: run `pulumi up` and kubectl inside it or through a VPN."""

    private: bool = Field(
        default=True,
        description="API reachable inside the VPC. Without it, nodes reach the API through NAT, so public_access_cidrs must "
        "include the NAT addresses.",
    )
    public: bool = Field(default=False, description="API reachable from the internet, only by public_access_cidrs.")
    public_access_cidrs: tuple[PublicCidr, ...] = Field(
        default=(),
        max_length=40,
        description="Address blocks that may reach the public endpoint. 0.0.0.0/0 opens it to the whole internet.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.private and not self.public:
            raise ValueError("nothing could reach the API: set private or public to true")
        if self.public and not self.public_access_cidrs:
            raise ValueError("a public endpoint needs public_access_cidrs; write 0.0.0.0/0 to allow the whole internet")
        if self.public_access_cidrs and not self.public:
            raise ValueError("public_access_cidrs has no effect without public: true, and EKS refuses the combination")
        return self


class ClusterSpec(Spec):
    """The control plane and the add-ons that nodes need before they can join. The cluster has the component's name."""

    version: SupportedVersion = Field(default="1.35", description="Kubernetes minor version, in quotes.")
    endpoint: EndpointAccess = Field(default_factory=lambda: EndpointAccess(), description="Access to the Kubernetes API.")
    admins: tuple[PrincipalArn, ...] = Field(
        default=(),
        description="IAM roles and users of people and CI with AmazonEKSClusterAdminPolicy. Omit the principal that creates the "
        "cluster: EKS gives it an access entry and refuses a second one.",
    )
    viewers: tuple[PrincipalArn, ...] = Field(
        default=(), description="IAM roles and users with AmazonEKSViewPolicy (no Secrets)."
    )
    log_types: tuple[LogType, ...] = Field(
        default=get_args(LogType), description="Control plane logs in CloudWatch, log group /aws/eks/<cluster>/cluster."
    )
    log_retention_days: RetentionDays = Field(
        default=30, description="Retention of that log group; created and deleted with the stack."
    )
    service_cidr: ServiceCidr = Field(
        default="172.20.0.0/16",
        description="Address range of Kubernetes services; must not overlap the VPC. It cannot change once the cluster exists.",
    )
    create_oidc_provider: bool = Field(
        default=False,
        description="IAM OIDC provider for software that cannot use Pod Identity. `pulumi preview` then fetches a thumbprint "
        "over HTTPS.",
    )
    addon_versions: dict[NodelessAddon, AddonVersion] = Field(
        default_factory=dict, description="Add-on version instead of the pinned one, e.g. vpc-cni: v1.21.1-eksbuild.1."
    )
    addon_configuration: dict[NodelessAddon, dict[str, Any]] = Field(
        default_factory=dict,
        description="Configuration values beside ours, which they cannot replace; keys as `aws eks "
        "describe-addon-configuration` lists them.",
    )

    @model_validator(mode="after")
    def _one_entry_per_principal(self) -> Self:
        if twice := repeated(arn for arn in (*self.admins, *self.viewers) if isinstance(arn, str)):
            raise ValueError(f"EKS allows one access entry per principal; repeated in admins and viewers: {', '.join(twice)}")
        return self


class ClusterAddonsSpec(Spec):
    """The add-ons that need a node to run on: CoreDNS, the EBS CSI driver and metrics-server."""

    addon_versions: dict[NodeAddon, AddonVersion] = Field(
        default_factory=dict, description="Add-on version instead of the pinned one, e.g. coredns: v1.13.1-eksbuild.1."
    )
    addon_configuration: dict[NodeAddon, dict[str, Any]] = Field(
        default_factory=dict,
        description="Configuration values beside ours, which they cannot replace; keys as `aws eks "
        "describe-addon-configuration` lists them.",
    )
