"""Rules about gateways, and about routes of a Gateway that the cluster has. Ids GWY…"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from eks_inference.gateway.plan import Route, hosts
from eks_inference.gateway.spec import GatewayApiSpec, GatewaySpec
from eks_inference.rules import Judgement, Path, rule


@dataclass(frozen=True)
class RoutedEndpoint:
    """An endpoint behind the gateway."""

    name: str
    keys: bool
    """Whether it asks its clients for keys."""
    grpc: bool
    """Whether it answers over gRPC too, whose paths no client can change."""
    settles: bool
    """``behind_load_balancer`` of its spec."""
    limited: bool
    """Whether only some namespaces may call it."""
    answer_seconds: int
    """How long an answer may be silent."""


@dataclass(frozen=True)
class GatewayApiFacts:
    """Routes of the cluster's own Gateway. ``endpoints`` has those of its routes, by target."""

    about: ClassVar[str] = "routes of a Gateway (Gateway API)"

    spec: GatewayApiSpec
    routes: tuple[Route, ...]
    endpoints: Mapping[str, RoutedEndpoint]


@dataclass(frozen=True)
class GatewayFacts:
    """A gateway in its stack. ``endpoints`` has those of the routes, by target; the web UI is none of them."""

    about: ClassVar[str] = "gateways"

    spec: GatewaySpec
    routes: tuple[Route, ...]
    region: str
    endpoints: Mapping[str, RoutedEndpoint]
    public_subnets: bool
    """Whether the network has public subnets."""
    own_subnets: bool
    """Whether an internal load balancer has subnets without pods."""


_NAMES_OF_A_CERTIFICATE = 10


@rule(
    "GWY001",
    "Certificate and web ACL of a gateway are in the region of its load balancer.",
    fix="name one of the stack's region; a web ACL for load balancers has regional in its ARN",
    source="Elastic Load Balancing user guide, HTTPS listeners: certificates in the same region; AWS WAF developer guide, "
    "resources that a web ACL can protect",
)
def in_its_region(gateway: GatewayFacts) -> Iterator[Judgement]:
    for key, what in (("certificate_arn", "certificate"), ("web_acl_arn", "web ACL")):
        arn = getattr(gateway.spec, key)
        if not isinstance(arn, str):
            continue
        region, scope = arn.split(":")[3], arn.split(":")[5].partition("/")[0]
        known = f"{region}, for CloudFront" if scope == "global" else region
        yield Judgement(
            holds=known == gateway.region,
            path=("gateway", key),
            working=(f"{what}: {known}; load balancer: {gateway.region}",),
            message=f"the load balancer is in {gateway.region} and cannot use a {what} of {known}",
            given=arn,
            allowed=f"one of {gateway.region}",
        )


@rule(
    "GWY002",
    "Each address of a gateway leads to one endpoint.",
    fix="give one of them another host or path",
    source="AWS Load Balancer Controller 3.5, IngressGroup: of equal rules only the first has an effect",
)
def addresses_differ(gateway: GatewayFacts) -> Iterator[Judgement]:
    taken: dict[str, str] = {}
    for route in gateway.routes:
        path = ("gateway", "routes", route.target)
        yield _alone(taken, route.target, f"{route.host} {route.path}", path)
        if (endpoint := gateway.endpoints.get(route.target)) and endpoint.grpc:
            only = "a host of its own: clients of gRPC cannot choose the path"
            yield _alone(taken, route.target, f"{route.host} gRPC", path, only)


def _alone(taken: dict[str, str], target: str, address: str, path: Path, allowed: str = "a host or path of its own") -> Judgement:
    """Judges whether no route before this one has its address."""
    first = taken.setdefault(address, target)
    return Judgement(
        holds=first == target,
        path=path,
        working=(f"{address}: {first}",),
        message=f"{address} leads to {first} already",
        given=address,
        allowed=allowed,
    )


@rule(
    "GWY003",
    "A gateway waits for as long as an answer may take.",
    severity="warning",
    fix="raise gateway.idle_timeout_seconds: an answer that is not streamed sends nothing until it is whole",
    source="Elastic Load Balancing user guide, Connection idle timeout: a connection without data for so long is closed, with "
    "504 for the client",
)
def waits_for_answers(gateway: GatewayFacts) -> Iterator[Judgement]:
    given = gateway.spec.idle_timeout_seconds
    for name, endpoint in gateway.endpoints.items():
        yield Judgement(
            holds=given >= endpoint.answer_seconds,
            path=("gateway", "idle_timeout_seconds"),
            working=(f"idle for {given} s at most; {name} is given {endpoint.answer_seconds} s for an answer",),
            message=f"answers of {name} that take longer than {given} s are cut",
            given=str(given),
            allowed=f"at least {endpoint.answer_seconds}",
        )


@rule(
    "GWY004",
    "What a public gateway leads to authenticates clients.",
    fix="leave keys: false out, set login on the route, leave it out of gateway.routes, or make the gateway internal",
    source="an endpoint with keys: false authenticates no client; anyone who reaches a server uses your accelerators",
)
def public_asks(gateway: GatewayFacts) -> Iterator[Judgement]:
    for route in gateway.routes if gateway.spec.public else ():
        if endpoint := gateway.endpoints.get(route.target):
            asks = "its route has a login" if route.login else "it asks for keys" if endpoint.keys else ""
            yield Judgement(
                holds=bool(asks),
                path=("endpoints", endpoint.name, "keys"),
                working=(f"{route.target} on the internet: {asks or 'clients are not authenticated'}",),
                message=f"anyone on the internet could use {route.target}: endpoint {endpoint.name} has keys: false",
                given="false",
                allowed="true",
            )


@rule(
    "GWY005",
    "A public gateway has public subnets.",
    fix="set network.public_subnets, or make the gateway internal",
    source="Elastic Load Balancing user guide, Subnets for your load balancer: an internet-facing one needs an internet gateway",
)
def has_subnets(gateway: GatewayFacts) -> Iterator[Judgement]:
    if gateway.spec.public:
        yield Judgement(
            holds=gateway.public_subnets,
            path=("gateway", "public"),
            working=(f"public subnets: {'yes' if gateway.public_subnets else 'none'}",),
            message="the network has no public subnets for the load balancer",
            given="true",
            allowed="false",
        )


@rule(
    "GWY006",
    "A certificate that is made has no more names than ACM allows at first.",
    severity="warning",
    fix="put servers below paths of one host, give certificate_arn (a wildcard counts once), or have the quota raised",
    source="ACM user guide, Quotas: ten domain names per certificate",
)
def names_fit(gateway: GatewayFacts) -> Iterator[Judgement]:
    if gateway.spec.certificate_arn is None:
        count = len(hosts(gateway.routes))
        yield Judgement(
            holds=count <= _NAMES_OF_A_CERTIFICATE,
            path=("gateway", "routes"),
            working=(f"{count} hosts in one certificate; at first {_NAMES_OF_A_CERTIFICATE} are allowed",),
            message=f"the certificate would have {count} names",
            given=str(count),
            allowed=f"at most {_NAMES_OF_A_CERTIFICATE}",
        )


@rule(
    "GWY007",
    "Endpoints behind a gateway start and end with it.",
    severity="warning",
    fix="leave behind_load_balancer out, or set it to true",
    source="AWS Load Balancer Controller 3.5, Pod readiness gate; Elastic Load Balancing user guide, Deregistration delay",
)
def servers_settle(gateway: GatewayFacts) -> Iterator[Judgement]:
    for name, endpoint in gateway.endpoints.items():
        yield Judgement(
            holds=endpoint.settles,
            path=("endpoints", endpoint.name, "behind_load_balancer"),
            working=(f"{name}: pods {'wait' if endpoint.settles else 'do not wait'} for the load balancer",),
            message=f"the load balancer still sends requests to pods of {name} that have ended: a roll-out loses some",
            given="false",
            allowed="true",
        )


@rule(
    "GWY008",
    "The load balancer of a gateway shares no addresses with pods that may not call its servers.",
    severity="warning",
    fix="set network.load_balancer_subnets, in a network.cidr that has room for them",
    source="Kubernetes, NetworkPolicy: an ipBlock is all there is for what is no pod; internal load balancers have addresses of "
    "their subnets",
)
def addresses_apart(gateway: GatewayFacts) -> Iterator[Judgement]:
    if gateway.spec.public:
        return
    for name, endpoint in gateway.endpoints.items():
        if endpoint.limited:
            yield Judgement(
                holds=gateway.own_subnets,
                path=("network", "load_balancer_subnets"),
                working=(
                    f"{name} has client_namespaces; load balancer in {'its own' if gateway.own_subnets else 'private'} subnets",
                ),
                message=f"any pod reaches {name}: it has an address in the same subnets as the load balancer",
                given="false",
                allowed="true",
            )


@rule(
    "GWY009",
    "What a Gateway of others leads to authenticates clients.",
    severity="warning",
    fix="remove keys: false, or make the Gateway ask for keys",
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
            message=f"anyone who reaches the Gateway {name} may use {target}: endpoint {endpoint.name} has keys: false",
            given="false",
            allowed="true",
        )


@rule(
    "GWY010",
    "Each address of a Gateway leads to one endpoint, and each host has one kind of route.",
    fix="give one of them another host or path",
    source="Gateway API v1.6: a listener takes either HTTPRoutes or GRPCRoutes for a host, and of equal matches the oldest route",
)
def api_addresses_differ(gateway: GatewayApiFacts) -> Iterator[Judgement]:
    hosts = {route.host: route.target for route in reversed(gateway.routes)}
    taken: dict[str, str] = {}
    for route in gateway.routes:
        path = ("gateway_api", "routes", route.target)
        yield _alone(taken, route.target, f"{route.host}{route.path}", (*path, "host" if route.path == "/" else "path"))
        if route.grpc_host:
            yield _alone(taken, route.target, f"{route.grpc_host} for gRPC", (*path, "grpc_host"))
            yield Judgement(
                holds=route.grpc_host not in hosts,
                path=(*path, "grpc_host"),
                working=(f"hosts of routes for HTTP: {', '.join(hosts)}",),
                message=f"{route.grpc_host} has a route for HTTP, to {hosts.get(route.grpc_host)}: the Gateway takes one of both",
                given=route.grpc_host,
                allowed="a host of its own",
            )
