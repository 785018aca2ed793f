"""Base specs of model servers: what every kind has, and what kinds that compile and kinds with equal pods add."""

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, field_validator, model_validator

from eks_inference.catalog.engines import STREAMER, EngineProfile, engine, engines
from eks_inference.catalog.features import recipe_settings
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Task, chat_template
from eks_inference.catalog.vllm_arguments import vllm_releases
from eks_inference.images.spec import InClusterImage, ServerImage
from eks_inference.kubernetes.merge import merged
from eks_inference.kubernetes.network_policy import ranges
from eks_inference.observability.spec import Objectives
from eks_inference.pools.spec import InstanceTypeName, LabelKey, LabelValue
from eks_inference.scaling.spec import AutoscalerSpec
from eks_inference.serving.features import OpenAiFeatures, fp8_kv_settings, kv_in_fp8, set_twice
from eks_inference.serving.flag_values import backend_settings
from eks_inference.serving.flags import flag_name, flags, with_object
from eks_inference.serving.spec import (
    CompileCache,
    EngineName,
    ExtraArgs,
    HubModel,
    ModelSource,
    NoCompileCache,
    S3CompileCache,
    S3Model,
    VolumeCompileCache,
    VolumeModel,
)
from eks_inference.serving.traffic import TrafficSpec
from eks_inference.specs.base import MOST_PODS, Cpu, ExistingNamespace, Memory, Namespace, ResourceName, Spec, Variable, stated
from eks_inference.storage.spec import FileSystem

Operator = Literal["kuberay", "leader_worker_set"]
"""Controllers that some kinds of servers need, and that a stack installs once."""


@dataclass(frozen=True)
class PoolChoice:
    """A pool that some pods of a server run in, with the keys of the spec that choose it."""

    pool: str
    """Its name. It may be empty for a ``Helper``, which then runs on the core pool."""
    instance_type: str | None
    under: tuple[str, ...] = ()
    """Path of the object that holds ``pool`` and ``instance_type``: ``("worker",)``."""
    pool_key: str = "pool"
    accelerators: tuple[str, ...] = ()
    """The nodes must have one of these accelerators; empty: the pods need no device."""

    @property
    def pool_path(self) -> tuple[str, ...]:
        return (*self.under, self.pool_key)

    @property
    def type_path(self) -> tuple[str, ...]:
        return (*self.under, "instance_type")

    def misfit(self, instance: InstanceType) -> str:
        """Says why nodes of this type cannot be for the pods; empty where they can."""
        if not self.accelerators or instance.accelerator in self.accelerators:
            return ""
        return f"its nodes have {'devices of the wrong kind' if instance.accelerator else 'no accelerator'} for this server"


@dataclass(frozen=True)
class Helper:
    """Pods of a server that hold no model: a router, a head. ``cpu`` and ``memory`` are the requests of one."""

    name: str
    place: PoolChoice
    pods: int
    cpu: str
    memory: str


class ServerSpec(Spec):
    """A model server of any kind. The spec of a kind redefines the fields that differ."""

    engine_servers: ClassVar[tuple[str, ...]] = ("vllm",)
    """Servers that an engine profile for this kind may start (``EngineProfile.server``)."""
    accelerators: ClassVar[tuple[str, ...]] = ("neuron", "nvidia")
    """Accelerators that the nodes of the server may have."""
    placed_under: ClassVar[tuple[str, ...]] = ()
    """Path of the object that holds ``pool``, ``instance_type`` and ``devices`` of the pods that hold the model."""

    kind: str
    namespace: Namespace | None = Field(
        default=None, description="Namespace of the server, which it shares with no other. Default: the server's name."
    )
    renamed_from: ResourceName | None = Field(
        default=None,
        exclude=True,
        description="The server's name before, while one `pulumi up` renames it: its resources are then replaced in order, and "
        "its cache and store stay. Otherwise the new server is created first: on full nodes it waits for the old one's devices, "
        "and it cannot have its namespace.",
    )
    model: ModelSource = Field(description="The model and its source.")
    engine: EngineName
    image: ServerImage | None = Field(
        default=None,
        description="Image that replaces the engine profile's: a reference with tag or digest, or an image built in the cluster.",
    )
    client_namespaces: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        description="Labels of the namespaces whose pods may call the API. Default: all namespaces of the cluster.",
    )
    metrics_namespaces: tuple[ExistingNamespace, ...] = Field(
        default=("monitoring",), description="Namespaces whose pods may read metrics: those of Prometheus."
    )
    egress: Annotated[tuple[str, ...], AfterValidator(ranges)] | None = Field(
        default=None,
        max_length=40,
        description="IPv4 ranges that the pods may reach over HTTPS. The Hub has public addresses, and so has S3, behind a "
        "gateway endpoint too. [] is nowhere: for a model on a volume, or one that a store has already. Absent: everywhere.",
    )
    objectives: Objectives = Field(
        default_factory=Objectives, description="What the server should achieve; alerts fire where it does not. Default: nothing."
    )
    traffic: TrafficSpec | None = Field(
        default=None,
        description="What clients ask of the server at its busiest time. TRF001 judges whether the server takes that within "
        "its objectives, and views show what a token costs. Default: nothing is judged.",
    )
    extra_args: ExtraArgs = Field(
        default_factory=dict,
        description="Further engine flags, without the dashes. They override those of this library. A part of an object may be "
        "given as flag.key.",
    )
    extra_env: dict[Variable, str] = Field(
        default_factory=dict,
        description="Further environment variables of the engine. They override those of this library.",
    )

    def namespace_of(self, name: str) -> str:
        return self.namespace or name

    @property
    def profile(self) -> EngineProfile:
        return engine(self.engine)

    @property
    def does(self) -> Task:
        """What its clients ask for."""
        return self.model.known.task if self.model.known else "chat"

    @property
    def models(self) -> tuple[ModelSource, ...]:
        """Every model that the server has."""
        return (self.model,)

    @property
    def downloads_first(self) -> bool:
        """Whether pods download the model before the engine starts, because the engine would save another copy of it."""
        return isinstance(self.model, HubModel) and (self.profile.generation.copies_hub_models or self.stores_model)

    @property
    def downloads(self) -> bool:
        """Whether pods download the model, to their node or into a store of the server."""
        return not isinstance(self.model, VolumeModel)

    @property
    def streams_model(self) -> bool:
        """Whether the engine reads the model from S3 itself."""
        return isinstance(self.model, S3Model) and self.model.streamed

    @model_validator(mode="after")
    def _engine_can_stream(self) -> Self:
        if self.streams_model and not self.profile.streams_s3:
            able = ", ".join(sorted(engine_profile.name for engine_profile in engines().values() if engine_profile.streams_s3))
            raise ValueError(
                f"model.streamed: no document says that the image of engine {self.engine} has the Run:ai Model Streamer; leave "
                f"it out, or choose an engine that has it on GPUs: {able}"
            )
        return self

    @model_validator(mode="after")
    def _build_has_room(self) -> Self:
        build, least = self.image_reference, self.profile.image_gb
        if (
            isinstance(build, InClusterImage)
            and not build.dockerfile
            and least
            and build.ephemeral_storage_gib < least * 1e9 / 2**30
        ):
            raise ValueError(
                f"image.ephemeral_storage_gib: {build.ephemeral_storage_gib} given, and the engine's image has {least:g} GB"
            )
        return self

    @model_validator(mode="after")
    def _reaches_its_model(self) -> Self:
        if self.egress == () and self.downloads and not self.stores_model:
            raise ValueError("egress: pods download the model over HTTPS: name where from, or leave egress out")
        return self

    @property
    def store_mib_s(self) -> int | None:
        """What a node reads from the store of the server in MiB/s; None: there is none, or its speed is unknown."""
        return None

    @property
    def stores_model(self) -> bool:
        """Whether the model is on a file system of the server, and no pod writes it to its node."""
        return isinstance(self.model, VolumeModel)

    @property
    def image_reference(self) -> str | InClusterImage:
        """The image as the spec names it, before mirrors and builds."""
        return self.image or self.profile.image

    @property
    def image_arguments(self) -> dict[str, str]:
        """Default build arguments of an image that is built in the cluster. The spec of the image may override them."""
        return {"ENGINE_IMAGE": self.profile.image}

    @property
    def scalers(self) -> Mapping[str, AutoscalerSpec]:
        """The autoscalers that set numbers of pods, by what they scale: a part of the server, or all of it under ""."""
        return {}

    @property
    def operators(self) -> frozenset[Operator]:
        """Controllers that the server needs."""
        return frozenset()

    @property
    def file_systems(self) -> frozenset[FileSystem]:
        """File systems whose drivers the server's volumes need."""
        return frozenset()

    @property
    def stores_of_the_stack(self) -> frozenset[str]:
        """File systems of the stack that the server shares with others, by name."""
        return frozenset()

    @property
    def helpers(self) -> tuple[Helper, ...]:
        """The pods of the server that hold no model."""
        return ()

    def main_pool(self) -> PoolChoice:
        """Returns the pool where the engine runs."""
        raise NotImplementedError

    def other_pools(self) -> tuple[PoolChoice, ...]:
        """Returns where the same pods run while the main pool has no capacity, in order."""
        return ()

    def pools(self) -> Iterator[PoolChoice]:
        """Yields every pool that pods of the server run in. The first is ``main_pool``."""
        yield self.main_pool()
        yield from self.other_pools()

    @field_validator("engine")
    @classmethod
    def _engine_starts_this_kind(cls, name: str) -> str:
        server = engine(name).server
        if server not in cls.engine_servers:
            known = ", ".join(sorted(one.name for one in engines().values() if one.server in cls.engine_servers))
            raise ValueError(f"engine {name} starts {server}, but this kind of server can only start: {known}")
        return name


class CompilingServerSpec(ServerSpec, OpenAiFeatures):
    """A server whose engine may compile the model when it starts."""

    tensor_parallel: int = Field(ge=1, description="NeuronCores or GPUs that one copy of the model is split over.")
    max_model_len: int = Field(ge=1, description="Maximum length of a sequence (prompt and answer together), in tokens.")
    max_num_seqs: int = Field(ge=1, description="Sequences that one copy processes at once. On Neuron: the compiled batch size.")
    compile_cache: CompileCache | None = Field(
        default=None,
        description=(
            "Where compiled graphs are kept between starts. Default: s3, in a bucket of the server, for engines whose compiler "
            "can use it (Neuron, generations A to C); none for others. A node's disk is lost with the node, and an EBS volume "
            "stays in one zone, which may have no accelerator."
        ),
    )

    @property
    def cache(self) -> CompileCache:
        """The compile cache after defaults."""
        if self.compile_cache is not None:
            return self.compile_cache
        return S3CompileCache() if self.profile.generation.compile_cache == "s3" else NoCompileCache()

    @property
    def engine_flags(self) -> list[str]:
        """Flags of the engine profile that nothing else sets; then those of recipe, model, features and user."""
        template = chat_template(self.model.id) if isinstance(self.model, HubModel) else ""
        settings = merged({"chat-template": template} if template else {}, self._feature_settings)
        settings = merged(merged(settings, self.sharding), with_object(self.profile, self.extra_args))
        if kv_in_fp8(self.profile, str(settings.get("kv-cache-dtype", "")), self.model.known, self.chosen):
            settings = merged(fp8_kv_settings(self.profile, self.model.known, self.max_num_seqs), settings)
        settings = merged(recipe_settings(self.engine, self.model.known, self.max_num_seqs), settings)
        release = vllm_releases().get(self.profile.vllm)
        ours = self.profile.flags(max_num_seqs=self.max_num_seqs, max_model_len=self.max_model_len, model=self.model.known)
        if self.profile.generation.takes_prompts_whole(self.max_model_len) and "max-num-batched-tokens" not in settings:
            # Prefix caching needs segments, and the engine's defaults are prefix caching without them.
            ours.append("--no-enable-prefix-caching")
        return [
            *(one for one in ours if flag_name(one).removeprefix("no-") not in settings),
            *flags(settings, release.several if release else ()),
        ]

    def engine_flags_on(self, shape: InstanceType) -> list[str]:
        """Returns ``engine_flags``, and those that the GPUs of an instance type need."""
        ours = self.engine_flags
        return [*ours, *flags(backend_settings(self.profile.vllm, shape, ours, self.model.known))]

    @property
    def _feature_settings(self) -> dict[str, Any]:
        found = self.feature_settings(self.engine, max_model_len=self.max_model_len, max_num_seqs=self.max_num_seqs)
        if self.streams_model:
            found["load-format"] = STREAMER
            if self.tensor_parallel > 1:  # otherwise the process of each GPU reads the whole model
                found["model-loader-extra-config"] = {"distributed": True}
        return found

    @model_validator(mode="after")
    def _features_are_set_once(self) -> Self:
        if twice := set_twice(self._feature_settings, self.extra_args):
            raise ValueError(f"extra_args: {', '.join(twice)}: keys of the server set this too; leave it out here")
        return self

    @property
    def s3_adapters(self) -> tuple[str, ...]:
        """Folders in S3 that pods copy before the engine starts, beside the model."""
        return ()

    @property
    def sharding(self) -> Mapping[str, JsonValue]:
        """Flags that make the engine save a finished artifact with the weights; empty where nothing keeps it."""
        return {}

    @property
    def compiling_pods(self) -> int:
        """Maximum number of pods that share the cache."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _cache_is_the_compilers(self) -> Self:
        if isinstance(self.compile_cache, S3CompileCache) and self.profile.generation.compile_cache != "s3":
            raise ValueError(f"compile_cache: engine {self.engine} can keep compiled graphs only in folders: volume or none")
        return self

    @model_validator(mode="after")
    def _cache_can_be_shared(self) -> Self:
        cache = self.compile_cache
        if isinstance(cache, VolumeCompileCache) and (why := unshared(cache, self.compiling_pods)):
            raise ValueError(f"compile_cache: {why}, or keep the cache in s3")
        return self


def unshared(cache: VolumeCompileCache, pods: int) -> str:
    """Returns why so many pods cannot share the volume of a cache; empty if they can."""
    if cache.storage_class is not None or pods < 2:
        return ""
    return (
        f"{pods} pods cannot share a volume of the default storage class; name a storage class whose volumes several nodes can "
        "mount (EFS, FSx for Lustre)"
    )


class PodsSpec(Spec):
    """Equal pods of one Deployment: where they run, how many there are and how large they are. Each holds the whole model."""

    pool: ResourceName = Field(
        default="", json_schema_extra=stated, exclude_if=operator.not_, description="Pool the server runs in."
    )
    instance_type: InstanceTypeName | None = Field(
        default=None, description="Instance type. Optional when the pool has only one."
    )
    devices: int | None = Field(
        default=None, ge=1, description="Neuron devices or GPUs of one pod. Default: all of the instance type."
    )
    replicas: int = Field(
        default=1, ge=0, le=MOST_PODS, description="Number of pods. Each holds the whole model; the Service distributes requests."
    )
    autoscaling: AutoscalerSpec | None = Field(
        default=None, description="Autoscaler that sets the number of pods instead of replicas. Default: none."
    )
    cpu: Cpu | None = Field(
        default=None,
        description="CPU of one pod. Default: a share of the node's usable CPU, in proportion to the devices.",
    )
    memory: Memory | None = Field(default=None, description="Memory of one pod. Default: like cpu.")
    shared_memory_gib: int = Field(default=8, ge=1, description="Size of /dev/shm, which is part of the memory.")
    startup_timeout_seconds: int | None = Field(
        default=None,
        ge=60,
        description="Time for a pod to download, compile and load. Default: the engine profile's budget.",
    )

    @property
    def without_effect(self) -> frozenset[str]:
        return frozenset({"replicas"} if self.autoscaling else ())

    @property
    def fewest(self) -> int:
        """Minimum number of pods outside a rollout."""
        return self.autoscaling.min if self.autoscaling else self.replicas

    @property
    def most(self) -> int:
        """Maximum number of pods, including those that a rollout adds."""
        return self.autoscaling.max if self.autoscaling else self.replicas

    @model_validator(mode="after")
    def _one_says_how_many(self) -> Self:
        if self.autoscaling and "replicas" in self.model_fields_set:
            raise ValueError("replicas: the autoscaler sets the number of pods; leave out replicas or autoscaling")
        return self


class PlaceSpec(Spec):
    """Nodes that the same pods run on while the places before have no capacity."""

    pool: ResourceName = Field(description="Pool of the nodes: another one, or that of the server with another instance type.")
    instance_type: InstanceTypeName | None = Field(
        default=None, description="Instance type. Optional when the pool has only one."
    )


class ReplicatedServerSpec(PodsSpec, ServerSpec):
    """A server of equal pods in one Deployment. Each pod holds the whole model, and one Service distributes the requests."""

    surge: int = Field(
        default=0,
        ge=0,
        le=MOST_PODS,
        description=(
            "Extra pods during a rollout. 0: a pod terminates before its successor starts. This needs no further devices, but a "
            "server with one replica does not answer until the new pod is up. More: needs free devices or new nodes."
        ),
    )
    alternatives: tuple[PlaceSpec, ...] = Field(
        default=(),
        max_length=9,
        exclude_if=operator.not_,
        description="Where the pods run instead, in this order, while the places before have no capacity: other instance types, "
        "other pools, on demand behind spot. Rules judge the server at each of them, and its pods ask for what the smallest node "
        "has for them. What needs another engine, split or flag there is another server of the same model (SRV022).",
    )

    @property
    def most(self) -> int:
        """Maximum number of pods, including the surge of a rollout."""
        return super().most + self.surge

    @property
    def scalers(self) -> Mapping[str, AutoscalerSpec]:
        return {"": self.autoscaling} if self.autoscaling else {}

    def main_pool(self) -> PoolChoice:
        return PoolChoice(self.pool, self.instance_type, accelerators=self.accelerators)

    def other_pools(self) -> tuple[PoolChoice, ...]:
        return tuple(
            PoolChoice(one.pool, one.instance_type, under=("alternatives", str(number)), accelerators=self.accelerators)
            for number, one in enumerate(self.alternatives)
        )
