"""Vectors of the rules about prefill and decode pairs."""

from dataclasses import replace
from typing import Any

from eks_inference.catalog.engines import engine
from eks_inference.catalog.models import find_model
from eks_inference.place.placement import Placement
from eks_inference.pools.plan import placement_of
from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference.serving.disaggregated.facts import DisaggregatedFacts, disaggregated_facts
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.facts import ServingFacts
from vectors import Vector

MODEL = "meta-llama/Llama-3.3-70B-Instruct"
ZONE = "use2-az3"


def pool(**keys: Any) -> ManagedPoolSpec:
    """Returns a valid pool for a pair, with changes."""
    good = {"instance_types": ["trn2.48xlarge"], "size": 2, "zone_ids": [ZONE], "efa": {}}
    return ManagedPoolSpec.model_validate({**good, **keys})


def placement(spec: ManagedPoolSpec) -> Placement:
    return placement_of("di", spec, None, "1.34", spec.zone_ids)


def pair(on: ManagedPoolSpec | None = None, **spec: Any) -> DisaggregatedFacts:
    """Returns a valid pair, with changes."""
    nodes = pool() if on is None else on
    good = {"kind": "disaggregated", "model": {"id": MODEL}, "pool": "di", "instances": 2}
    wanted = DisaggregatedPairSpec.model_validate({"instance_type": nodes.instance_types[0], **good, **spec})
    return disaggregated_facts(wanted, placement(nodes), pool=nodes, path=("servers", "llama"))


def nixl(**environment: str) -> ServingFacts:
    """Returns half a node with NIXL, as written by hand."""
    return ServingFacts(
        path=("servers", "prefill"),
        kind="vllm",
        engine=engine("neuron-2.32-vllm-0.24"),
        model_id=MODEL,
        model=find_model(MODEL),
        placement=placement(pool()),
        devices=8,
        tensor_parallel=32,
        max_num_seqs=4,
        max_model_len=8192,
        arguments=('--kv-transfer-config={"kv_connector": "NixlConnector", "kv_role": "kv_producer"}',),
        environment=environment,
    )


VECTORS = {
    "DI001": Vector(pair, lambda: pair(pool(efa=None)), "have no EFA, which carries the KV cache even on one node"),
    "DI002": Vector(
        pair,
        lambda: pair(decode={"extra_args": {"max-num-seqs": 8}}),
        "decode would run with another max_num_seqs than the model",
    ),
    "DI004": Vector(
        pair,
        lambda: pair(prefill={"extra_args": {"enable-prefix-caching": True}}),
        "prefill is started with prefix caching, which a pair does not support",
    ),
    "DI005": Vector(
        lambda: pair(instances=1),
        lambda: pair(instances=1, decode={"extra_env": {"NEURON_RT_VISIBLE_CORES": "16-47"}}),
        "prefill and decode would share cores",
    ),
    "DI006": Vector(
        pair, lambda: pair(decode={"extra_env": {"NEURON_SEND_IP": "10.0.0.7"}}), "different values of NEURON_SEND_IP"
    ),
    "DI007": Vector(pair, lambda: pair(pool(size=1)), "has 1 of 2 nodes: one server would never get a node"),
    "DI010": Vector(lambda: nixl(FI_EFA_ENABLE_SHM_TRANSFER="0"), nixl, "answers are wrong"),
    "DI011": Vector(pair, lambda: replace(pair(), engine=replace(pair().engine, efa_userspace=False)), "time out after a minute"),
    "DI014": Vector(
        pair, lambda: pair(compile={"context_encoding_buckets": [256, 4096]}), "the last of context_encoding_buckets is not"
    ),
    "DI045": Vector(pair, lambda: pair(compile={"global_topk": 1_000_000}), "it does not compile, or fails with"),
    "DI015": Vector(
        pair,
        lambda: pair(store={"kind": "fsx_lustre", "throughput_mb_per_tib": 125}, download_timeout_minutes=12),
        "takes the store alone",
    ),
}
