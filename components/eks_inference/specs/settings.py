"""Settings given once for a whole stack that reach every resource: region, tags, permissions boundary, KMS key, mirrors."""

import re
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from eks_inference.catalog.zones import regions
from eks_inference.faults import Fault, did_you_mean
from eks_inference.specs.base import MOST_ENTRIES, KmsKeyArn, PolicyArn, Reason, RuleId, Spec
from eks_inference.specs.late import Late
from eks_inference.specs.project_files import aws_setting

# distribution/reference, grammar: domain, port and path of a repository.
_WORDS = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REGISTRY = rf"{_WORDS}(:\d+)?(/{_WORDS})*/?"

_DIRECTION = "(north|south)?(east|west)|north|south|central"
REGION = re.compile(rf"[a-z]{{2,4}}(-(gov|iso[a-z]?|[a-z]{{2}}))?-({_DIRECTION})-\d")
"""How AWS names regions. New ones need no row of the catalog."""

_APART = ("cn-", "us-gov-")
"""Regions of other partitions, which the catalog lacks (AWS General Reference, "ARN format")."""

_OF_UNKNOWN_PARTITIONS = ("eusc-", "us-iso", "eu-iso")
"""Regions of the sovereign and the isolated partitions: ARNs and service names built here would be wrong there."""


def partition_of(region: str) -> str:
    """ARN partition of a region (AWS General Reference, "ARN format")."""
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


def region_fault(region: str, *, in_catalog: bool = False) -> Fault | None:
    """Returns what is wrong with the name of a region. With ``in_catalog`` the region's zones have to be known as well."""
    if region.startswith(_OF_UNKNOWN_PARTITIONS):
        return Fault(("region",), "this library does not know the partition of this region", region, ", ".join(regions()))
    is_known = region in regions() or region.startswith(_APART) or not in_catalog
    if REGION.fullmatch(region) and is_known:
        return None
    message = "the catalog has no zones for this region" if REGION.fullmatch(region) else "no AWS region has this name"
    return Fault(("region",), message, region, ", ".join(regions()), did_you_mean(region, regions()))


def _named_like_a_region(region: str) -> str:
    if not region:
        raise ValueError("the region is missing: set aws:region of the stack, or give region=")
    if fault := region_fault(region):
        raise ValueError("; ".join(filter(None, (fault.message, fault.hint))))
    return region


class SharedSettings(Spec):
    """The settings of a stack file that every component needs."""

    tags: dict[str, Late] = Field(
        default_factory=dict,
        max_length=MOST_ENTRIES,
        description="Tags of every AWS resource, including those that nodes create.",
    )
    permissions_boundary_arn: PolicyArn | None = Field(default=None, description="Permissions boundary of every IAM role.")
    kms_key_arn: KmsKeyArn | None = Field(
        default=None, description="KMS key for cluster secrets and volumes. Absent: AWS's own key."
    )
    mirrors: dict[str, str] = Field(
        default_factory=dict,
        description="Registry or chart repository → its replacement, e.g. public.ecr.aws: registry.corp.example/ecr-public. "
        "The longest match wins. Charts from a private registry need `helm registry login` where `pulumi up` runs. Without a "
        "mirror, nodes behind one NAT gateway share what docker.io grants an address: 100 pulls in six hours.",
    )
    protect: bool = Field(default=False, description="Protect the cluster, the VPC and everything that holds data from deletion.")
    retain: bool = Field(
        default=False,
        description="Keep buckets and EFS file systems, which hold weights and compiled graphs, when the stack is destroyed. "
        "They go on costing, and the next stack of this name makes new ones. FSx for Lustre cannot be kept.",
    )
    silenced: dict[RuleId, Reason] = Field(
        default_factory=dict, description="Rules that do not stop this stack: id → reason, which the report shows."
    )

    @field_validator("mirrors")
    @classmethod
    def _are_registries(cls, mirrors: dict[str, str]) -> dict[str, str]:
        for registry, mirror in mirrors.items():
            for name, url in ((registry, True), (mirror, registry.startswith("https://"))):
                if not re.fullmatch(_REGISTRY, name.removeprefix("https://") if url else name):
                    form = "a registry such as registry.corp.example/ecr-public, in lower case and without a scheme"
                    also = "; that of a chart repository may begin with https://" if url else ""
                    raise ValueError(f"{registry!r}: {mirror!r}: {name!r} is not {form}{also}: images would have no valid name")
        return mirrors


class StackSettings(SharedSettings):
    """Settings that all components of a stack share. A component reads them from its handle (``cluster.settings``)."""

    region: Annotated[str, AfterValidator(_named_like_a_region)] = Field(
        default_factory=lambda: aws_setting("region") or "",
        validate_default=True,
        description="AWS region, e.g. us-west-2. Default: aws:region of the running program.",
    )
    profile: str | None = Field(
        default_factory=partial(aws_setting, "profile"),
        description="AWS profile that kubectl and the kubeconfig use. Default: aws:profile of the running program.",
    )

    @property
    def partition(self) -> str:
        """ARN partition of the region."""
        return partition_of(self.region)

    def image(self, reference: str) -> str:
        """Returns a container image reference, with a mirrored registry replaced."""
        matches = [prefix for prefix in self.mirrors if reference == prefix or reference.startswith(prefix.rstrip("/") + "/")]
        if not matches:
            return reference
        prefix = max(matches, key=len)
        return self.mirrors[prefix].rstrip("/") + reference[len(prefix.rstrip("/")) :]

    def chart(self, reference: str) -> str:
        """Returns a chart reference (``oci://…``) or chart repository (``https://…``), or its OCI mirror."""
        plain = reference.removeprefix("oci://")
        mirrored = self.image(plain)
        if mirrored == plain:
            return reference
        return mirrored if "://" in mirrored else f"oci://{mirrored}"
