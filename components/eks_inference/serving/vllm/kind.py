"""Registers plain vLLM servers as a kind."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eks_inference.serving.kind import Kind, Site
from eks_inference.serving.vllm.facts import serving_facts
from eks_inference.serving.vllm.spec import VllmServerSpec

if TYPE_CHECKING:
    import pulumi

    from eks_inference.serving.handle import Dependencies, Server, ServerSite


def _facts(name: str, spec: VllmServerSpec, site: Site) -> Iterator[object]:
    yield serving_facts(spec, site.placement, scheduler=site.scheduler, path=site.path)


def _build(name: str, spec: VllmServerSpec, on: "Dependencies", site: "ServerSite", opts: "pulumi.ResourceOptions") -> "Server":
    from eks_inference.serving.vllm.component import VllmServer

    return VllmServer(
        name,
        spec,
        cluster=on.cluster,
        placement=site.placement,
        scheduler=on.scheduler,
        image=site.image,
        hugging_face_token=on.hugging_face_token,
        api_key=on.api_key,
        opts=opts,
    )


KIND = Kind(VllmServerSpec, _facts, _build, api="openai", dashboards=("vllm",))
