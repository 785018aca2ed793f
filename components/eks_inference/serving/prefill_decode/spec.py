"""What a user decides about prefill and decode servers that hand KV caches over by NIXL."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from eks_inference.catalog.nixl import leases, side_channel
from eks_inference.images.spec import PinnedImage
from eks_inference.pools.spec import InstanceTypeName
from eks_inference.scaling.spec import AutoscalerSpec, KedaSpec
from eks_inference.serving.features import OpenAiFeatures, set_twice
from eks_inference.serving.shape import Helper, PodsSpec, PoolChoice, ServerSpec, unshared
from eks_inference.serving.spec import ExtraArgs, VolumeCompileCache
from eks_inference.specs.base import MOST_PODS, Cpu, Memory, ResourceName, Spec, Variable, stated

Role = Literal["prefill", "decode"]
"""What a server does with requests: process prompts, or generate the answers."""

ROLES: tuple[Role, ...] = get_args(Role)

Policy = Literal["cache_aware", "consistent_hash", "power_of_two", "random", "round_robin"]
"""How a router chooses a server (vllm-router 0.1.17)."""


class KvTransferSpec(Spec):
    """How KV caches go from prefill to decode: NIXL over libfabric and EFA; decode reads from prefill."""

    lease_seconds: int = Field(
        default=leases().most_s,
        ge=1,
        le=3600,
        description="How long prefill keeps the KV cache of a request that decode has not read. What decode reads later may be "
        f"another request's, without an error: vLLM's own {leases().engine_default_s} seconds were too short under load. "
        f"Longer than the longest wait for decode: {leases().least_s} to {leases().most_s}.",
    )
    failure_policy: Literal["fail", "recompute"] = Field(
        default="fail",
        description="When a KV cache cannot be read: fail answers with an error, recompute lets decode process the prompt, which "
        "slows down the answers beside it.",
    )
    security: Literal["ipc_lock", "privileged"] = Field(
        default="ipc_lock",
        description="What lets the servers pin memory for EFA: the capability IPC_LOCK alone, or privileged containers. Sources "
        "disagree on what GPUs need (llm-d: IPC_LOCK; NVIDIA Dynamo: privileged); no source covers Neuron.",
    )
    side_channel_port: int = Field(
        default=side_channel().default_port,
        ge=1024,
        le=65535,
        description="Port on each server where the other kind asks for the place of KV caches.",
    )


class RoleServersSpec(PodsSpec):
    """The prefill or the decode servers: equal pods, each with a whole copy of the model."""

    replicas: int = Field(
        default=1,
        ge=1,
        le=MOST_PODS,
        description="Number of pods; the routers choose among them. A router becomes ready only with one of each kind.",
    )
    tensor_parallel: int = Field(ge=1, description="NeuronCores or GPUs that one copy of the model is split over.")
    max_num_seqs: int = Field(
        ge=1, description="Sequences that one server processes at once. On Neuron: the compiled batch size."
    )
    max_num_batched_tokens: int | None = Field(
        default=None, ge=1, description="Tokens that one server processes in a step. Default: the engine's."
    )
    efa_interfaces: int | None = Field(
        default=None,
        ge=1,
        description="EFA interfaces of one pod, over which KV caches go. Default: its devices' share of those of a node.",
    )
    autoscaling: KedaSpec | None = Field(
        default=None,
        description="Autoscaler that sets the number of pods instead of replicas. Prefill scales by requests that wait and, if "
        "given, by the time to the first token (waiting_requests, first_token_seconds); decode by its KV cache and, if given, by "
        "the time between tokens (kv_cache_use, token_seconds). Default: none.",
    )
    disk_gib: int = Field(
        default=100,
        ge=10,
        description="Node disk reserved for what one pod downloads, compiles and writes; a pod that uses more is evicted. A "
        "model copied from S3 needs its own size_gib in addition.",
    )
    extra_args: ExtraArgs = Field(
        default_factory=dict,
        description="Further engine flags of these servers only, without the dashes. They override those of both.",
    )
    extra_env: dict[Variable, str] = Field(
        default_factory=dict, description="Further environment variables of these servers only. They override those of both."
    )


class VllmRouterSpec(Spec):
    """vllm-router, which clients call. It sends each prompt to prefill, and then the request to decode, which answers."""

    pool: ResourceName | None = Field(default=None, description="Pool of the routers. Default: the stack's core pool.")
    instance_type: InstanceTypeName | None = Field(default=None, description="Instance type. Optional if the pool has only one.")
    replicas: int = Field(default=2, ge=1, le=10, description="Pods of the router. They share no state.")
    policy: Policy = Field(
        default="cache_aware",
        description="How a server is chosen. cache_aware: one that likely has the beginning of the prompt in its cache; each "
        "router knows only what it sent itself.",
    )
    prefill_policy: Policy | None = Field(default=None, description="Policy for prefill. Default: policy.")
    decode_policy: Policy | None = Field(default=None, description="Policy for decode. Default: policy.")
    request_timeout_seconds: int = Field(default=1800, ge=1, description="Longest time for one request, its stream included.")
    cpu: Cpu = Field(default="500m", description="CPU request of one pod.")
    memory: Memory = Field(default="1Gi", description="Memory request and limit of one pod.")


_NOT_ITS_SIGNAL: Mapping[Role, str] = {
    # Blocks that wait to be read fill it, and more prefill servers do not empty it.
    "prefill": "kv_cache_use",
    # Requests wait in decode for a KV cache to arrive.
    "decode": "waiting_requests",
}


def _by_its_signals(role: Role, scaler: KedaSpec) -> KedaSpec:
    """Returns an autoscaler without a signal that says nothing of the role, unless somebody gave it."""
    signal = _NOT_ITS_SIGNAL[role]
    return scaler if signal in scaler.model_fields_set else scaler.model_copy(update={signal: None})


class PrefillDecodeSpec(ServerSpec, OpenAiFeatures):
    """Disaggregated inference: prefill servers process prompts, decode servers read the KV caches over EFA and answer.

    All pods of a group run one image with equal settings; the group's revision is a hash of these. A change of the revision makes
    a new group.
    """

    placed_under: ClassVar[tuple[str, ...]] = ("decode",)

    kind: Literal["prefill_decode"] = Field(
        default="prefill_decode", json_schema_extra=stated, description="Prefill and decode servers with a router, over NIXL."
    )
    image: PinnedImage | None = Field(
        default=None, description="Image of all servers, with NIXL and the EFA libraries. Default: the engine profile's."
    )
    max_model_len: int = Field(ge=1, description="Maximum length of a sequence (prompt and answer together), in tokens.")
    compile_cache: VolumeCompileCache | None = Field(
        default=None,
        description="Volumes that keep compiled graphs between starts: one for prefill, one for decode, because their graphs "
        "differ. Default: none; every pod compiles when it starts.",
    )
    prefill: RoleServersSpec = Field(description="The prefill servers.")
    decode: RoleServersSpec = Field(description="The decode servers.")
    router: VllmRouterSpec = Field(default_factory=lambda: VllmRouterSpec(), description="The router, which clients call.")
    kv_transfer: KvTransferSpec = Field(
        default_factory=lambda: KvTransferSpec(), description="How KV caches go from prefill to decode."
    )
    serving: Literal["disaggregated", "baseline"] = Field(
        default="disaggregated",
        description="baseline: the same pods on the same nodes as plain servers without a transfer, for comparison. Those of "
        "prefill then have the settings of decode except for place, split and number.",
    )
    rollout: Literal["recreate", "second_group"] = Field(
        default="recreate",
        description="How a new revision replaces the old one. recreate: the old servers end first, and nothing answers until the "
        "new ones are up. second_group: a complete second group starts beside the old one, on free devices or new nodes, and "
        "ends the old one when it answers.",
    )

    @property
    def scalers(self) -> Mapping[str, AutoscalerSpec]:
        return {role: _by_its_signals(role, scaler) for role in ROLES if (scaler := self.role(role).autoscaling)}

    def role(self, role: Role) -> RoleServersSpec:
        return {"prefill": self.prefill, "decode": self.decode}[role]

    @property
    def image_reference(self) -> str:
        return self.image or self.profile.image

    @property
    def helpers(self) -> tuple[Helper, ...]:
        # Without a pool of its own, the stack's core pool.
        place = PoolChoice(self.router.pool or "", self.router.instance_type, under=("router",))
        return (Helper("router", place, self.router.replicas, self.router.cpu, self.router.memory),)

    def main_pool(self) -> PoolChoice:
        return self.pool_of("decode")

    def pool_of(self, role: Role) -> PoolChoice:
        own = self.role(role)
        return PoolChoice(own.pool, own.instance_type, under=(role,), accelerators=self.accelerators)

    def pools(self) -> Iterator[PoolChoice]:
        yield self.pool_of("decode")
        yield self.pool_of("prefill")
        if self.router.pool:
            yield PoolChoice(self.router.pool, self.router.instance_type, under=("router",))

    @model_validator(mode="after")
    def _features_are_set_once(self) -> Self:
        for role in ROLES:
            own = self.role(role)
            settings = self.feature_settings(self.engine, max_model_len=self.max_model_len, max_num_seqs=own.max_num_seqs)
            tokens = {"max-num-batched-tokens": own.max_num_batched_tokens} if own.max_num_batched_tokens else {}
            given = {
                "extra_args": self.extra_args,
                f"{role}.extra_args": own.extra_args,
                f"{role}.max_num_batched_tokens": tokens,
            }
            for path, flags in given.items():
                if twice := set_twice(settings, flags):
                    raise ValueError(f"{path}: {', '.join(twice)}: keys of the server set this too; leave it out here")
        return self

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        port = self.kv_transfer.side_channel_port
        if port == self.profile.port:
            raise ValueError(f"kv_transfer.side_channel_port: {port} is the port of the API of every server; give another")
        return self

    @model_validator(mode="after")
    def _pods_can_share_the_cache(self) -> Self:
        groups = 2 if self.rollout == "second_group" else 1
        for role in ROLES:
            if self.compile_cache and (why := unshared(self.compile_cache, groups * self.role(role).most)):
                raise ValueError(f"compile_cache: {why}")
        return self
