"""Registers prefill and decode pairs as a kind of server."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eks_inference.serving.disaggregated.facts import disaggregated_facts, serving_facts
from eks_inference.serving.disaggregated.parts import tensor_parallel
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.kind import Kind, Site
from eks_inference.storage.rules import model_contents, store_facts

if TYPE_CHECKING:
    import pulumi

    from eks_inference.serving.handle import Dependencies, Server, ServerSite


def _facts(name: str, spec: DisaggregatedPairSpec, site: Site) -> Iterator[object]:
    yield disaggregated_facts(spec, site.placement, pool=site.pools[spec.pool], path=site.path)
    if site.zone_ids:
        model = spec.model.known
        splits = (tensor_parallel(spec),) if spec.compile.save_sharded_checkpoint else ()
        mounting = dict.fromkeys(pool for pool in (spec.pool, spec.compile_pool) if pool)
        yield store_facts(
            spec.store,
            network_zone_ids=site.zone_ids,
            pools={pool: site.pool_zones(site.pools[pool]) for pool in mounting},
            contents=model_contents(model.weight_bytes() / 2**30, splits) if model else (),
            path=(*site.path, "store"),
        )
    yield from serving_facts(spec, site.placement, scheduler=site.scheduler, path=site.path)


def _build(
    name: str, spec: DisaggregatedPairSpec, on: "Dependencies", site: "ServerSite", opts: "pulumi.ResourceOptions"
) -> "Server":
    from eks_inference.accelerators.efa.component import ExistingEfaPlugin
    from eks_inference.faults import faults_under
    from eks_inference.serving.component import formerly
    from eks_inference.serving.disaggregated.component import DisaggregatedPair
    from eks_inference.storage.component import shared_store

    with faults_under("store"):
        store = shared_store(
            f"{name}-store",
            spec.store,
            cluster=on.cluster,
            network=on.network,
            driver=on.file_system_drivers[spec.store.file_system],
            zone_id=next(iter(site.placement.zone_ids), None),
            opts=formerly(opts, spec, "-store"),
        )
    compiles, router = spec.compile_pool, spec.router
    return DisaggregatedPair(
        name,
        spec,
        cluster=on.cluster,
        store=store,
        placement=site.placement,
        # If no pool has EFA, and the rule that demands it is silenced, somebody else installs the plugin.
        efa=on.efa or ExistingEfaPlugin(),
        compile_placement=on.pools[compiles].placement(spec.instance_type) if compiles else None,
        router_placement=on.pools[router.pool].placement(router.instance_type) if router.pool else None,
        controller=on.leader_worker_sets,
        hugging_face_token=on.hugging_face_token,
        opts=opts,
    )


KIND = Kind(
    DisaggregatedPairSpec,
    _facts,
    _build,
    api="openai",
    dashboards=("vllm",),
    rules=("eks_inference.serving.disaggregated.rules",),
)
