"""What a user decides about a Triton server whose back end is vLLM."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from eks_inference.images.spec import PinnedImage
from eks_inference.pools.spec import BucketName
from eks_inference.serving.shape import ReplicatedServerSpec
from eks_inference.serving.spec import EngineName, HubModel, S3Model
from eks_inference.spec import Spec

DEFAULT_ENGINE = "triton-26.08-vllm-0.27"
"""The newest Triton whose vLLM release the catalog knows."""

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
"""Arguments of the engine that follow from other keys of the spec, and from which."""


ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]{0,62}$")]


class ConfigMapRepository(Spec):
    """The model repository as a ConfigMap: two small files, read from the API server. Nothing in AWS."""

    kind: Literal["config_map"] = Field(default="config_map", description="In a ConfigMap.")


class S3Repository(Spec):
    """The model repository in S3, as the source system has it, copied into the pod before Triton starts.

    The pods' own role reads it, by EKS Pod Identity. Triton could read S3 itself, but takes credentials once, and those of Pod
    Identity expire within hours.
    """

    kind: Literal["s3"] = Field(description="In S3.")
    bucket: BucketName | None = Field(
        default=None,
        description="Bucket that exists, in this account and region. Default: one is made, which goes with the stack.",
    )
    prefix: str = Field(
        default="model_repository",
        pattern=r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$",
        description="What the keys of all files begin with. Servers that share a bucket need one each.",
    )


Repository = Annotated[ConfigMapRepository | S3Repository, Field(discriminator="kind")]
"""Where Triton's model repository is kept, told apart by ``kind``."""


class EphemeralCache(Spec):
    """Downloads of the Hugging Face Hub on the node's disk, for the life of the pod: on local NVMe where the node has it."""

    kind: Literal["ephemeral"] = Field(default="ephemeral", description="A volume of the pod.")
    size_gib: int | None = Field(
        default=None,
        ge=1,
        description="Disk set aside; more than this ends the pod. Default: twice the weights of a model that the catalog knows, "
        "at least 20, and 100 for others.",
    )


class HostPathCache(Spec):
    """Downloads of the Hugging Face Hub in a folder of the node, as the source system has it: they outlive the pod.

    Two exceptions to Pod Security "restricted" come with it: host folders are forbidden to pods below "privileged", and a folder
    that the kubelet makes belongs to root, so a container that runs as root hands it to Triton's user before each start.
    """

    kind: Literal["host_path"] = Field(description="A folder of the node.")
    path: str = Field(
        default="/var/cache/huggingface", pattern=r"^(/[\w.-]+){2,}$", description="The folder; made when it is not there."
    )


Cache = Annotated[EphemeralCache | HostPathCache, Field(discriminator="kind")]
"""Where downloads of the Hugging Face Hub stay, told apart by ``kind``."""


class TritonServerSpec(ReplicatedServerSpec):
    """Triton Inference Server with the vLLM back end on NVIDIA GPUs.

    It speaks Triton's own protocol (KServe v2) over HTTP and gRPC, not the OpenAI API: clients of that need a ``vllm`` server.
    """

    engine_servers: ClassVar[tuple[str, ...]] = ("triton",)
    accelerators: ClassVar[tuple[str, ...]] = ("nvidia",)

    kind: Literal["triton"] = "triton"
    model_name: ModelName | None = Field(
        default=None, description="The name requests give the model. Default: the last part of the model's id."
    )
    engine: EngineName = DEFAULT_ENGINE
    image: PinnedImage | None = Field(
        default=None, description="Image instead of the engine profile's, of the same vLLM release."
    )
    tensor_parallel: int | None = Field(
        default=None,
        ge=1,
        description="GPUs one copy of the model is split over. Default: all of the pod. 1: each GPU of the pod gets a copy.",
    )
    max_model_len: int | None = Field(
        default=None, ge=1, description="Longest sequence, prompt and answer together, in tokens. Default: the model's own."
    )
    max_num_seqs: int | None = Field(
        default=None,
        ge=1,
        description="Sequences one copy works on at once. Default: vLLM's own, 256, or 1024 on GPUs of 70 GiB or more that are "
        "newer than A100. The KV cache is paged: sequences that find no room in it wait.",
    )
    gpu_memory_utilization: float = Field(
        default=0.9, gt=0, le=1, description="Share of the GPU's memory that weights, KV cache and all else of vLLM may take."
    )
    dtype: Literal["auto", "bfloat16", "float16"] = Field(
        default="auto", description="Type of weights and arithmetic. auto: the model's own. T4 GPUs have no bfloat16."
    )
    enforce_eager: bool = Field(
        default=False, description="Run without compiled CUDA graphs: a faster start, less memory, slower answers."
    )
    log_stats: bool = Field(
        default=True, description="Let vLLM count. The source system has it off, and so sees no token, no latency of the engine."
    )
    report_custom_metrics: bool = Field(
        default=True, description="Let Triton report what vLLM counts, on its own metrics port; releases since 24.08 do."
    )
    engine_health_check: bool = Field(
        default=False,
        description="Ask vLLM whether it is well with every request, and take the pod out of its Service when it is not.",
    )
    repository: Repository = Field(
        default_factory=lambda: ConfigMapRepository(), description="Where the model repository is kept. Default: a ConfigMap."
    )
    cache: Cache = Field(
        default_factory=lambda: EphemeralCache(),
        description="Where downloads of the Hugging Face Hub stay. Default: in the pod. Of no use to models from S3 or a volume.",
    )
    prefetch: bool = Field(
        default=False,
        description="Keep the image on all nodes of the pool, by a DaemonSet that does nothing. Of use where nodes stay: a new "
        "node pulls for both at the same time.",
    )
    shared_memory_gib: int = Field(
        default=2,
        ge=1,
        description="Size of /dev/shm, a part of the memory: Triton and its back end talk through it, and GPUs of one copy.",
    )

    @property
    def served_name(self) -> str:
        """The name requests give the model, and that of its folder in the model repository."""
        return self.model_name or self.model.id.rpartition("/")[2]

    @property
    def needs_role(self) -> bool:
        """Whether the pods need permissions in AWS."""
        return isinstance(self.repository, S3Repository) or isinstance(self.model, S3Model)

    @model_validator(mode="after")
    def _keys_given_once(self) -> Self:
        twice = {key: SETTINGS_OF_THEIR_OWN[key] for key in self.extra_args if key in SETTINGS_OF_THEIR_OWN}
        if twice:
            instead = ", ".join(f"{key}: say {setting}" for key, setting in twice.items())
            raise ValueError(f"extra_args: these flags have settings of their own ({instead})")
        return self

    @model_validator(mode="after")
    def _cache_is_for_downloads(self) -> Self:
        if isinstance(self.cache, HostPathCache) and not isinstance(self.model, HubModel):
            raise ValueError(
                f"cache: a model of kind {self.model.kind} is not downloaded from the Hugging Face Hub; leave it out"
            )
        return self
