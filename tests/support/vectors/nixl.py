"""Vectors of the rules about servers that hand KV caches over by NIXL, alone and in groups."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eks_inference.catalog.engines import engine
from eks_inference.catalog.models import find_model
from eks_inference.place.placement import Placement
from eks_inference.pools.plan import placement_of
from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.prefill_decode.plan import Group, group
from eks_inference.serving.prefill_decode.rules import PrefillDecodeFacts, group_facts
from eks_inference.serving.prefill_decode.spec import ROLES, PrefillDecodeSpec, Role
from vectors import Vector

MODEL = "meta-llama/Llama-3.3-70B-Instruct"
WINDOWS = "openai/gpt-oss-20b"
GPU_ENGINE = "cuda-efa-vllm-0.30"
ZONE = "use2-az3"


def pool(**keys: Any) -> ManagedPoolSpec:
    """Returns one Trn2 node whose devices are claimed, with changes."""
    good = {"instance_types": ["trn2.48xlarge"], "size": 1, "zone_ids": [ZONE], "efa": {}, "devices": "claims"}
    return ManagedPoolSpec.model_validate({**good, **keys})


def gpus(**keys: Any) -> ManagedPoolSpec:
    """Returns two nodes with eight A100, with changes."""
    return pool(**{"instance_types": ["p4d.24xlarge"], "size": 2, "devices": "plugin", **keys})


def planned(
    on: ManagedPoolSpec | None = None, *, decode_on: ManagedPoolSpec | None = None, **spec: Any
) -> tuple[Group, dict[Role, ManagedPoolSpec]]:
    """Returns a valid group on halves of a Trn2 node, or on the given pools. A key of a role is changed in both: ``roles``."""
    nodes = pool() if on is None else on
    pools: dict[Role, ManagedPoolSpec] = {"prefill": nodes, "decode": decode_on or nodes}
    names: dict[Role, str] = {"prefill": "fast", "decode": "slow" if decode_on else "fast"}
    shape = {"devices": 8, "tensor_parallel": 32, "max_num_seqs": 4, **spec.pop("roles", {})}
    roles = {role: {"pool": names[role], **shape, **spec.pop(role, {})} for role in ROLES}
    good = {"kind": "prefill_decode", "model": {"id": MODEL}, "engine": "neuron-2.32-vllm-0.24", "max_model_len": 8192}
    wanted = PrefillDecodeSpec.model_validate({**good, **roles, **spec})
    placements: dict[Role, Placement] = {
        role: placement_of(names[role], one, one.instance_types[0], "1.35", one.zone_ids) for role, one in pools.items()
    }
    return group("llama", wanted, placements), pools


def servers(on: ManagedPoolSpec | None = None, **spec: Any) -> PrefillDecodeFacts:
    """Returns the facts of such a group."""
    made, pools = planned(on, **spec)
    return group_facts(made, scheduler=False, pools=pools, path=("servers", "llama"))


def on_gpus(on: ManagedPoolSpec | None = None, **spec: Any) -> PrefillDecodeFacts:
    """Returns a valid group on whole GPU nodes, with changes."""
    roles = {"devices": None, "tensor_parallel": 8, **spec.pop("roles", {})}
    return servers(on or gpus(), **{"engine": GPU_ENGINE, "roles": roles, **spec})


def decode(**spec: Any) -> ServingFacts:
    """Returns the decode servers of a valid group on Trn2, with changes."""
    return servers(**spec).decode.server


def decode_on_gpus(**spec: Any) -> ServingFacts:
    return on_gpus(**spec).decode.server


def transfer(settings: Mapping[str, Any], gpu: bool = False) -> ServingFacts:
    """Returns decode servers whose ``--kv-transfer-config`` a user changed."""
    return (decode_on_gpus if gpu else decode)(decode={"extra_args": {"kv-transfer-config": dict(settings)}})


def engine_args(gpu: bool = False, **flags: Any) -> ServingFacts:
    """Returns decode servers with flags of a user."""
    given = {name.replace("_", "-"): value for name, value in flags.items()}
    return (decode_on_gpus if gpu else decode)(decode={"extra_args": given})


def different(**decodes: Any) -> PrefillDecodeFacts:
    """Returns a group on GPUs whose decode servers have flags of their own."""
    return on_gpus(decode={"extra_args": {name.replace("_", "-"): value for name, value in decodes.items()}})


VECTORS = {
    "DI016": Vector(decode, lambda: transfer({"kv_connector": "NixlPushConnector"}), "NixlPushConnector lets prefill write"),
    "DI017": Vector(
        decode,
        lambda: replace(transfer({"kv_connector": "NixlConnector"}), model_id=WINDOWS, model=find_model(WINDOWS)),
        "NixlConnector does not hand over the KV cache of GPT-OSS-20B",
    ),
    "DI018": Vector(
        decode_on_gpus,
        lambda: transfer({"kv_connector_extra_config": {"backends": ["UCX"]}}, gpu=True),
        "UCX is as slow as TCP",
    ),
    "DI019": Vector(decode, lambda: transfer({"kv_buffer_device": "cpu"}), "NIXL on Neuron knows only 'cuda'"),
    "DI020": Vector(
        decode,
        lambda: replace(decode(), engine=replace(engine("neuron-2.32-vllm-0.24"), vllm="0.21.0")),
        "vLLM 0.21.0 has no leases",
    ),
    "DI021": Vector(decode, lambda: decode(kv_transfer={"lease_seconds": 30}), "decode answers from those without an error"),
    "DI022": Vector(
        decode_on_gpus,
        lambda: decode_on_gpus(extra_env={"FI_PROVIDER": "tcp"}),
        "FI_PROVIDER=tcp: KV caches would be wrong or slow",
    ),
    "DI023": Vector(
        decode_on_gpus,
        lambda: decode_on_gpus(extra_env={"PYTORCH_ALLOC_CONF": "max_split_size_mb:64, expandable_segments:True"}),
        "decode reads other memory",
    ),
    "DI024": Vector(decode, lambda: engine_args(gpu=True, enable_lora=True), "KV cache suits another's adapter"),
    "DI025": Vector(decode, lambda: decode(model={"id": "Qwen/Qwen3-32B"}), "no document says that Qwen3-32B works"),
    "DI026": Vector(
        lambda: decode(model={"id": WINDOWS}),
        lambda: replace(transfer({}), model_id=WINDOWS, model=find_model(WINDOWS)),
        "which the connector needs as groups of their own",
    ),
    "DI027": Vector(
        lambda: engine_args(gpu=True, decode_context_parallel_size=2),
        lambda: engine_args(decode_context_parallel_size=8),
        "does not divide into 8 parts with tensor_parallel 32",
    ),
    "DI028": Vector(
        decode,
        lambda: engine_args(additional_config={"neuron_config": {"fp8_packed_kv": True}}),
        "no document says that packed FP8 KV caches cross NIXL",
    ),
    "DI029": Vector(
        decode, lambda: decode(extra_env={"PROMETHEUS_MULTIPROC_DIR": "/metrics"}), "counters of transfers of the last"
    ),
    "DI030": Vector(
        servers,
        lambda: on_gpus(gpus(instance_types=["g6e.48xlarge"])),
        "KV caches do not cross EFA on g6e.48xlarge: its GPUs have no GPUDirect RDMA",
    ),
    "DI031": Vector(servers, lambda: servers(prefill={"efa_interfaces": 4}), "some devices have none nearby"),
    "DI032": Vector(servers, lambda: servers(pool(devices="plugin")), "a device plugin chooses devices apart from interfaces"),
    "DI033": Vector(on_gpus, lambda: on_gpus(prefill={"tensor_parallel": 6}), "parts of 8 and 6 that do not divide"),
    "DI034": Vector(
        lambda: on_gpus(prefill={"extra_args": {"block-size": 16}}, decode={"extra_args": {"block-size": 64}}),
        lambda: on_gpus(prefill={"extra_args": {"block-size": 64}}, decode={"extra_args": {"block-size": 16}}),
        "decode cannot put prefill's blocks into its own",
    ),
    "DI035": Vector(on_gpus, lambda: different(kv_cache_dtype="fp8"), "--kv-cache-dtype differs: decode refuses the handshake"),
    "DI036": Vector(
        lambda: different(seed=1),
        lambda: different(speculative_config={"method": "ngram", "num_speculative_tokens": 3}),
        "speculation differs in method",
    ),
    "DI037": Vector(on_gpus, lambda: on_gpus(decode_on=gpus(zone_ids=["use2-az1"])), "and EFA does not cross zones"),
    "DI038": Vector(servers, lambda: servers(extra_env={"VLLM_NIXL_SIDE_CHANNEL_HOST": "0.0.0.0"}), "is not each pod's"),
    "DI039": Vector(
        servers,
        lambda: servers(prefill={"extra_args": {"shutdown-timeout": 60}}),
        "prefill that stops gives away what decode is about to read",
    ),
    "DI041": Vector(servers, lambda: servers(router={"request_timeout_seconds": 60}), "the router gives a request up after 60 s"),
    "DI042": Vector(
        servers,
        lambda: on_gpus(prefill={"extra_args": {"data-parallel-size": 2}}),
        "prefill has 2 engines in a pod, and the group opens the side channel of only one",
    ),
    "DI043": Vector(
        lambda: on_gpus(kv_transfer={"failure_policy": "recompute"}),
        lambda: servers(kv_transfer={"failure_policy": "recompute"}),
        "it would compile for minutes while all its streams wait",
    ),
    "DI044": Vector(
        lambda: servers(pool(size=2), rollout="second_group"),
        lambda: servers(rollout="second_group"),
        "the new one waits for what the old one holds",
    ),
}
