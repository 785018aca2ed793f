"""What a user decides about a Triton server whose back end is vLLM."""

import operator
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from eks_inference.images.spec import PinnedImage
from eks_inference.pools.spec import BucketName
from eks_inference.serving.features import EngineFeatures, set_twice
from eks_inference.serving.shape import ReplicatedServerSpec
from eks_inference.serving.spec import PATH, EngineName, ExtraArgs, HubModel, ModelSource, S3Model
from eks_inference.specs.base import Form, Spec, stated

DEFAULT_ENGINE = "triton-26.08-vllm-0.27"
"""The newest Triton whose vLLM release is in the catalog."""

SETTINGS_OF_THEIR_OWN = {
    "model": "model",
    "revision": "model.revision",
    "dtype": "dtype",
    "tensor-parallel-size": "tensor_parallel",
    "max-model-len": "max_model_len",
    "max-num-seqs": "max_num_seqs",
    "gpu-memory-utilization": "gpu_memory_utilization",
    "enforce-eager": "enforce_eager",
    "disable-log-stats": "log_stats",
}
"""Engine arguments that follow from other keys of the spec, with those keys."""

_MODEL_NAME = r"^[A-Za-z0-9][\w.-]{0,62}$"
ModelName = Annotated[str, Field(pattern=_MODEL_NAME)]


class ConfigMapRepository(Spec):
    """The model repository as a ConfigMap with two small files. It needs nothing in AWS."""

    kind: Literal["config_map"] = Field(default="config_map", description="In a ConfigMap.")


class S3Repository(Spec):
    """The model repository in S3, as in the source system. An init container copies it into the pod before Triton starts.

    The pods read it with their own role, by EKS Pod Identity. Triton could read S3 itself, but it loads credentials only once,
    and those of Pod Identity expire within hours.
    """

    kind: Literal["s3"] = Field(default="s3", json_schema_extra=stated, description="In S3.")
    bucket: BucketName | None = Field(
        default=None,
        description="Existing bucket in this account and region. Default: a new bucket, which is deleted with the stack.",
    )
    prefix: str = Field(
        default="model_repository",
        pattern=PATH,
        description="Prefix of the keys of all files. Servers that share a bucket need different prefixes.",
    )


Repository = Annotated[ConfigMapRepository | S3Repository, Field(discriminator="kind")]
"""Where Triton's model repository is kept; ``kind`` selects the type."""


class EphemeralCache(Spec):
    """Downloads from the Hugging Face Hub on the node's disk (local NVMe if it has any), for the lifetime of the pod."""

    kind: Literal["ephemeral"] = Field(default="ephemeral", description="A volume of the pod.")
    size_gib: int | None = Field(
        default=None,
        ge=1,
        description="Disk reserved; a pod that uses more is evicted. Default: twice the weights of a model in the catalog, but "
        "at least 20; 100 for other models.",
    )


def _not_of_the_system(path: str) -> str:
    # nodeadm, "localStorage": RAID0 mounts the local disks there and moves the folders of containerd and kubelet onto them.
    if f"{path}/".startswith("/mnt/k8s-disks/"):
        raise ValueError(f"{path} belongs to containerd and the kubelet: whoever owns it owns the node; choose another folder")
    return path


HostFolder = Annotated[
    str,
    Form(
        r"/(data|mnt|srv|var/cache)(/\w[\w.-]*)+",
        "a folder below /data, /mnt, /srv or /var/cache: the container that gives it to Triton runs as root and could give away "
        "what belongs to the system",
    ),
    AfterValidator(_not_of_the_system),
]


class HostPathCache(Spec):
    """Downloads from the Hugging Face Hub in a folder of the node, as in the source system. They outlive the pod.

    This needs two exceptions to Pod Security "restricted". Only "privileged" allows host folders. A folder that the kubelet
    creates belongs to root, so a container that runs as root gives it to Triton's user before each start.
    """

    kind: Literal["host_path"] = Field(default="host_path", json_schema_extra=stated, description="A folder of the node.")
    path: HostFolder = Field(
        default="/var/cache/huggingface",
        description="The folder, below /data, /mnt, /srv or /var/cache; created if it does not exist.",
    )


Cache = Annotated[EphemeralCache | HostPathCache, Field(discriminator="kind")]
"""Where downloads from the Hugging Face Hub are kept; ``kind`` selects the type."""


def _settings_once(extra_args: Mapping[str, Any]) -> None:
    twice = {key: SETTINGS_OF_THEIR_OWN[key] for key in extra_args if key in SETTINGS_OF_THEIR_OWN}
    if twice:
        instead = ", ".join(f"{key}: use {setting}" for key, setting in twice.items())
        raise ValueError(f"extra_args: these flags have settings of their own ({instead})")


class FurtherModel(Spec):
    """Another model in the pods of a Triton server, which shares their GPUs with the first."""

    model: HubModel = Field(description="The model and its source.")
    gpu_memory_utilization: float = Field(
        gt=0,
        lt=1,
        description="Share of the GPU's memory that vLLM may use for this model. The shares of all models are 1 at most.",
    )
    tensor_parallel: int | None = Field(
        default=None,
        ge=1,
        description="GPUs that one copy of the model is split over. Default: all of the pod. 1: each GPU of the pod gets a copy.",
    )
    max_model_len: int | None = Field(
        default=None, ge=1, description="Maximum length of a sequence (prompt and answer), in tokens. Default: that of the model."
    )
    max_num_seqs: int | None = Field(
        default=None, ge=1, description="Sequences that one copy processes at once. Default: as for the first model."
    )
    enforce_eager: bool = Field(default=False, description="Run without compiled CUDA graphs, which take memory, too.")
    extra_args: ExtraArgs = Field(default_factory=dict, description="Further arguments of vLLM's engine for this model.")

    @model_validator(mode="after")
    def _keys_given_once(self) -> Self:
        _settings_once(self.extra_args)
        return self


class TritonServerSpec(ReplicatedServerSpec, EngineFeatures):
    """Triton Inference Server with the vLLM back end on NVIDIA GPUs.

    It speaks Triton's own protocol (KServe v2) over HTTP and gRPC. Clients of the OpenAI API need a ``vllm`` server.
    """

    engine_servers: ClassVar[tuple[str, ...]] = ("triton",)
    accelerators: ClassVar[tuple[str, ...]] = ("nvidia",)

    kind: Literal["triton"] = "triton"
    model_name: ModelName | None = Field(
        default=None, description="Name of the model in requests. Default: the last part of the model's id."
    )
    further_models: dict[ModelName, FurtherModel] = Field(
        default_factory=dict,
        exclude_if=operator.not_,
        description="More models in every pod, by their name in requests. They share the GPUs with the first, whose "
        "gpu_memory_utilization must leave them memory, and load one after the other.",
    )
    engine: EngineName = DEFAULT_ENGINE
    image: PinnedImage | None = Field(
        default=None, description="Image that replaces the engine profile's, with the same vLLM release."
    )
    tensor_parallel: int | None = Field(
        default=None,
        ge=1,
        description="GPUs that one copy of the model is split over. Default: all of the pod. 1: each GPU of the pod gets a copy.",
    )
    max_model_len: int | None = Field(
        default=None,
        ge=1,
        description="Maximum length of a sequence (prompt and answer), in tokens. Default: that of the model.",
    )
    max_num_seqs: int | None = Field(
        default=None,
        ge=1,
        description="Sequences that one copy processes at once. Default: that of vLLM, which is 256, or 1024 on GPUs newer than "
        "A100 with 70 GiB or more. The KV cache is paged: sequences that do not fit wait.",
    )
    gpu_memory_utilization: float = Field(
        default=0.9,
        gt=0,
        lt=1,
        description="Share of the GPU's memory that vLLM may use for weights, KV cache and all else.",
    )
    enforce_eager: bool = Field(
        default=False, description="Run without compiled CUDA graphs: faster start, less memory, slower answers."
    )
    log_stats: bool = Field(
        default=True,
        description="Collect vLLM metrics. The source system does not, and so sees neither tokens nor engine latency.",
    )
    report_custom_metrics: bool = Field(
        default=True, description="Let Triton export vLLM metrics on its own metrics port. Releases since 24.08 can."
    )
    engine_health_check: bool = Field(
        default=False,
        description="Check the health of vLLM with every request. An unhealthy pod is removed from the Service.",
    )
    repository: Repository = Field(
        default_factory=lambda: ConfigMapRepository(), description="Where the model repository is kept. Default: a ConfigMap."
    )
    cache: Cache = Field(
        default_factory=lambda: EphemeralCache(),
        description="Where downloads from the Hugging Face Hub are kept. Default: in the pod. For models of the Hub only.",
    )
    prefetch: bool = Field(
        default=False,
        description="Keep the image on all nodes of the pool with an idle DaemonSet. This helps only on long-lived nodes: a new "
        "node pulls the image for both at the same time.",
    )
    shared_memory_gib: int = Field(
        default=2,
        ge=1,
        description="Size of /dev/shm, a part of the memory. Triton, its back end and the GPUs of one copy communicate there.",
    )

    @property
    def served_name(self) -> str:
        """Name of the model in requests, and of its folder in the model repository."""
        return self.model_name or self.model.id.rpartition("/")[2]

    @property
    def models(self) -> tuple[ModelSource, ...]:
        return (self.model, *(further_model.model for further_model in self.further_models.values()))

    def alone(self, name: str) -> "TritonServerSpec":
        """Returns the server as it would be with only that further model, which has none of the first one's features."""
        further = self.further_models[name]
        own = {key: getattr(further, key) for key in FurtherModel.model_fields}
        features = {key: field.get_default(call_default_factory=True) for key, field in EngineFeatures.model_fields.items()}
        return self.model_copy(update={**features, **own, "model_name": name, "further_models": {}})

    @property
    def needs_role(self) -> bool:
        """Whether the pods need permissions in AWS."""
        return isinstance(self.repository, S3Repository) or isinstance(self.model, S3Model)

    @model_validator(mode="after")
    def _keys_given_once(self) -> Self:
        _settings_once(self.extra_args)
        return self

    @model_validator(mode="after")
    def _models_have_names(self) -> Self:
        if not re.match(_MODEL_NAME, self.served_name):
            raise ValueError(f"model_name: {self.served_name} is no name of a folder that Triton reads; give another")
        if self.served_name in self.further_models:
            raise ValueError(f"further_models: the first model has the name {self.served_name}; give one of them another")
        return self

    @model_validator(mode="after")
    def _features_are_set_once(self) -> Self:
        settings = self.feature_settings(self.engine, max_model_len=self.max_model_len, max_num_seqs=self.max_num_seqs)
        if twice := set_twice(settings, self.extra_args):
            raise ValueError(f"extra_args: {', '.join(twice)}: keys of the server set this too; leave it out here")
        return self

    @model_validator(mode="after")
    def _cache_is_for_downloads(self) -> Self:
        if isinstance(self.cache, HostPathCache) and not isinstance(self.model, HubModel):
            raise ValueError(f"cache: a model of kind {self.model.kind} does not come from the Hugging Face Hub; leave cache out")
        return self
