"""The settings of images: a reference to an existing image, or a recipe for one that is built in the cluster."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from eks_inference.images import dockerfile
from eks_inference.specs.base import Cpu, Memory, Namespace, Spec, stated


def _pinned(reference: str) -> str:
    name, at, digest = reference.partition("@")
    if at:
        if not digest.startswith("sha256:") or len(digest) != len("sha256:") + 64:
            raise ValueError(f"'{reference}' has no sha256 digest after the @")
        return reference
    tag = name.rpartition("/")[2].partition(":")[2]
    if tag in ("", "latest", "nightly"):
        raise ValueError(f"'{reference}' may change under a running server: give a tag other than {tag or 'latest'}, or a digest")
    return reference


PinnedImage = Annotated[
    str,
    Field(pattern=r"^[a-z0-9][^\s]*$"),
    AfterValidator(_pinned),
]
"""A container image reference with a tag other than ``latest`` and ``nightly``, or with a digest."""

RepositoryName = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$",
        min_length=2,
        max_length=256,
        description="Name of an ECR repository: lower-case words joined by . _ - or /.",
    ),
]

ContextFile = Annotated[str, Field(pattern=r"^\.?[A-Za-z0-9_-][A-Za-z0-9._-]*$", max_length=253)]
"""A file name that is also valid as a key of a ConfigMap."""

BuildArgument = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

CONTEXT_LIMIT_BYTES = 900 * 1024
"""Limit for Dockerfile and files together: Kubernetes allows 1 MiB per ConfigMap, including names and metadata."""


class InClusterImage(Spec):
    """An image that a Job in the cluster builds and pushes into an ECR repository of the stack.

    A change of Dockerfile, files or build arguments builds it again, and nothing else does: the tag is a hash of these. The
    hash does not cover downloads of the build (e.g. packages without a version).
    """

    kind: Literal["in_cluster"] = Field(
        default="in_cluster", json_schema_extra=stated, description="Build the image in the cluster."
    )
    dockerfile: str | None = Field(
        default=None,
        description="Text of the Dockerfile. Default: images/assets/Dockerfile of this library, the engine's image plus Ray.",
    )
    files: dict[ContextFile, str] = Field(
        default_factory=dict,
        description="Text files by name, which the Dockerfile can COPY. At most 900 KiB with the Dockerfile.",
    )
    build_args: dict[BuildArgument, str] = Field(
        default_factory=dict,
        description=(
            "Build arguments, which the Dockerfile must declare. Values of names that end in _IMAGE go through the mirrors. "
            "They must not be secrets: anyone who can read the Job can read them."
        ),
    )
    repository: RepositoryName | None = Field(
        default=None, description="ECR repository to create. Default: <cluster>/<component>."
    )
    keep_images: int = Field(default=10, ge=1, le=1000, description="Images that the repository keeps. The oldest expire first.")
    namespace: Namespace | None = Field(default=None, description="Namespace to create. Default: the component's name.")
    cpu: Cpu = Field(default="2", description="CPU request of the build, which may use more.")
    memory: Memory = Field(default="8Gi", description="Memory request and limit of the build.")
    ephemeral_storage_gib: int = Field(
        default=100,
        ge=10,
        # The most that the largest root disk, 16384 GiB, has room for (plan.smallest_root_volume_gib).
        le=14700,
        description=(
            "Ephemeral storage request and limit of the build: layers of the base image, packed and unpacked, and added files. "
            "The nodes of its pool need a root disk that is larger than this."
        ),
    )
    timeout_minutes: int = Field(default=60, ge=5, le=660, description="Time limit of the Job including image pulls and retries.")

    @property
    def dockerfile_text(self) -> str:
        return dockerfile.own_dockerfile() if self.dockerfile is None else self.dockerfile

    @model_validator(mode="after")
    def _arguments_are_declared(self) -> Self:
        declared = dockerfile.arguments(self.dockerfile_text)
        if unknown := sorted(self.build_args.keys() - declared.keys()):
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
            raise ValueError(f"files: {size} bytes with the Dockerfile; the limit is {CONTEXT_LIMIT_BYTES}")
        return self


ServerImage = Annotated[
    Annotated[PinnedImage, Tag("reference")] | Annotated[InClusterImage, Tag("in_cluster")],
    Discriminator(lambda given: "reference" if isinstance(given, str) else "in_cluster"),
]
"""The image of a server: a pinned reference, or a recipe that is built in the cluster."""
