"""What is given once for a whole stack and reaches every resource: region, tags, permissions boundary, KMS key, mirrors."""

from pydantic import Field

from eks_inference.spec import Arn, Reason, RuleId, Spec


class StackSettings(Spec):
    """Settings every component of a stack shares. A component reads them from the handle it stands on (``cluster.settings``).

    ``mirrors`` maps the beginning of an image or chart reference to what replaces it, e.g.
    ``{"public.ecr.aws": "registry.corp.example/ecr-public"}``; the longest match wins.
    """

    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$", description="AWS region, e.g. us-west-2.")
    profile: str | None = Field(default=None, description="AWS profile that kubectl and the kubeconfig use.")
    tags: dict[str, str] = Field(default_factory=dict, description="Tags of every AWS resource, also those that nodes make.")
    permissions_boundary_arn: Arn | None = Field(default=None, description="Permissions boundary of every IAM role.")
    kms_key_arn: Arn | None = Field(
        default=None, description="KMS key for cluster secrets and volumes; AWS's own key when absent."
    )
    mirrors: dict[str, str] = Field(default_factory=dict, description="Registry or chart repository → what replaces it.")
    protect: bool = Field(default=False, description="Refuse deletion of what holds data or everything else (cluster, VPC).")
    silenced: dict[RuleId, Reason] = Field(
        default_factory=dict, description="Rules that do not stop this stack: id → why, as the report then shows."
    )

    @property
    def partition(self) -> str:
        """The ARN partition of the region (AWS General Reference, "ARN format")."""
        if self.region.startswith("cn-"):
            return "aws-cn"
        return "aws-us-gov" if self.region.startswith("us-gov-") else "aws"

    def image(self, reference: str) -> str:
        """A container image reference, or its mirror."""
        return self._mirrored(reference)

    def chart(self, reference: str) -> str:
        """A chart reference (``oci://…``) or chart repository (``https://…``), or its mirror (OCI)."""
        plain = reference.removeprefix("oci://")
        mirrored = self._mirrored(plain)
        if mirrored == plain:
            return reference
        return mirrored if "://" in mirrored else f"oci://{mirrored}"

    def _mirrored(self, reference: str) -> str:
        matches = [prefix for prefix in self.mirrors if reference == prefix or reference.startswith(prefix.rstrip("/") + "/")]
        if not matches:
            return reference
        prefix = max(matches, key=len)
        return self.mirrors[prefix].rstrip("/") + reference[len(prefix.rstrip("/")) :]
