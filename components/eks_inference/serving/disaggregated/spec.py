"""The settings of a prefill and decode pair on Trn2."""

import operator
from collections.abc import Iterator
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from eks_inference.catalog.instances import InstanceType, instance_type
from eks_inference.images.spec import PinnedImage
from eks_inference.pools.spec import InstanceTypeName
from eks_inference.serving.shape import Helper, Operator, PoolChoice, ServerSpec
from eks_inference.serving.spec import Argument, EngineName, ExtraArgs, HubModel
from eks_inference.specs.base import Cpu, Memory, ResourceName, Spec, Variable, stated
from eks_inference.storage.spec import EfsStoreSpec, FileSystem, StoreSpec

Capability = Literal["IPC_LOCK", "SYS_ADMIN"]


class CompileOptions(Spec):
    """How the model is compiled: options of NxD Inference's ``inference_demo`` by name, with the source system's values.

    The pair's own settings determine degree, batch and lengths. Every option is part of the artifact's key: a change recompiles.
    Source: NxD Inference API guide; tutorial "Disaggregated Inference on Trn2", compile.sh.
    """

    model_type: str = Field(default="llama", pattern=r"^[a-z0-9_]+$", description="Architecture, by its name in NxD Inference.")
    torch_dtype: Literal["bfloat16", "float16", "float32"] = Field(default="bfloat16", description="Type of the weights.")
    logical_nc_config: Literal[1, 2] = Field(default=2, description="NeuronCores per logical core (LNC); must match the nodes.")
    ctx_batch_size: Literal[1] = Field(default=1, description="Prompts per prefill step. NxD Inference supports only 1.")
    is_continuous_batching: bool = Field(default=True, description="Sequences join and leave a running batch.")
    enable_bucketing: bool = Field(default=True, description="Compile for several lengths instead of only the longest.")
    context_encoding_buckets: tuple[int, ...] | None = Field(
        default=None,
        min_length=1,
        description="Lengths that prefill is compiled for. Default: powers of 2 from 256 to max_model_len.",
    )
    token_generation_buckets: tuple[int, ...] | None = Field(
        default=None,
        min_length=1,
        description="Lengths that decode is compiled for. Default: powers of 2 from 512 to max_model_len.",
    )
    on_device_sampling: bool = Field(default=True, description="Sample tokens on the device.")
    do_sample: bool = Field(default=True, description="Sample tokens at random instead of choosing the most likely one.")
    dynamic: bool = Field(default=True, description="Let requests set top_k, top_p and temperature.")
    global_topk: int = Field(default=256, ge=1, description="Candidates that the sampler keeps: the largest top_k of a request.")
    top_k: int = Field(default=50, ge=1, description="Default top_k of requests.")
    top_p: float = Field(default=0.9, gt=0, le=1, description="Default top_p of requests.")
    temperature: float = Field(default=0.7, ge=0, description="Default temperature of requests.")
    fused_qkv: bool = Field(default=True, description="Fuse the matrices for queries, keys and values. The QKV kernel needs it.")
    qkv_kernel_enabled: bool = Field(default=True, description="Use the kernel for the QKV projection.")
    attn_kernel_enabled: bool = Field(default=True, description="Use the kernel for attention in prefill.")
    mlp_kernel_enabled: bool = Field(default=True, description="Use the kernel for the MLP.")
    attn_block_tkg_nki_kernel_enabled: bool = Field(default=True, description="Use the attention block kernel in decode.")
    attn_block_tkg_nki_kernel_cache_update: bool = Field(default=True, description="Let that kernel also write the KV cache.")
    k_cache_transposed: bool = Field(default=True, description="Store keys transposed, as that kernel requires.")
    sequence_parallel_enabled: bool = Field(
        default=True, description="Split norms over the sequence. Lengths must then be multiples of the degree."
    )
    cc_pipeline_tiling_factor: int = Field(default=1, ge=1, description="Tiles in which computation and communication overlap.")
    async_mode: bool = Field(default=True, description="Prepare the next step while the device computes the current one.")
    save_sharded_checkpoint: bool = Field(
        default=True,
        description="Store the weights per core with the graphs. They load fast and take as much space as the model.",
    )
    pad_token_id: int = Field(default=2, ge=0, description="Token that pads short prompts.")
    extra_args: dict[Argument, str | int | float | bool] = Field(
        default_factory=dict,
        description="Additional options of inference_demo without the dashes; true means an option without a value.",
    )

    def context_buckets(self, longest: int) -> tuple[int, ...]:
        return self.context_encoding_buckets or _powers_of_two(256, longest)

    def generation_buckets(self, longest: int) -> tuple[int, ...]:
        return self.token_generation_buckets or _powers_of_two(512, longest)


def _powers_of_two(first: int, longest: int) -> tuple[int, ...]:
    """Returns sizes that double from ``first``, and ``longest`` as the last."""
    sizes = []
    while first < longest:
        sizes.append(first)
        first *= 2
    return (*sizes, longest)


class RoleSpec(Spec):
    """Settings of only one of the two servers."""

    extra_args: ExtraArgs = Field(
        default_factory=dict, description="Additional vLLM flags without the dashes; true and false become --flag and --no-flag."
    )
    extra_env: dict[Variable, str] = Field(
        default_factory=dict, description="Additional environment variables. They take precedence."
    )


class RouterSpec(Spec):
    """The router, which clients call. It sends each request to both servers and combines their answers."""

    pool: ResourceName | None = Field(
        default=None,
        description="Pool of the router. Default: the node of prefill, which saves a network hop to the first token.",
    )
    instance_type: InstanceTypeName | None = Field(default=None, description="Instance type. Optional if the pool has only one.")
    replicas: int = Field(
        default=1, ge=1, le=10, description="Pods of the router, which share no state: each takes its part of max_num_seqs."
    )
    cpu: Cpu = Field(default="2", description="CPU request of one pod.")
    memory: Memory = Field(default="1Gi", description="Memory request and limit of one pod.")


class DisaggregatedPairSpec(ServerSpec):
    """Disaggregated inference: a prefill server sends the KV cache of each request to a decode server over EFA.

    The pair is static: both servers start, know each other, and restart together. It runs vLLM's V0 engine with NxD Inference,
    which ends with engine profile neuron-2.26-vllm-0.9. For new deployments prefer engines with NIXL.
    """

    accelerators: ClassVar[tuple[str, ...]] = ("neuron",)

    kind: Literal["disaggregated"] = Field(
        default="disaggregated", json_schema_extra=stated, description="Prefill and decode in two servers."
    )
    model: HubModel = Field(description="The model. A Job downloads each revision into the store once.")
    engine: EngineName = "neuron-2.26-vllm-0.9"
    image: PinnedImage | None = Field(default=None, description="Image of the servers. Default: the engine profile's.")
    pool: ResourceName = Field(
        default="", json_schema_extra=stated, exclude_if=operator.not_, description="Managed pool with EFA for the servers."
    )
    instance_type: InstanceTypeName = Field(
        default="trn2.48xlarge", description="Instance type of the servers' nodes. Static pairs support no other."
    )
    instances: Literal[1, 2] = Field(
        description="Number of nodes. 1: one pod runs both servers, prefill on the first half of the cores and decode on the "
        "second. 2: each server has a pod and a node of its own, which start and restart as one group."
    )
    serving: Literal["pair", "baseline"] = Field(
        default="pair",
        description="baseline: replaces the pair with one server of the same artifact, without a transfer, for comparison. "
        "Clients keep their endpoint. It uses half of the pair's hardware.",
    )
    tensor_parallel: int | None = Field(
        default=None,
        ge=1,
        description="Cores per server, over which it splits the model. Default: all of its node, or half if shared.",
    )
    max_num_seqs: int = Field(default=4, ge=1, description="Sequences decode processes at once: the batch it is compiled for.")
    max_model_len: int = Field(
        default=8192,
        ge=1,
        description="Longest sequence (prompt plus answer), in tokens. Every request, however short, transfers a KV cache of "
        "this length: choose it no longer than needed.",
    )
    compile: CompileOptions = Field(default_factory=lambda: CompileOptions(), description="How the model is compiled.")
    compile_pool: ResourceName | None = Field(
        default=None,
        description="Pool of the compile Job, with the same instance type. Default: the servers' pool; a changed artifact then "
        "stops them during the compilation.",
    )
    compile_timeout_minutes: int = Field(default=240, ge=10, description="Time limit of the compile Job, in minutes.")
    download_timeout_minutes: int = Field(default=120, ge=10, description="Time limit of the download, in minutes.")
    store: StoreSpec = Field(default_factory=lambda: EfsStoreSpec(), description="File system for model and artifacts.")
    router: RouterSpec = Field(default_factory=lambda: RouterSpec(), description="The router, which clients call.")
    cpu: Cpu = Field(default="160", description="CPU request and limit of one server pod.")
    memory: Memory = Field(default="1500Gi", description="Memory request and limit of one server pod, including /dev/shm.")
    shared_memory_gib: int = Field(default=128, ge=1, description="Size of /dev/shm.")
    capabilities: tuple[Capability, ...] = Field(
        default=("IPC_LOCK",),
        description="The only Linux capabilities of the servers. IPC_LOCK lets EFA pin more memory than the 8 MiB that every "
        "container may lock.",
    )
    extra_args: ExtraArgs = Field(
        default_factory=dict,
        description="Additional vLLM flags of all servers without the dashes; true and false become --flag and --no-flag. They "
        "take precedence.",
    )
    extra_env: dict[Variable, str] = Field(
        default_factory=dict, description="Additional environment variables of all servers. They take precedence."
    )
    prefill: RoleSpec = Field(default_factory=lambda: RoleSpec(), description="Settings of only the prefill server.")
    decode: RoleSpec = Field(default_factory=lambda: RoleSpec(), description="Settings of only the decode server.")

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

    @property
    def helpers(self) -> tuple[Helper, ...]:
        if self.serving == "baseline":
            return ()
        place = PoolChoice(self.router.pool or self.pool, self.router.instance_type, under=("router",))
        return (Helper("router", place, self.router.replicas, self.router.cpu, self.router.memory),)

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
        """Revision of the model's repository."""
        return self.model.revision or "main"

    @model_validator(mode="after")
    def _every_router_has_a_slot(self) -> Self:
        if self.router.replicas > self.max_num_seqs:
            raise ValueError(
                f"router.replicas: {self.router.replicas} routers share {self.max_num_seqs} sequences (max_num_seqs)"
            )
        return self

    @model_validator(mode="after")
    def _options_are_given_once(self) -> Self:
        """Refuses extra options that are settings, because the two could differ."""
        settings = {name.replace("_", "-") for name in CompileOptions.model_fields} | DERIVED_OPTIONS
        if twice := sorted(self.compile.extra_args.keys() & settings):
            raise ValueError(f"compile.extra_args: {', '.join(twice)} are settings of the pair, or follow from them")
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
        "apply-seq-ids-mask",
        "enable-prefix-caching",
    }
)
"""Options of ``inference_demo`` that follow from the pair's own settings, or that each pair has alike."""
