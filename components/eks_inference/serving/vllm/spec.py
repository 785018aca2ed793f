"""What a user decides about a plain vLLM server."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from eks_inference.catalog.engines import EngineProfile, engine
from eks_inference.images.spec import InClusterImage, ServerImage
from eks_inference.pools.spec import InstanceTypeName
from eks_inference.scaling.spec import KedaSpec
from eks_inference.serving.spec import (
    Argument,
    CompileCache,
    EngineName,
    ModelSource,
    NoCompileCache,
    S3CompileCache,
    VolumeCompileCache,
)
from eks_inference.spec import Quantity, ResourceName, Spec

_DOCKERFILE = "ARG ENGINE_IMAGE\nFROM ${ENGINE_IMAGE}\n"


class VllmServerSpec(Spec):
    """vLLM by itself, on Neuron devices or GPUs: one or several equal pods behind one OpenAI API."""

    kind: Literal["vllm"]
    namespace: ResourceName | None = Field(
        default=None, description="Namespace of the server; made here, one for each server. Default: the server's name."
    )
    model: ModelSource = Field(description="The model, and where it comes from.")
    engine: EngineName
    image: ServerImage | None = Field(
        default=None,
        description=(
            "Image with the engine profile's vLLM: a reference with tag or digest, or one built in the cluster. Default: the "
            "engine profile's. Built without a Dockerfile of yours it is that image, in a repository of the stack."
        ),
    )
    pool: ResourceName = Field(description="Pool the server runs in.")
    instance_type: InstanceTypeName | None = Field(
        default=None, description="Instance type; may be left out when the pool has one."
    )
    devices: int | None = Field(
        default=None, ge=1, description="Neuron devices or GPUs of one pod. Default: all of the instance type."
    )
    tensor_parallel: int = Field(ge=1, description="NeuronCores or GPUs the model is split over.")
    max_model_len: int = Field(ge=1, description="Longest sequence, prompt and answer together, in tokens.")
    max_num_seqs: int = Field(ge=1, description="Sequences one pod works on at once. On Neuron: the batch it is compiled for.")
    replicas: int = Field(default=1, ge=0, description="Pods. Each holds the whole model; the Service shares requests out.")
    autoscaling: KedaSpec | None = Field(
        default=None, description="What changes the number of pods, instead of replicas. Absent: nothing does."
    )
    surge: int = Field(
        default=0,
        ge=0,
        description=(
            "Pods beyond replicas while a change rolls out. 0: a pod ends before its successor starts, which needs no device "
            "more; with one replica nothing answers until that one is up. More: needs devices that are free, or nodes to be had."
        ),
    )
    cpu: Quantity | None = Field(
        default=None, description="CPU of one pod. Default: what pods can use of the node in proportion to the devices."
    )
    memory: Quantity | None = Field(default=None, description="Memory of one pod. Default: as cpu.")
    shared_memory_gib: int = Field(default=8, ge=1, description="Size of /dev/shm; a part of the memory.")
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
    startup_timeout_seconds: int | None = Field(
        default=None,
        ge=60,
        description="How long a pod may download, compile and load. Default: the engine profile's budget.",
    )
    port: int | None = Field(
        default=None, ge=1024, le=65535, description="Port of API and metrics. Default: the engine profile's."
    )
    evictions: Literal["refused", "allowed"] = Field(
        default="refused",
        description=(
            "Whether a drain may take pods. refused: not below replicas (below the autoscaler's min); this holds up the "
            "replacement of a node until somebody deletes the pod or sets allowed. allowed: one at a time. Node failures and "
            "spot interruptions do not ask."
        ),
    )
    client_namespaces: dict[str, str] = Field(
        default_factory=dict,
        description="Labels of the namespaces whose pods may call the API. Default: all namespaces of the cluster.",
    )
    metrics_namespaces: tuple[ResourceName, ...] = Field(
        default=("monitoring",), description="Namespaces whose pods may read metrics, that is, where Prometheus runs."
    )
    extra_args: dict[Argument, str | int | float | bool] = Field(
        default_factory=dict,
        description="Further flags of vllm serve, without the dashes; true and false become --flag and --no-flag. They win.",
    )
    extra_env: dict[str, str] = Field(
        default_factory=dict, description="Further environment variables, e.g. NEURON_CC_FLAGS. They win."
    )

    @property
    def profile(self) -> EngineProfile:
        return engine(self.engine)

    @property
    def compiled_image(self) -> str | InClusterImage:
        """The image as the spec has it, before mirrors and builds."""
        return self.image or self.profile.image

    @property
    def cache(self) -> CompileCache:
        """The compile cache, with the default filled in."""
        if self.compile_cache is not None:
            return self.compile_cache
        return S3CompileCache() if self.profile.generation.compile_cache == "s3" else NoCompileCache(kind="none")

    @property
    def fewest(self) -> int:
        """Pods there are at least, but for a roll-out."""
        return self.autoscaling.min if self.autoscaling else self.replicas

    @property
    def most(self) -> int:
        """Pods there are at most, those of a roll-out among them."""
        return (self.autoscaling.max if self.autoscaling else self.replicas) + self.surge

    @field_validator("engine")
    @classmethod
    def _is_vllm_itself(cls, name: str) -> str:
        server = engine(name).server
        if not engine(name).standalone:
            raise ValueError(f"engine {name} is vLLM inside {server}; this server starts vLLM by itself")
        return name

    @field_validator("image")
    @classmethod
    def _without_ray(cls, image: ServerImage | None) -> ServerImage | None:
        if isinstance(image, InClusterImage) and image.dockerfile is None:
            return image.model_copy(update={"dockerfile": _DOCKERFILE})
        return image

    @model_validator(mode="after")
    def _one_says_how_many(self) -> Self:
        if self.autoscaling and "replicas" in self.model_fields_set:
            raise ValueError("replicas: the autoscaler decides; leave replicas out, or autoscaling")
        return self

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
