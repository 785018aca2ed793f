"""What the specs of model servers share: the fields of every kind, and those of a kind whose pods are all equal."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from eks_inference.catalog.engines import EngineProfile, engine, engines
from eks_inference.images.spec import InClusterImage, ServerImage
from eks_inference.pools.spec import InstanceTypeName
from eks_inference.scaling.spec import AutoscalerSpec
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
from eks_inference.storage.spec import FileSystem

Operator = Literal["kuberay", "leader_worker_set"]
"""Controllers that some kinds of servers stand on, and that a stack installs once."""

RENAMED = {"gpus": "devices", "engine_args": "extra_args"}
"""Old spellings of fields, and what they are called now."""


@dataclass(frozen=True)
class PoolChoice:
    """A pool that some pods of a server run in, with the keys of the spec that say so."""

    pool: str
    instance_type: str | None
    under: tuple[str, ...] = ()
    """Where ``pool`` and ``instance_type`` stand: ``("worker",)``."""
    pool_key: str = "pool"
    accelerators: tuple[str, ...] = ()
    """The nodes must have one of these; none: the pods need no device."""

    @property
    def pool_path(self) -> tuple[str, ...]:
        return (*self.under, self.pool_key)

    @property
    def type_path(self) -> tuple[str, ...]:
        return (*self.under, "instance_type")


class ServerSpec(Spec):
    """A model server of any kind. A field that a kind needs otherwise is written again in its own spec."""

    engine_servers: ClassVar[tuple[str, ...]] = ("vllm",)
    """What an engine profile of this kind may start (``EngineProfile.server``)."""
    accelerators: ClassVar[tuple[str, ...]] = ("neuron", "nvidia")
    """What the nodes of the servers may have."""

    kind: str
    namespace: ResourceName | None = Field(
        default=None, description="Namespace of the server. Each server gets one of its own. Default: the server's name."
    )
    model: ModelSource = Field(description="The model, and where it comes from.")
    engine: EngineName
    image: ServerImage | None = Field(
        default=None,
        description="Image instead of the engine profile's: a reference with tag or digest, or one built in the cluster.",
    )
    client_namespaces: dict[str, str] = Field(
        default_factory=dict,
        description="Labels of the namespaces whose pods may call the API. Default: all namespaces of the cluster.",
    )
    metrics_namespaces: tuple[ResourceName, ...] = Field(
        default=("monitoring",), description="Namespaces whose pods may read metrics: those where Prometheus runs."
    )
    extra_args: Mapping[Argument, JsonValue] = Field(
        default_factory=dict,
        description="Further flags of the engine, without the dashes. They win over the flags that this library sets.",
    )
    extra_env: dict[str, str] = Field(
        default_factory=dict, description="Further environment variables of the engine. They win, too."
    )

    def namespace_of(self, name: str) -> str:
        """Namespace of the server of that name."""
        return self.namespace or name

    @property
    def profile(self) -> EngineProfile:
        return engine(self.engine)

    @property
    def image_reference(self) -> str | InClusterImage:
        """The image as the spec has it, before mirrors and builds."""
        return self.image or self.profile.image

    @property
    def image_arguments(self) -> dict[str, str]:
        """Arguments of an image that is built in the cluster. They follow from the engine; the image's spec may say otherwise."""
        return {"ENGINE_IMAGE": self.profile.image}

    @property
    def scaler(self) -> AutoscalerSpec | None:
        """The autoscaler that owns the number of pods."""
        return None

    @property
    def operators(self) -> frozenset[Operator]:
        """Controllers that the server stands on."""
        return frozenset()

    @property
    def file_systems(self) -> frozenset[FileSystem]:
        """File systems whose driver the server's volumes need."""
        return frozenset()

    def main_pool(self) -> PoolChoice:
        """Where the engine runs."""
        raise NotImplementedError

    def pools(self) -> Iterator[PoolChoice]:
        """Every pool that pods of the server run in. The first is ``main_pool``."""
        yield self.main_pool()

    @field_validator("engine")
    @classmethod
    def _engine_starts_this_kind(cls, name: str) -> str:
        server = engine(name).server
        if server not in cls.engine_servers:
            known = ", ".join(sorted(one.name for one in engines().values() if one.server in cls.engine_servers))
            raise ValueError(f"engine {name} starts {server}, which this kind of server does not; it can start: {known}")
        return name


class CompilingServerSpec(ServerSpec):
    """A server whose engine may compile the model when it starts."""

    compile_cache: CompileCache | None = Field(
        default=None,
        description=(
            "Where compiled graphs stay between starts. Default: s3, in a bucket of the server, for engines whose compiler can "
            "keep them there (Neuron, generations A to C); none for others. A node's own disk goes with the node, and an EBS "
            "volume stays in one zone, where there may be no accelerator."
        ),
    )

    @property
    def cache(self) -> CompileCache:
        """The compile cache, with the default filled in."""
        if self.compile_cache is not None:
            return self.compile_cache
        return S3CompileCache() if self.profile.generation.compile_cache == "s3" else NoCompileCache(kind="none")

    @property
    def compiling_pods(self) -> int:
        """The most pods that share the cache."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _cache_is_the_compilers(self) -> Self:
        if isinstance(self.compile_cache, S3CompileCache) and self.profile.generation.compile_cache != "s3":
            raise ValueError(f"compile_cache: engine {self.engine} keeps compiled graphs in folders only: volume or none")
        return self

    @model_validator(mode="after")
    def _cache_can_be_shared(self) -> Self:
        cache, pods = self.compile_cache, self.compiling_pods
        if isinstance(cache, VolumeCompileCache) and cache.storage_class is None and pods > 1:
            raise ValueError(
                f"compile_cache: {pods} pods cannot share a volume of the default storage class; name one that several nodes "
                "can mount (EFS, FSx for Lustre), or keep the cache in s3"
            )
        return self


class ReplicatedServerSpec(ServerSpec):
    """A server whose pods are equal. Each holds the whole model; one Deployment owns them, one Service shares requests out."""

    pool: ResourceName = Field(description="Pool the server runs in.")
    instance_type: InstanceTypeName | None = Field(
        default=None, description="Instance type. It may be left out when the pool has only one."
    )
    devices: int | None = Field(
        default=None, ge=1, description="Neuron devices or GPUs of one pod. Default: all of the instance type."
    )
    replicas: int = Field(default=1, ge=0, description="Pods. Each holds the whole model; the Service shares requests out.")
    autoscaling: AutoscalerSpec | None = Field(
        default=None, description="What changes the number of pods, instead of replicas. Absent: nothing does."
    )
    surge: int = Field(
        default=0,
        ge=0,
        description=(
            "Pods beyond replicas while a change rolls out. 0: a pod ends before its successor starts, which needs no device "
            "more; with one replica nothing answers until that one is up. More: needs devices that are free, or new nodes."
        ),
    )
    cpu: Quantity | None = Field(
        default=None, description="CPU of one pod. Default: what pods can use of the node in proportion to the devices."
    )
    memory: Quantity | None = Field(default=None, description="Memory of one pod. Default: as cpu.")
    shared_memory_gib: int = Field(default=8, ge=1, description="Size of /dev/shm. It is a part of the memory.")
    startup_timeout_seconds: int | None = Field(
        default=None,
        ge=60,
        description="How long a pod may download, compile and load. Default: the engine profile's budget.",
    )
    evictions: Literal["refused", "allowed"] = Field(
        default="refused",
        description=(
            "Whether a drain may take pods. refused: not below replicas (below the autoscaler's min); this holds up the "
            "replacement of a node until somebody deletes the pod or sets allowed. allowed: one at a time. Node failures and "
            "spot interruptions do not ask."
        ),
    )

    @property
    def fewest(self) -> int:
        """The fewest pods there are, apart from a roll-out."""
        return self.autoscaling.min if self.autoscaling else self.replicas

    @property
    def most(self) -> int:
        """The most pods there are, those of a roll-out among them."""
        return (self.autoscaling.max if self.autoscaling else self.replicas) + self.surge

    @property
    def scaler(self) -> AutoscalerSpec | None:
        return self.autoscaling

    def main_pool(self) -> PoolChoice:
        return PoolChoice(self.pool, self.instance_type, accelerators=self.accelerators)

    @model_validator(mode="after")
    def _one_says_how_many(self) -> Self:
        if self.autoscaling and "replicas" in self.model_fields_set:
            raise ValueError("replicas: the autoscaler decides; leave replicas out, or autoscaling")
        return self
