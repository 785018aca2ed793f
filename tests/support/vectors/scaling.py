"""Vectors of the rules about autoscalers."""

from dataclasses import replace
from typing import Any

from eks_inference.catalog.engines import engine
from eks_inference.catalog.models import find_model
from eks_inference.scaling.spec import HpaSpec, KedaSpec
from eks_inference.serving.facts import ScalingFacts
from eks_inference.serving.ray_serve.rules import RayServeFacts
from servers import spec_of
from vectors import Vector
from vectors.serving import on, server

PATH = ("servers", "llama", "autoscaling")


def scaling(metrics: bool = True, nodes: int | None = None, **spec: Any) -> ScalingFacts:
    """Returns a valid KEDA autoscaler, with changes. Three pods fit a node; the pool has at most ``nodes`` nodes."""
    wish = KedaSpec.model_validate({"kind": "keda", "min": 1, "max": 4, **spec})
    return ScalingFacts(PATH, wish, server(placement=on("inf2.48xlarge", max_nodes=nodes, driver="2.29.0")), metrics)


def asked_at_once(requests: int) -> ScalingFacts:
    return replace(scaling(), at_once=requests)


def triton(every_s: int = 15, **spec: Any) -> ScalingFacts:
    """Returns OPT-350M on Triton, scaled as in the source system but by a metric of vLLM, with changes."""
    wish = HpaSpec.model_validate({"kind": "hpa", "max": 4, "metric": "vllm_time_to_first_token_ms", **spec})
    small = replace(
        server(engine=engine("triton-26.08-vllm-0.27"), max_num_seqs=256, max_model_len=2048),
        kind="triton",
        model_id="facebook/opt-350m",
        model=find_model("OPT-350M"),
        placement=on("g4dn.xlarge"),
        devices=1,
        tensor_parallel=1,
        cpu_millis=3000,
        memory_mib=12 * 1024,
    )
    return ScalingFacts(PATH, wish, small, True, every_s)


def ray(**keys: Any) -> RayServeFacts:
    """Returns the source system's server under Ray Serve, with changes."""
    return RayServeFacts(("servers", "llama3"), spec_of(**keys))


_DAYTIME = {"start": "0 8 * * 1-5", "end": "0 20 * * 1-5", "pods": 2}

VECTORS = {
    "SCL001": Vector(scaling, lambda: scaling(metrics=False), "nothing in this stack collects"),
    "SCL002": Vector(lambda: scaling(min=0, schedule=[_DAYTIME]), lambda: scaling(min=0), "never adds a pod again"),
    "SCL003": Vector(scaling, lambda: scaling(min=4), "it never scales"),
    "SCL004": Vector(scaling, lambda: scaling(scale_in_seconds=10), "may be removed after 10 s"),
    "SCL007": Vector(triton, lambda: triton(every_s=30), "which holds only 2 scrapes"),
    "SCL008": Vector(
        lambda: scaling(concurrent_requests=20), lambda: scaling(concurrent_requests=30), "a pod works on 24 requests at once: 6"
    ),
    "SCL009": Vector(scaling, lambda: scaling(nodes=4), "keeps its 4 nodes when pods are removed"),
    "SCL010": Vector(ray, lambda: ray(replicas={"max": 9}), "6 of 9 replicas would find no worker"),
    "SCL011": Vector(
        lambda: scaling(schedule=[_DAYTIME]),
        lambda: scaling(schedule=[{"start": "0 8 * * 1-5", "end": "0 20 * * *", "pods": 2}]),
        "end comes on Sat 20:00 and again on Sun 20:00: pods stay until then",
    ),
    "SCL012": Vector(lambda: asked_at_once(40), lambda: asked_at_once(4), "it adds no pod to 1: at most 4 requests"),
    "SRV021": Vector(
        lambda: ray(image={"kind": "in_cluster"}),
        lambda: ray(image={"kind": "in_cluster", "timeout_minutes": 5}),
        "the engine's image of 19 GB alone takes some 7 minutes to pull",
    ),
}
