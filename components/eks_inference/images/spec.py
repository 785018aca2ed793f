"""Images of model servers: a reference to one that exists, or the recipe of one that is built in the cluster."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from eks_inference.images import dockerfile
from eks_inference.spec import Quantity, ResourceName, Spec


def _pinned(reference: str) -> str:
    name, at, digest = reference.partition("@")
    if at:
        if not digest.startswith("sha256:") or len(digest) != len("sha256:") + 64:
            raise ValueError(f"'{reference}' has no sha256 digest behind the @")
        return reference
    tag = name.rpartition("/")[2].partition(":")[2]
    if tag in ("", "latest"):
        raise ValueError(f"'{reference}' may change under a running server: give a tag other than latest, or a digest")
    return reference


PinnedImage = Annotated[
    str,
    Field(pattern=r"^[a-z0-9][^\s]*$"),
    AfterValidator(_pinned),
]
"""A container image reference with a tag other than ``latest``, or with a digest."""

RepositoryName = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9]+([._-][a-z0-9]+)*(/[a-z0-9]+([._-][a-z0-9]+)*)*$",
        min_length=2,
        max_length=256,
        description="Name of an ECR repository: lower-case words joined by . _ - or /.",
    ),
]

ContextFile = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$", max_length=253)]
"""A file name that is also a key of a ConfigMap."""

BuildArgument = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

CONTEXT_LIMIT_BYTES = 900 * 1024
"""What Dockerfile and files may come to: Kubernetes takes 1 MiB in one ConfigMap, names and metadata included."""


class InClusterImage(Spec):
    """An image that a Job in the cluster builds and pushes into an ECR repository of the stack.

    It is built anew when Dockerfile, files or build arguments change, and only then: the tag is a hash of these. What a build
    fetches by itself (packages without a version, say) is not part of it.
    """

    kind: Literal["in_cluster"] = Field(description="Build the image in the cluster.")
    dockerfile: str | None = Field(
        default=None,
        description="Text of the Dockerfile. Default: serving/assets/Dockerfile of this library: the engine's image plus Ray.",
    )
    files: dict[ContextFile, str] = Field(
        default_factory=dict, description="Text files that the Dockerfile can COPY, by name. At most 900 KiB with the Dockerfile."
    )
    build_args: dict[BuildArgument, str] = Field(
        default_factory=dict,
        description=(
            "Build arguments; the Dockerfile must declare them. Those whose names end in _IMAGE go through the mirrors. "
            "Everybody who can read the Job can read them: no secrets."
        ),
    )
    repository: RepositoryName | None = Field(
        default=None, description="Name of the ECR repository, made here. Default: <cluster>/<name of the component>."
    )
    keep_images: int = Field(default=10, ge=1, le=1000, description="Images the repository keeps; the oldest go first.")
    namespace: ResourceName | None = Field(
        default=None, description="Namespace of the build, made here. Default: the name of the component."
    )
    cpu: Quantity = Field(default="2", description="CPU the build asks for; it may use more.")
    memory: Quantity = Field(default="8Gi", description="Memory of the build, request and limit.")
    ephemeral_storage_gib: int = Field(
        default=100,
        ge=10,
        # What the largest root disk, 16384 GiB, leaves (plan.smallest_root_volume_gib).
        le=14700,
        description=(
            "Disk of the build, request and limit: layers of the base image, packed and unpacked, and what is added. A node of "
            "the pool it runs on must have that much to give, so a larger root disk."
        ),
    )
    timeout_minutes: int = Field(
        default=60, ge=5, le=660, description="How long the Job may take, node's image pulls and retries included."
    )

    @property
    def dockerfile_text(self) -> str:
        return dockerfile.own_dockerfile() if self.dockerfile is None else self.dockerfile

    @model_validator(mode="after")
    def _arguments_are_declared(self) -> Self:
        declared = dockerfile.arguments(self.dockerfile_text)
        unknown = sorted(self.build_args.keys() - declared.keys())
        if unknown:
            raise ValueError(
                f"build_args: the Dockerfile declares no ARG {', '.join(unknown)}; it declares: {', '.join(declared) or 'none'}"
            )
        return self

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        if not dockerfile.has_stage(self.dockerfile_text):
            raise ValueError("dockerfile: has no FROM; give the text of a Dockerfile, not the path to one")
        if dockerfile.NAME in self.files:
            raise ValueError("files: the Dockerfile goes into 'dockerfile'")
        size = sum(len(part.encode()) for entry in self.files.items() for part in entry) + len(self.dockerfile_text.encode())
        if size > CONTEXT_LIMIT_BYTES:
            raise ValueError(f"files: {size} bytes with the Dockerfile; at most {CONTEXT_LIMIT_BYTES} fit")
        return self


def _form(given: Any) -> str:
    return "reference" if isinstance(given, str) else "in_cluster"


ServerImage = Annotated[
    Annotated[PinnedImage, Tag("reference")] | Annotated[InClusterImage, Tag("in_cluster")],
    Discriminator(_form),
]
"""The image of a server: a pinned reference, or one that is built in the cluster."""
