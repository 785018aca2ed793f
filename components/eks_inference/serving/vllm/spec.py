"""What a user decides about a plain vLLM server."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from eks_inference.images.spec import InClusterImage, ServerImage
from eks_inference.scaling.spec import KedaSpec
from eks_inference.serving.shape import ReplicatedServerSpec
from eks_inference.serving.spec import CompileCache, NoCompileCache, S3CompileCache, VolumeCompileCache

_DOCKERFILE = "ARG ENGINE_IMAGE\nFROM ${ENGINE_IMAGE}\n"


class VllmServerSpec(ReplicatedServerSpec):
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
    compile_cache: CompileCache | None = Field(
        default=None,
        description=(
            "Where compiled graphs stay between starts. Default: s3, in a bucket of the server, for engines whose compiler can "
            "keep them there (Neuron, generations A to C); none for others."
        ),
    )
    port: int | None = Field(
        default=None, ge=1024, le=65535, description="Port of API and metrics. Default: the engine profile's."
    )

    @property
    def cache(self) -> CompileCache:
        """The compile cache, with the default filled in."""
        if self.compile_cache is not None:
            return self.compile_cache
        return S3CompileCache() if self.profile.generation.compile_cache == "s3" else NoCompileCache(kind="none")

    @field_validator("image")
    @classmethod
    def _without_ray(cls, image: ServerImage | None) -> ServerImage | None:
        if isinstance(image, InClusterImage) and image.dockerfile is None:
            return image.model_copy(update={"dockerfile": _DOCKERFILE})
        return image

    @model_validator(mode="after")
    def _cache_is_the_compilers(self) -> Self:
        if isinstance(self.compile_cache, S3CompileCache) and self.profile.generation.compile_cache != "s3":
            raise ValueError(f"compile_cache: engine {self.engine} keeps compiled graphs in folders only: volume or none")
        return self

    @model_validator(mode="after")
    def _cache_can_be_shared(self) -> Self:
        cache = self.compile_cache
        if isinstance(cache, VolumeCompileCache) and cache.storage_class is None and self.most > 1:
            raise ValueError(
                f"compile_cache: {self.most} pods cannot share a volume of the default storage class; name one that several "
                "nodes can mount (EFS, FSx for Lustre), or keep the cache in s3"
            )
        return self
