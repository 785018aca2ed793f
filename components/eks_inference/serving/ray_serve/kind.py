"""Registers vLLM servers on Ray Serve as a kind of server."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from eks_inference.serving.choosing import Sketch
from eks_inference.serving.kind import Kind, Site
from eks_inference.serving.ray_serve import rules
from eks_inference.serving.ray_serve.rules import serving_facts
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec

if TYPE_CHECKING:
    import pulumi

    from eks_inference.serving.handle import Dependencies, Server, ServerSite


def _facts(name: str, spec: RayServeVllmSpec, site: Site) -> Iterator[object]:
    yield serving_facts(spec, site.placement, scheduler=site.scheduler, path=site.path)
    yield rules.RayServeFacts(site.path, spec)


def _build(name: str, spec: RayServeVllmSpec, on: "Dependencies", site: "ServerSite", opts: "pulumi.ResourceOptions") -> "Server":
    from eks_inference.serving.ray_serve.component import RayServeVllm

    assert on.ray_operator is not None, "a stack with such a server has the operator (ServerSpec.operators)"
    return RayServeVllm(
        name,
        spec,
        cluster=on.cluster,
        operator=on.ray_operator,
        head=on.pools[spec.head.pool].placement(spec.head.instance_type),
        worker=site.placement,
        scheduler=on.scheduler,
        image=site.image,
        hugging_face_token=on.hugging_face_token,
        api_key=on.api_key,
        opts=opts,
    )


def _sketched(sketch: Sketch) -> Mapping[str, Any] | None:
    if sketch.engine.ray is None or not sketch.instance.neuron:
        return None
    worker = {**sketch.placed, "instance_type": sketch.instance.name, "min": 1, "max": 1}
    return {
        "kind": "ray_serve_vllm",
        **sketch.keys,
        "image": {"kind": "in_cluster"},
        "head": {"pool": sketch.core_pool},
        "worker": worker,
        "replicas": {"min": 1, "max": 1},
    }


KIND = Kind(RayServeVllmSpec, _facts, _build, api="openai", dashboards=("ray-vllm",), rules=(rules.__name__,), sketched=_sketched)
