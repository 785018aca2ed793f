"""What the rules judge in a stack, found in its spec. Pure; no pulumi, no graph."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eks_inference.catalog.models import find_model
from eks_inference.faults import SpecError
from eks_inference.loadtest.facts import LoadTestFacts
from eks_inference.network.facts import NetworkFacts
from eks_inference.network.plan import network_zones
from eks_inference.placement import Placement
from eks_inference.pools.facts import PoolFacts
from eks_inference.pools.plan import placement_of, pool_zones
from eks_inference.pools.spec import ManagedPoolSpec, PoolSpec
from eks_inference.rules import Path
from eks_inference.serving.disaggregated.artifact import tensor_parallel
from eks_inference.serving.disaggregated.facts import disaggregated_facts
from eks_inference.serving.disaggregated.facts import serving_facts as disaggregated_serving_facts
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.ray_serve.facts import serving_facts as ray_serve_facts
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec
from eks_inference.serving.scaling_facts import ScalingFacts
from eks_inference.serving.server_spec import ServerSpec
from eks_inference.serving.triton.facts import serving_facts as triton_serving_facts
from eks_inference.serving.triton.facts import triton_facts
from eks_inference.serving.triton.spec import TritonServerSpec
from eks_inference.serving.vllm.facts import serving_facts as vllm_facts
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.stack.spec import StackSpec
from eks_inference.storage.facts import StoreFacts, model_contents, store_facts


@dataclass(frozen=True)
class StackFacts:
    """The stack as a whole: for rules about parts that meet only here."""

    spec: StackSpec
    region: str
    servers: Mapping[str, ServingFacts]


def subjects(spec: StackSpec, region: str) -> Iterator[object]:
    """Everything a rule can be about."""
    zone_ids = _zones(spec, region)
    servers: dict[str, ServingFacts] = {}
    for name, server in spec.servers.items():
        placement = _placement(spec, server, zone_ids, region)
        path = ("servers", name)
        if isinstance(server, TritonServerSpec):
            yield triton_facts(server, placement, path=path)
        if isinstance(server, DisaggregatedPairSpec):
            yield disaggregated_facts(name, server, placement, pool=spec.pools[server.pool], path=path)
            if zone_ids:
                yield _store(spec, server, zone_ids, region, (*path, "store"))
        for pods in _pods(server, placement, spec.has_neuron_scheduler, path):
            # The two halves of a pair run apart.
            servers[name if name not in servers else f"{name} (second)"] = pods
    yield from servers.values()
    for name in spec.pools:
        yield _pool(name, spec, region, zone_ids, [server for server, facts in servers.items() if facts.placement.pool == name])
    yield _network(spec, zone_ids)
    yield from _autoscalers(spec, servers)
    yield from _load_tests(spec, servers)
    yield StackFacts(spec, region, servers)


def _pods(server: ServerSpec, placement: Placement, scheduler: bool, path: Path) -> Sequence[ServingFacts]:
    """What runs of a server: one kind of pod, or two for a pair on two nodes."""
    if isinstance(server, RayServeVllmSpec):
        return (ray_serve_facts(server, placement, scheduler=scheduler, path=path),)
    if isinstance(server, TritonServerSpec):
        return (triton_serving_facts(server, placement, path=path),)
    if isinstance(server, DisaggregatedPairSpec):
        return disaggregated_serving_facts(server, placement, scheduler=scheduler, path=path)
    return (vllm_facts(server, placement, scheduler=scheduler, path=path),)


def _store(spec: StackSpec, server: DisaggregatedPairSpec, zone_ids: Sequence[str], region: str, path: Path) -> StoreFacts:
    model = find_model(server.model.id)
    splits = (tensor_parallel(server),) if server.compile.save_sharded_checkpoint else ()
    mounting = dict.fromkeys(pool for pool in (server.pool, server.compile_pool) if pool)
    return store_facts(
        server.store,
        network_zone_ids=zone_ids,
        pools={pool: _pool_zones(spec.pools[pool], zone_ids, region) for pool in mounting},
        contents=model_contents(model.weight_bytes() / 2**30, splits) if model else (),
        path=path,
    )


def _autoscalers(spec: StackSpec, servers: Mapping[str, ServingFacts]) -> Iterator[ScalingFacts]:
    prometheus = spec.observability.prometheus
    for name, server in spec.servers.items():
        if isinstance(server, VllmServerSpec | TritonServerSpec) and server.autoscaling:
            path = ("servers", name, "autoscaling")
            interval = {"scrape_interval_s": prometheus.scrape_interval_seconds} if prometheus else {}
            yield ScalingFacts(path, server.autoscaling, servers[name], metrics=prometheus is not None, **interval)


def _load_tests(spec: StackSpec, servers: Mapping[str, ServingFacts]) -> Iterator[LoadTestFacts]:
    if spec.load_test:
        for name in spec.load_test.servers or spec.servers:
            if name in servers and name not in spec.triton_servers:
                yield LoadTestFacts(spec.load_test, name, servers[name], ("load_test",))


def _placement(spec: StackSpec, server: ServerSpec, zone_ids: Sequence[str], region: str) -> Placement:
    wish = server.worker if isinstance(server, RayServeVllmSpec) else server
    pool = spec.pools[wish.pool]
    return placement_of(wish.pool, pool, wish.instance_type, spec.cluster.version, _pool_zones(pool, zone_ids, region))


def _pool_zones(pool: PoolSpec, zone_ids: Sequence[str], region: str) -> tuple[str, ...]:
    try:
        return pool_zones(pool, zone_ids, region)
    except SpecError:  # zones that the network has not: a rule says so
        return pool.zone_ids


def _pool(name: str, spec: StackSpec, region: str, zone_ids: Sequence[str], servers: Sequence[str]) -> PoolFacts:
    return PoolFacts(
        path=("pools", name),
        name=name,
        spec=spec.pools[name],
        kubernetes_version=spec.cluster.version,
        region=region,
        network_zone_ids=tuple(zone_ids),
        serves=tuple(servers),
    )


def _network(spec: StackSpec, zone_ids: Sequence[str]) -> NetworkFacts:
    return NetworkFacts(
        path=("network",),
        spec=spec.network,
        service_cidr=spec.cluster.service_cidr,
        service_cidr_path=("cluster", "service_cidr"),
        zone_ids=tuple(zone_ids),
        pods={
            name: pool.size * max(instance.max_pods for instance in pool.instances())
            for name, pool in spec.pools.items()
            if isinstance(pool, ManagedPoolSpec)
        },
    )


def _zones(spec: StackSpec, region: str) -> tuple[str, ...]:
    """The zones of the network; none where they cannot be told, which the network itself then says."""
    try:
        return network_zones(region, spec.families(), wanted=spec.network.zone_ids, count=spec.network.zones)
    except SpecError:
        return ()
