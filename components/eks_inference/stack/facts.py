"""What the rules judge in a stack, found in its spec. Pure; no pulumi, no graph."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eks_inference.faults import SpecError
from eks_inference.loadtest.facts import LoadTestFacts
from eks_inference.network.facts import NetworkFacts
from eks_inference.network.plan import network_zones
from eks_inference.pools.facts import PoolFacts
from eks_inference.pools.plan import placement_of, pool_zones
from eks_inference.pools.spec import ManagedPoolSpec, PoolSpec
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.kinds import Site, kind_of
from eks_inference.serving.scaling_facts import ScalingFacts
from eks_inference.serving.shape import ServerSpec
from eks_inference.stack.spec import StackSpec


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
        for subject in kind_of(server).facts(name, server, _site(spec, name, server, zone_ids, region)):
            if isinstance(subject, ServingFacts):
                # The two halves of a pair run apart.
                servers[name if name not in servers else f"{name} (second)"] = subject
            else:
                yield subject
    yield from servers.values()
    for name in spec.pools:
        yield _pool(name, spec, region, zone_ids, [server for server, facts in servers.items() if facts.placement.pool == name])
    yield _network(spec, zone_ids)
    yield from _autoscalers(spec, servers)
    yield from _load_tests(spec, servers)
    yield StackFacts(spec, region, servers)


def _site(spec: StackSpec, name: str, server: ServerSpec, zone_ids: Sequence[str], region: str) -> Site:
    choice = server.main_pool()
    pool = spec.pools[choice.pool]
    zones = _pool_zones(pool, zone_ids, region)
    return Site(
        path=("servers", name),
        placement=placement_of(choice.pool, pool, choice.instance_type, spec.cluster.version, zones),
        pools=spec.pools,
        zone_ids=zone_ids,
        pool_zones=lambda other: _pool_zones(other, zone_ids, region),
        scheduler=spec.has_neuron_scheduler,
    )


def _autoscalers(spec: StackSpec, servers: Mapping[str, ServingFacts]) -> Iterator[ScalingFacts]:
    prometheus = spec.observability.prometheus
    for name, server in spec.servers.items():
        if server.scaler:
            path = ("servers", name, "autoscaling")
            interval = {"scrape_interval_s": prometheus.scrape_interval_seconds} if prometheus else {}
            yield ScalingFacts(path, server.scaler, servers[name], metrics=prometheus is not None, **interval)


def _load_tests(spec: StackSpec, servers: Mapping[str, ServingFacts]) -> Iterator[LoadTestFacts]:
    if spec.load_test:
        for name in spec.load_test.servers or spec.servers:
            if name in spec.servers_with("openai"):
                yield LoadTestFacts(spec.load_test, name, servers[name], ("load_test",))


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
