"""What specs of all model servers share."""

from typing import Annotated

from pydantic import AfterValidator, Field

from eks_inference.spec import Spec


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


class HubModel(Spec):
    """A model on the Hugging Face Hub."""

    id: str = Field(
        pattern=r"^[\w.-]+/[\w.-]+$",
        description="Repository on the Hugging Face Hub, e.g. NousResearch/Meta-Llama-3-8B-Instruct.",
    )
    revision: str | None = Field(
        default=None,
        pattern=r"^[\w./-]+$",
        description="Commit, tag or branch of the repository. Default: its main branch, which may change between two starts.",
    )
