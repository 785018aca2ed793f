"""What the rules judge in a stack, found in its spec. Pure; no pulumi, no graph."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eks_inference.accelerators.rules import scheduler_facts
from eks_inference.faults import SpecError
from eks_inference.loadtest.facts import LoadTestFacts
from eks_inference.network.facts import NetworkFacts
from eks_inference.network.plan import network_zones
from eks_inference.pools.facts import PoolFacts
from eks_inference.pools.placement import Placement
from eks_inference.pools.plan import placement_of
from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference.scaling.facts import ScalingFacts
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.ray_serve.facts import serving_facts as ray_serve_facts
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec
from eks_inference.serving.vllm.facts import serving_facts as vllm_facts
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.stack import StackSpec


@dataclass(frozen=True)
class StackFacts:
    """The stack as a whole: for rules about parts that meet only here."""

    spec: StackSpec
    region: str
    servers: Mapping[str, ServingFacts]


def subjects(spec: StackSpec, region: str) -> Iterator[object]:
    """Everything a rule can be about."""
    zone_ids = _zones(spec, region)
    servers = dict(_servers(spec, zone_ids))
    yield from servers.values()
    for name in spec.pools:
        yield _pool(name, spec, region, zone_ids, [server for server, facts in servers.items() if facts.placement.pool == name])
    yield _network(spec, zone_ids)
    if spec.accelerators.neuron and spec.accelerators.neuron.scheduler:
        yield scheduler_facts(spec.cluster.version, ("cluster", "version"))
    yield from _autoscalers(spec, servers)
    yield from _load_tests(spec, servers)
    yield StackFacts(spec, region, servers)


def _servers(spec: StackSpec, zone_ids: Sequence[str]) -> Iterator[tuple[str, ServingFacts]]:
    scheduler = spec.accelerators.neuron is not None and spec.accelerators.neuron.scheduler
    for name, server in spec.servers.items():
        path = ("servers", name)
        if isinstance(server, RayServeVllmSpec):
            worker = _placement(spec, server.worker.pool, server.worker.instance_type, zone_ids)
            yield name, ray_serve_facts(server, worker, scheduler=scheduler, path=path)
        else:
            placement = _placement(spec, server.pool, server.instance_type, zone_ids)
            yield name, vllm_facts(server, placement, scheduler=scheduler, path=path)


def _autoscalers(spec: StackSpec, servers: Mapping[str, ServingFacts]) -> Iterator[ScalingFacts]:
    for name, server in spec.servers.items():
        if isinstance(server, VllmServerSpec) and server.autoscaling:
            path = ("servers", name, "autoscaling")
            yield ScalingFacts(path, server.autoscaling, servers[name], metrics=spec.observability.prometheus is not None)


def _load_tests(spec: StackSpec, servers: Mapping[str, ServingFacts]) -> Iterator[LoadTestFacts]:
    if spec.load_test:
        for name in spec.load_test.servers or servers:
            if name in servers:
                yield LoadTestFacts(spec.load_test, name, servers[name], ("load_test",))


def _placement(spec: StackSpec, pool: str, instance_type: str | None, zone_ids: Sequence[str]) -> Placement:
    return placement_of(pool, spec.pools[pool], instance_type, spec.cluster.version, zone_ids)


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
