"""Settings given once for a whole stack that reach every resource: region, tags, permissions boundary, KMS key, mirrors."""

from pydantic import Field

from eks_inference.spec import MOST_ENTRIES, Arn, Reason, RuleId, Spec


class SharedSettings(Spec):
    """The settings of a stack file that every component needs."""

    tags: dict[str, str] = Field(
        default_factory=dict,
        max_length=MOST_ENTRIES,
        description="Tags of every AWS resource, including those that nodes create.",
    )
    permissions_boundary_arn: Arn | None = Field(default=None, description="Permissions boundary of every IAM role.")
    kms_key_arn: Arn | None = Field(default=None, description="KMS key for cluster secrets and volumes. Absent: AWS's own key.")
    mirrors: dict[str, str] = Field(
        default_factory=dict,
        description="Registry or chart repository → its replacement, e.g. public.ecr.aws: registry.corp.example/ecr-public. "
        "The longest match wins.",
    )
    protect: bool = Field(default=False, description="Protect the cluster, the VPC and everything that holds data from deletion.")
    silenced: dict[RuleId, Reason] = Field(
        default_factory=dict, description="Rules that do not stop this stack: id → reason, which the report shows."
    )


class StackSettings(SharedSettings):
    """Settings that all components of a stack share. A component reads them from its handle (``cluster.settings``)."""

    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$", description="AWS region, e.g. us-west-2.")
    profile: str | None = Field(default=None, description="AWS profile that kubectl and the kubeconfig use.")

    @property
    def partition(self) -> str:
        """ARN partition of the region (AWS General Reference, "ARN format")."""
        if self.region.startswith("cn-"):
            return "aws-cn"
        return "aws-us-gov" if self.region.startswith("us-gov-") else "aws"

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
