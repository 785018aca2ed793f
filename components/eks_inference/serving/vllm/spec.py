"""What a user decides about a plain vLLM server."""

from typing import Literal

from pydantic import Field, field_validator

from eks_inference.images.spec import InClusterImage, ServerImage
from eks_inference.scaling.spec import KedaSpec
from eks_inference.serving.shape import CompilingServerSpec, ReplicatedServerSpec

_DOCKERFILE = "ARG ENGINE_IMAGE\nFROM ${ENGINE_IMAGE}\n"


class VllmServerSpec(ReplicatedServerSpec, CompilingServerSpec):
    """vLLM by itself, on Neuron devices or GPUs: one or several equal pods behind one OpenAI API."""

    kind: Literal["vllm"]
    image: ServerImage | None = Field(
        default=None,
        description=(
            "Image with the engine profile's vLLM: a reference with tag or digest, or one built in the cluster. Default: the "
            "engine profile's. Built without a Dockerfile of yours it is that image, in a repository of the stack."
        ),
    )
    tensor_parallel: int = Field(ge=1, description="NeuronCores or GPUs the model is split over.")
    max_model_len: int = Field(ge=1, description="Longest sequence, prompt and answer together, in tokens.")
    max_num_seqs: int = Field(ge=1, description="Sequences one pod works on at once. On Neuron: the batch it is compiled for.")
    autoscaling: KedaSpec | None = Field(
        default=None, description="What changes the number of pods, instead of replicas. Absent: nothing does."
    )
    disk_gib: int = Field(
        default=100,
        ge=10,
        description=(
            "Node disk set aside for what one pod downloads, compiles and writes; more than this ends the pod. A model copied "
            "from S3 comes on top, by its own size_gib."
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
    def _without_ray(cls, image: ServerImage | None) -> ServerImage | None:
        if isinstance(image, InClusterImage) and image.dockerfile is None:
            return image.model_copy(update={"dockerfile": _DOCKERFILE})
        return image
