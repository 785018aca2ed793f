"""Registers Triton servers as a kind."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from eks_inference.serving.choosing import Sketch
from eks_inference.serving.kind import Kind, Site
from eks_inference.serving.triton.rules import facts_of_places
from eks_inference.serving.triton.spec import TritonServerSpec

if TYPE_CHECKING:
    import pulumi

    from eks_inference.serving.handle import Dependencies, Server, ServerSite


def _facts(name: str, spec: TritonServerSpec, site: Site) -> Iterator[object]:
    for facts in facts_of_places(spec, site.placement, path=site.path):
        yield facts
        yield facts.serving


def _build(name: str, spec: TritonServerSpec, on: "Dependencies", site: "ServerSite", opts: "pulumi.ResourceOptions") -> "Server":
    from eks_inference.serving.triton.component import TritonServer

    return TritonServer(
        name,
        spec,
        cluster=on.cluster,
        placement=site.placement,
        plugin=on.driver_on(site.placement) or on.gpu_plugin,
        image=site.image,
        hugging_face_token=on.hugging_face_token,
        opts=opts,
    )


def _sketched(sketch: Sketch) -> Mapping[str, Any] | None:
    return {"kind": "triton", **sketch.keys, **sketch.placed} if not sketch.engine.standalone else None


KIND = Kind(
    TritonServerSpec,
    _facts,
    _build,
    api="kserve",
    dashboards=("triton",),
    rules=("eks_inference.serving.triton.rules",),
    sketched=_sketched,
)
