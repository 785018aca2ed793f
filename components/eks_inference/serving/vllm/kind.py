"""Registers plain vLLM servers as a kind."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eks_inference.serving.kind import Kind, Site
from eks_inference.serving.vllm.facts import serving_facts
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.storage.facts import store_facts

if TYPE_CHECKING:
    import pulumi

    from eks_inference.serving.handle import Dependencies, Server, ServerSite


def _facts(name: str, spec: VllmServerSpec, site: Site) -> Iterator[object]:
    if spec.store and site.zone_ids:
        yield store_facts(
            spec.store,
            network_zone_ids=site.zone_ids,
            pools={spec.pool: site.pool_zones(site.pools[spec.pool])},
            path=(*site.path, "store"),
        )
    yield serving_facts(spec, site.placement, scheduler=site.scheduler, path=site.path)


def _build(name: str, spec: VllmServerSpec, on: "Dependencies", site: "ServerSite", opts: "pulumi.ResourceOptions") -> "Server":
    from eks_inference.faults import faults_under
    from eks_inference.serving.component import formerly
    from eks_inference.serving.vllm.component import VllmServer
    from eks_inference.storage.component import shared_store

    store = None
    if spec.store:
        with faults_under("store"):
            driver = on.file_system_drivers[spec.store.file_system]
            store = shared_store(
                f"{name}-store",
                spec.store,
                cluster=on.cluster,
                network=on.network,
                driver=driver,
                opts=formerly(opts, spec, "-store"),
            )
    return VllmServer(
        name,
        spec,
        cluster=on.cluster,
        placement=site.placement,
        scheduler=on.scheduler,
        store=store,
        image=site.image,
        hugging_face_token=on.hugging_face_token,
        api_key=on.api_key,
        opts=opts,
    )


KIND = Kind(VllmServerSpec, _facts, _build, api="openai", dashboards=("vllm",))
