"""What a user decides about a pair of servers, one for prefill and one for decode, on Trn2."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from eks_inference.catalog.instances import InstanceType, instance_type
from eks_inference.images.spec import PinnedImage
from eks_inference.pools.spec import InstanceTypeName
from eks_inference.serving.shape import Operator, PoolChoice, ServerSpec
from eks_inference.serving.spec import Argument, EngineName, HubModel
from eks_inference.spec import Quantity, ResourceName, Spec
from eks_inference.storage.spec import EfsStoreSpec, FileSystem, StoreSpec

_SHORTEST_CONTEXT_BUCKET = 256
_SHORTEST_GENERATION_BUCKET = 512

Capability = Literal["IPC_LOCK", "SYS_ADMIN"]


class CompileOptions(Spec):
    """How the model is compiled: options of NxD Inference's ``inference_demo`` by their names, with the source system's values.

    Degree, batch and lengths are the pair's own settings. Everything here is part of the artifact's key: a change compiles anew.
    Source: NxD Inference API guide; tutorial "Disaggregated Inference on Trn2", compile.sh.
    """

    model_type: str = Field(default="llama", pattern=r"^[a-z0-9_]+$", description="Architecture, as NxD Inference names it.")
    torch_dtype: Literal["bfloat16", "float16", "float32"] = Field(default="bfloat16", description="Type of the weights.")
    logical_nc_config: Literal[1, 2] = Field(
        default=2, description="NeuronCores that form a logical core (LNC); must be what the nodes are set to."
    )
    ctx_batch_size: Literal[1] = Field(default=1, description="Prompts a prefill works on at once; NxD Inference takes 1 only.")
    is_continuous_batching: bool = Field(default=True, description="Sequences join and leave a batch while it runs.")
    apply_seq_ids_mask: bool = Field(
        default=True,
        description="Write the KV cache of the current sequence only. A pair needs it: without it answers are wrong, silently.",
    )
    enable_prefix_caching: bool = Field(default=False, description="Keep the KV cache of prompts. A pair cannot.")
    enable_bucketing: bool = Field(default=True, description="Compile for several lengths instead of the longest only.")
    context_encoding_buckets: tuple[int, ...] | None = Field(
        default=None, min_length=1, description="Lengths prefill is compiled for. Default: powers of 2 from 256 to max_model_len."
    )
    token_generation_buckets: tuple[int, ...] | None = Field(
        default=None, min_length=1, description="Lengths decode is compiled for. Default: powers of 2 from 512 to max_model_len."
    )
    on_device_sampling: bool = Field(default=True, description="Choose tokens on the device.")
    do_sample: bool = Field(default=True, description="Draw tokens at random instead of taking the likeliest.")
    dynamic: bool = Field(default=True, description="Let every request set top_k, top_p and temperature.")
    global_topk: int = Field(default=256, ge=1, description="Candidates that are drawn from; no request can have a larger top_k.")
    top_k: int = Field(default=50, ge=1, description="Candidates, where a request does not say.")
    top_p: float = Field(default=0.9, gt=0, le=1, description="Probability the candidates make up, where a request does not say.")
    temperature: float = Field(default=0.7, ge=0, description="Temperature, where a request does not say.")
    fused_qkv: bool = Field(default=True, description="One matrix for queries, keys and values; the QKV kernel needs it.")
    qkv_kernel_enabled: bool = Field(default=True, description="Kernel for the QKV projection.")
    attn_kernel_enabled: bool = Field(default=True, description="Kernel for attention in prefill.")
    mlp_kernel_enabled: bool = Field(default=True, description="Kernel for the MLP.")
    attn_block_tkg_nki_kernel_enabled: bool = Field(default=True, description="Kernel for an attention block in decode.")
    attn_block_tkg_nki_kernel_cache_update: bool = Field(default=True, description="That kernel also writes the KV cache.")
    k_cache_transposed: bool = Field(default=True, description="Layout of the keys in the cache that this kernel wants.")
    sequence_parallel_enabled: bool = Field(
        default=True, description="Split norms over the sequence; lengths must then be multiples of the degree."
    )
    cc_pipeline_tiling_factor: int = Field(default=1, ge=1, description="Pieces that computation and communication overlap in.")
    async_mode: bool = Field(default=True, description="Prepare the next step while the device computes this one.")
    save_sharded_checkpoint: bool = Field(
        default=True, description="Keep the weights split by core beside the graphs: fast to load, as large as the model."
    )
    pad_token_id: int = Field(default=2, ge=0, description="Token that fills up short prompts.")
    extra_args: dict[Argument, str | int | float | bool] = Field(
        default_factory=dict,
        description="Further options of inference_demo, without the dashes; true is an option without value.",
    )

    def context_buckets(self, longest: int) -> tuple[int, ...]:
        return self.context_encoding_buckets or _powers_of_two(_SHORTEST_CONTEXT_BUCKET, longest)

    def generation_buckets(self, longest: int) -> tuple[int, ...]:
        return self.token_generation_buckets or _powers_of_two(_SHORTEST_GENERATION_BUCKET, longest)


def _powers_of_two(first: int, longest: int) -> tuple[int, ...]:
    """From ``first``, doubling, up to ``longest``, which always closes the row."""
    sizes = []
    while first < longest:
        sizes.append(first)
        first *= 2
    return (*sizes, longest)


class RoleSpec(Spec):
    """What only one of the two servers gets."""

    extra_args: dict[Argument, str | int | float | bool] = Field(
        default_factory=dict, description="Further flags of vLLM, without the dashes; true and false become --flag and --no-flag."
    )
    extra_env: dict[str, str] = Field(default_factory=dict, description="Further environment variables. They win.")


class RouterSpec(Spec):
    """What clients talk to: sends each request to both servers and puts their answers together."""

    pool: ResourceName | None = Field(
        default=None, description="Pool it runs in. Default: on the node of prefill, which saves a hop to the first token."
    )
    instance_type: InstanceTypeName | None = Field(
        default=None, description="Instance type; may be left out when the pool has one."
    )
    replicas: int = Field(default=1, ge=1, le=10, description="Pods. They share nothing.")
    cpu: Quantity = Field(default="2", description="CPU of one pod, request.")
    memory: Quantity = Field(default="1Gi", description="Memory of one pod, request and limit.")


class DisaggregatedPairSpec(ServerSpec):
    """Disaggregated inference: one prefill server and one decode server; the KV cache goes from one to the other over EFA.

    Static: both are started together, know each other from the start, and are restarted together. It runs vLLM's V0 engine with
    NxD Inference, of which engine profile neuron-2.26-vllm-0.9 is the last; new work belongs on engines with NIXL.
    """

    kind: Literal["disaggregated"] = Field(description="Prefill and decode in two servers.")
    model: HubModel = Field(description="The model. A Job downloads it into the store once for each revision.")
    engine: EngineName = "neuron-2.26-vllm-0.9"
    image: PinnedImage | None = Field(default=None, description="Image of the servers. Default: the engine profile's.")
    pool: ResourceName = Field(description="Managed pool with EFA that the servers run in.")
    instance_type: InstanceTypeName = Field(
        default="trn2.48xlarge", description="Instance type of the servers' nodes; the only one the static form is offered for."
    )
    instances: Literal[1, 2] = Field(
        description="Nodes. 1: one pod holds both servers, prefill on the first half of the cores and decode on the second. 2: a "
        "pod and a node for each, started and restarted as one group."
    )
    serving: Literal["pair", "baseline"] = Field(
        default="pair",
        description="baseline: in place of the pair one server of the same artifact, without a transfer, to compare with. "
        "Clients keep their endpoint. It takes half of the pair's hardware.",
    )
    tensor_parallel: int | None = Field(
        default=None, ge=1, description="Cores each server splits the model over. Default: half of a node's with one, else all."
    )
    max_num_seqs: int = Field(default=4, ge=1, description="Sequences decode works on at once; the batch it is compiled for.")
    max_model_len: int = Field(
        default=8192,
        ge=1,
        description="Longest sequence, prompt and answer together, in tokens. The KV cache of this length is moved for every "
        "request, however short: no longer than needed.",
    )
    compile: CompileOptions = Field(default_factory=lambda: CompileOptions(), description="How the model is compiled.")
    compile_pool: ResourceName | None = Field(
        default=None,
        description="Pool with the same instance type that the compile Job runs in. Default: the servers' own; then a changed "
        "artifact stops them while it is compiled.",
    )
    compile_timeout_minutes: int = Field(default=240, ge=10, description="How long the compile Job may take.")
    download_timeout_minutes: int = Field(default=120, ge=10, description="How long the download may take.")
    store: StoreSpec = Field(
        default_factory=lambda: EfsStoreSpec(), description="File system with the model and the compiled artifacts."
    )
    router: RouterSpec = Field(default_factory=lambda: RouterSpec(), description="What clients talk to.")
    efa_interfaces: int | None = Field(
        default=None, ge=1, description="EFA interfaces one pod asks for. Default: all that the pool gives a node."
    )
    cpu: Quantity = Field(default="160", description="CPU of one pod of servers, request and limit.")
    memory: Quantity = Field(default="1500Gi", description="Memory of one pod of servers, request and limit; /dev/shm included.")
    shared_memory_gib: int = Field(default=128, ge=1, description="Size of /dev/shm.")
    capabilities: tuple[Capability, ...] = Field(
        default=("IPC_LOCK",),
        description="Linux capabilities of the servers beside none. IPC_LOCK: EFA pins memory, beyond the 8 MiB that a container "
        "may lock without it.",
    )
    extra_args: dict[Argument, str | int | float | bool] = Field(
        default_factory=dict,
        description="Further flags of vLLM on every server, without the dashes; true and false become --flag and --no-flag. They "
        "win.",
    )
    extra_env: dict[str, str] = Field(
        default_factory=dict, description="Further environment variables of every server. They win."
    )
    prefill: RoleSpec = Field(default_factory=lambda: RoleSpec(), description="What only the prefill server gets.")
    decode: RoleSpec = Field(default_factory=lambda: RoleSpec(), description="What only the decode server gets.")

    @property
    def shape(self) -> InstanceType:
        return instance_type(self.instance_type)

    @property
    def image_reference(self) -> str:
        return self.image or self.profile.image

    @property
    def operators(self) -> frozenset[Operator]:
        return frozenset({"leader_worker_set"}) if self.instances == 2 else frozenset()

    @property
    def file_systems(self) -> frozenset[FileSystem]:
        return frozenset({self.store.file_system})

    def main_pool(self) -> PoolChoice:
        return PoolChoice(self.pool, self.instance_type, accelerators=self.accelerators)

    def pools(self) -> Iterator[PoolChoice]:
        yield self.main_pool()
        if self.compile_pool:
            yield PoolChoice(self.compile_pool, self.instance_type, pool_key="compile_pool")
        if self.router.pool:
            yield PoolChoice(self.router.pool, self.router.instance_type, under=("router",))

    @property
    def revision(self) -> str:
        """What of the model's repository is taken."""
        return self.model.revision or "main"

    @model_validator(mode="after")
    def _has_neuron_devices(self) -> Self:
        if not self.shape.neuron:
            raise ValueError(f"{self.instance_type} has no Neuron devices")
        return self

    @model_validator(mode="after")
    def _options_are_given_once(self) -> Self:
        """An option that is a setting is not an extra one, or two of them could differ."""
        settings = {name.replace("_", "-") for name in CompileOptions.model_fields} | DERIVED_OPTIONS
        twice = sorted(self.compile.extra_args.keys() & settings)
        if twice:
            raise ValueError(f"compile.extra_args: {', '.join(twice)} are settings of their own; give them there")
        return self


DERIVED_OPTIONS = frozenset(
    {
        "task-type",
        "model-path",
        "compiled-model-path",
        "tp-degree",
        "batch-size",
        "tkg-batch-size",
        "max-context-length",
        "seq-len",
        "logical-neuron-cores",
        "prompt",
        "compile-only",
    }
)
"""Options of ``inference_demo`` that follow from the pair's own settings."""
