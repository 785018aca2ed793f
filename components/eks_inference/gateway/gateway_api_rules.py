"""Rules about routes of a Gateway that the cluster has. Ids GWY…"""

from collections.abc import Iterator

from eks_inference.gateway.facts import GatewayApiFacts
from eks_inference.rules import Judgement, rule

_SOURCE = "Gateway API v1.6: a listener takes either HTTPRoutes or GRPCRoutes for a host, and of equal matches the oldest route"


@rule(
    "GWY009",
    "What a Gateway of others leads to asks who it is.",
    severity="warning",
    fix="leave keys: false out, or see to it that the Gateway asks",
    source="an endpoint with keys: false asks nobody; who reaches a Gateway, and whether it asks them, its owner decides",
)
def clients_are_asked(gateway: GatewayApiFacts) -> Iterator[Judgement]:
    name = f"{gateway.spec.namespace}/{gateway.spec.gateway}"
    for target, endpoint in gateway.endpoints.items():
        asks = "asks for keys" if endpoint.keys else "asks nobody"
        yield Judgement(
            holds=endpoint.keys,
            path=("endpoints", endpoint.name, "keys"),
            working=(f"{target} {asks}; who reaches the Gateway {name} is not known here",),
            message=f"whoever reaches the Gateway {name} may use {target}: endpoint {endpoint.name} has keys: false",
            given="false",
            allowed="true",
        )


@rule(
    "GWY010",
    "Each address of a Gateway leads to one endpoint, and each host has one kind of route.",
    fix="give one of them another host or path",
    source=_SOURCE,
)
def addresses_differ(gateway: GatewayApiFacts) -> Iterator[Judgement]:
    hosts = {route.host: route.target for route in reversed(gateway.routes)}
    taken: dict[str, str] = {}
    for route in gateway.routes:
        wanted = [(f"{route.host}{route.path}", "host" if route.path == "/" else "path")]
        if route.grpc_host:
            wanted.append((f"{route.grpc_host} for gRPC", "grpc_host"))
            yield Judgement(
                holds=route.grpc_host not in hosts,
                path=("gateway_api", "routes", route.target, "grpc_host"),
                working=(f"hosts of routes for HTTP: {', '.join(hosts)}",),
                message=f"{route.grpc_host} has a route for HTTP, to {hosts.get(route.grpc_host)}: the Gateway takes one of both",
                given=route.grpc_host,
                allowed="a host of its own",
            )
        for address, key in wanted:
            first = taken.setdefault(address, route.target)
            yield Judgement(
                holds=first == route.target,
                path=("gateway_api", "routes", route.target, key),
                working=(f"{address}: {first}",),
                message=f"{address} leads to {first} already",
                given=address,
                allowed="a host or path of its own",
            )
