"""What a user decides about a plain vLLM server."""

from typing import Literal

from pydantic import Field, field_validator

from eks_inference.images.spec import InClusterImage, ServerImage
from eks_inference.scaling.spec import KedaSpec
from eks_inference.serving.shape import CompilingServerSpec, ReplicatedServerSpec

_DOCKERFILE = "ARG ENGINE_IMAGE\nFROM ${ENGINE_IMAGE}\n"


class VllmServerSpec(ReplicatedServerSpec, CompilingServerSpec):
    """Plain vLLM on Neuron devices or GPUs: one or several equal pods behind one OpenAI API."""

    kind: Literal["vllm"]
    image: ServerImage | None = Field(
        default=None,
        description=(
            "Image with the engine profile's vLLM: a reference with tag or digest, or an image built in the cluster. Default: "
            "the engine profile's image. A build without a Dockerfile copies that image to a repository of the stack."
        ),
    )
    autoscaling: KedaSpec | None = Field(
        default=None, description="Autoscaler that sets the number of pods instead of replicas. Default: none."
    )
    disk_gib: int = Field(
        default=100,
        ge=10,
        description=(
            "Node disk reserved for what one pod downloads, compiles and writes; a pod that uses more is evicted. A model copied "
            "from S3 needs its own size_gib in addition."
        ),
    )
    port: int | None = Field(
        default=None, ge=1024, le=65535, description="Port of API and metrics. Default: the engine profile's."
    )

    @property
    def compiling_pods(self) -> int:
        return self.most

    @field_validator("image")
    @classmethod
    def _default_dockerfile(cls, image: ServerImage | None) -> ServerImage | None:
        if isinstance(image, InClusterImage) and image.dockerfile is None:
            return image.model_copy(update={"dockerfile": _DOCKERFILE})
        return image
