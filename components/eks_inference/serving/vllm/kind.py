"""Registers plain vLLM servers as a kind."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from eks_inference.serving.choosing import Sketch
from eks_inference.serving.kind import Kind, Site
from eks_inference.serving.vllm.facts import facts_of_places
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.storage.rules import store_facts

if TYPE_CHECKING:
    import pulumi

    from eks_inference.serving.handle import Dependencies, Server, ServerSite


def _facts(name: str, spec: VllmServerSpec, site: Site) -> Iterator[object]:
    if spec.kept_in and site.zone_ids:
        yield store_facts(
            spec.kept_in,
            network_zone_ids=site.zone_ids,
            pools={pool.pool: site.pool_zones(site.pools[pool.pool]) for pool in spec.pools()},
            path=(*site.path, "store" if spec.store else "shared_store"),
        )
    yield from facts_of_places(spec, site.placement, scheduler=site.scheduler, path=site.path)


def _build(name: str, spec: VllmServerSpec, on: "Dependencies", site: "ServerSite", opts: "pulumi.ResourceOptions") -> "Server":
    from eks_inference.faults import faults_under
    from eks_inference.serving.component import formerly
    from eks_inference.serving.vllm.component import VllmServer
    from eks_inference.storage.component import shared_store

    store = on.stores[spec.shared_store] if spec.shared_store else None
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
        driver=on.driver_on(site.placement),
        store=store,
        image=site.image,
        hugging_face_token=on.hugging_face_token,
        api_key=on.api_key,
        opts=opts,
    )


def _sketched(sketch: Sketch) -> Mapping[str, Any] | None:
    if not sketch.engine.standalone:
        return None
    # As Triton's cache: twice the weights, for what the engine saves beside what it downloads.
    disk = max(2 * sketch.weights_gib, VllmServerSpec.model_fields["disk_gib"].default)
    return {"kind": "vllm", **sketch.keys, **sketch.placed, "disk_gib": disk}


KIND = Kind(VllmServerSpec, _facts, _build, api="openai", tells_load=True, dashboards=("vllm",), sketched=_sketched)
