"""Finds the subjects of the rules in a stack's spec. Pure; no pulumi, no graph."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from eks_inference.catalog.models import APART
from eks_inference.endpoints.rules import EndpointFacts, ServerBehind
from eks_inference.faults import SpecError
from eks_inference.gateway.rules import GatewayApiFacts, GatewayFacts, RoutedEndpoint
from eks_inference.gateway.spec import GatewaySpec
from eks_inference.loadtest.rules import LoadTestFacts, RequestFacts
from eks_inference.loadtest.spec import TokenCounts
from eks_inference.network.plan import network_zones
from eks_inference.network.rules import NetworkFacts
from eks_inference.place.nodes import allocatable
from eks_inference.place.placement import Placement
from eks_inference.pools.plan import placement_of, pool_zones
from eks_inference.pools.rules import PoolFacts
from eks_inference.pools.spec import ManagedPoolSpec, PoolSpec
from eks_inference.rules import Path
from eks_inference.serving.facts import ScalingFacts, ServingFacts
from eks_inference.serving.flags import switched
from eks_inference.serving.kind import Site
from eks_inference.serving.kinds import kind_of
from eks_inference.serving.pod_parts import DRAIN_SECONDS
from eks_inference.serving.shape import PoolChoice, ServerSpec
from eks_inference.serving.traffic import TrafficSpec
from eks_inference.speed.queue import Routing
from eks_inference.speed.rules import TrafficFacts
from eks_inference.stack.spec import StackSpec

ROUTINGS: Mapping[str, Routing] = {
    "endpoint_picker": "fewest",
    "least_requests": "fewest",
    "prefixes": "prefixes",
    "sessions": "prefixes",
}
"""How each spread of an endpoint chooses among pods. A Service chooses by chance."""


@dataclass(frozen=True)
class StackFacts:
    """The stack as a whole, for rules that relate several of its parts."""

    about: ClassVar[str] = "a stack as a whole"

    spec: StackSpec
    region: str
    servers: Mapping[str, ServingFacts]
    zone_ids: tuple[str, ...] = ()
    """The zones of the network, or empty when unknown."""


def stack_facts(spec: StackSpec, region: str) -> Iterator[object]:
    """Yields every subject that a rule can judge."""
    try:
        zone_ids = network_zones(region, spec.families(), wanted=spec.network.zone_ids, count=spec.network.zones)
    except SpecError:  # the network component reports it
        zone_ids = ()
    servers: dict[str, ServingFacts] = {}
    led_out = {
        server for name in map(spec.leading_to, (route.target for route in spec.routes)) if name for server in spec.behind(name)
    }
    for name, server in spec.servers.items():
        for subject in kind_of(server).facts(name, server, _site(spec, name, server, zone_ids, region)):
            if isinstance(subject, ServingFacts):
                subject = replace(subject, led_out=name in led_out)
            if isinstance(subject, ServingFacts) and not subject.beside:
                # Prefill and decode are separate subjects.
                named = _named(name, subject.part)
                servers[named if named not in servers else f"{name} ({subject.elsewhere or 'second'})"] = subject
            else:
                yield subject
    yield from servers.values()
    for name, pool in spec.pools.items():
        serves = tuple(server for server, facts in servers.items() if facts.placement.pool == name)
        yield PoolFacts(name, pool, spec.cluster.version, region, zone_ids, serves)
    yield NetworkFacts(
        spec=spec.network,
        service_cidr=spec.cluster.service_cidr,
        zone_ids=zone_ids,
        pods={
            name: nodes * max(allocatable(instance, pool.kubelet.settings()).pods for instance in pool.instances())
            for name, pool in spec.pools.items()
            if (nodes := pool.size if isinstance(pool, ManagedPoolSpec) else pool.replicas) is not None
        },
    )
    yield from _autoscalers(spec, servers)
    yield from _measurements(spec, servers)
    yield from _traffic(spec, servers)
    yield from _endpoints(spec)
    if spec.gateway:
        yield _gateway(spec, spec.gateway, region)
    if spec.gateway_api:
        yield GatewayApiFacts(spec.gateway_api, spec.routes, _routed(spec))
    yield StackFacts(spec, region, servers, zone_ids)


def _site(spec: StackSpec, name: str, server: ServerSpec, zone_ids: Sequence[str], region: str) -> Site:
    def place(choice: PoolChoice) -> Placement:
        pool = spec.pools[choice.pool]
        zones = zones_of_pool(pool, zone_ids, region)
        return placement_of(choice.pool, pool, choice.instance_type, spec.cluster.version, zones)

    return Site(
        path=("servers", name),
        placement=replace(place(server.main_pool()), others=tuple(map(place, server.other_pools()))),
        pools=spec.pools,
        place=place,
        zone_ids=zone_ids,
        pool_zones=lambda other: zones_of_pool(other, zone_ids, region),
        scheduler=spec.has_neuron_scheduler,
    )


def _named(server: str, part: str) -> str:
    return f"{server} ({part})" if part else server


def _autoscalers(spec: StackSpec, servers: Mapping[str, ServingFacts]) -> Iterator[ScalingFacts]:
    prometheus = spec.observability.prometheus
    for name, server in spec.servers.items():
        for part, scaler in server.scalers.items():
            path = ("servers", name, *filter(None, [part]), "autoscaling")
            interval = {"scrape_interval_s": prometheus.scrape_interval_seconds} if prometheus else {}
            at_once = _at_once(spec, servers, name)
            facts = servers[_named(name, part)]
            yield ScalingFacts(path, scaler, facts, metrics=prometheus is not None, at_once=at_once, **interval)


def _at_once(spec: StackSpec, servers: Mapping[str, ServingFacts], name: str) -> int | None:
    """The most requests that are at a server at once: of its users, or that the only endpoint before it lets through."""
    asked = [one.traffic.users for one in _traffic(spec, servers) if isinstance(one, TrafficFacts) and one.server.path[1] == name]
    before = [one.concurrent_requests for endpoint, one in spec.endpoints.items() if name in spec.behind(endpoint)]
    let = [one * len(spec.names_of(name)) for one in before if one and len(before) == 1]
    return min(filter(None, asked + let), default=None)


def _measurements(spec: StackSpec, servers: Mapping[str, ServingFacts]) -> Iterator[object]:
    test, client = spec.load_test, spec.clients.triton
    # Of a server with parts, the first part answers.
    answers_of = {facts.path[-1]: facts for facts in reversed(tuple(servers.values()))}
    for name in spec.tested:
        if test:
            yield LoadTestFacts(test, name, answers_of[name], ("load_test",))
            yield RequestFacts(name, answers_of[name], test.input_tokens, test.output_tokens, ("load_test",))
    for name in spec.tested_by_triton_client:
        if client:
            answers = TokenCounts(mean=client.output_tokens)
            yield RequestFacts(name, answers_of[name], client.input_tokens, answers, ("clients", "triton"))


def _traffic(spec: StackSpec, servers: Mapping[str, ServingFacts]) -> Iterator[object]:
    led = {server: one.spread for name, one in spec.endpoints.items() for server in spec.behind(name)}
    of_endpoints: dict[str, list[tuple[TrafficSpec, Path]]] = {}
    for name, endpoint in spec.endpoints.items():
        for model, traffic in endpoint.traffic.items():
            pods = {one: servers[one].pods_max * servers[one].copies for one in spec.behind(name) if model in spec.names_of(one)}
            for server, share in (endpoint.shares(model, pods) or endpoint.shares(model, dict.fromkeys(pods, 1))).items():
                path = ("endpoints", name, "traffic", model)
                of_endpoints.setdefault(server, []).append((traffic.part(share), path))
    for facts in servers.values():
        name = str(facts.path[1])
        parts = of_endpoints.get(name, ())
        own = TrafficSpec.together([part for part, _ in parts]) if parts else spec.servers[name].traffic
        path = parts[0][1] if parts else ()
        if own:
            objectives = spec.servers[name].objectives
            yield TrafficFacts(facts, own, objectives, ROUTINGS.get(led.get(name, ""), "random"), path)
            if own.pictures and facts.model and facts.model.tower:
                own = own.with_tokens_of_pictures(facts.model.tower.tokens(own.picture_size))
            prompt, answer = (TokenCounts(mean=one) for one in (own.input_tokens, own.output_tokens))
            yield RequestFacts(name, facts, prompt, answer, path or (*facts.path, "traffic"))


def _routed(spec: StackSpec) -> dict[str, RoutedEndpoint]:
    """The endpoints that routes lead to, by target."""
    found = {route.target: name for route in spec.routes if (name := spec.leading_to(route.target))}
    return {
        target: RoutedEndpoint(
            name=name,
            keys=endpoint.keys,
            grpc=any(server in spec.servers_with("kserve") for server in spec.behind(name)),
            settles=endpoint.behind_load_balancer,
            limited=bool(endpoint.client_namespaces),
            answer_seconds=endpoint.longest_silence_seconds,
        )
        for target, name in found.items()
        if (endpoint := spec.endpoints[name])
    }


def _gateway(spec: StackSpec, gateway: GatewaySpec, region: str) -> GatewayFacts:
    return GatewayFacts(
        spec=gateway,
        routes=spec.routes,
        region=region,
        endpoints=_routed(spec),
        public_subnets=spec.network.public_subnets,
        own_subnets=spec.network.load_balancer_subnets,
    )


def _endpoints(spec: StackSpec) -> Iterator[EndpointFacts]:
    made = {resolved.path for resolved in spec.resolved}
    for name, endpoint in spec.endpoints.items():
        servers = {server: _behind(server, spec.servers[server]) for server in spec.behind(name)}
        yield EndpointFacts(name, endpoint, servers, ("endpoints", name) not in made)


def _behind(name: str, server: ServerSpec) -> ServerBehind:
    kind = kind_of(server)
    return ServerBehind(
        limited=bool(server.client_namespaces),
        answer_seconds=DRAIN_SECONDS,
        model=server.model.id if kind.api == "openai" else "",
        namespace=server.namespace_of(name),
        tells_load=kind.tells_load and not switched(getattr(server, "engine_flags", ()), "disable-log-stats", False),
        writes=server.does not in APART,
    )


def zones_of_pool(pool: PoolSpec, zone_ids: Sequence[str], region: str) -> tuple[str, ...]:
    try:
        return pool_zones(pool, zone_ids, region)
    except SpecError:  # zones outside the network: rule POO001 reports them
        return pool.zone_ids
