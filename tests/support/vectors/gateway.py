"""Vectors of the rules about gateways."""

from typing import Any

from eks_inference.gateway.plan import routes
from eks_inference.gateway.rules import GatewayApiFacts, GatewayFacts, RoutedEndpoint
from eks_inference.gateway.spec import GatewayApiSpec, GatewaySpec
from vectors import Vector

LOGIN = {
    "issuer": "https://id.example.com",
    "authorization_endpoint": "https://id.example.com/authorize",
    "token_endpoint": "https://id.example.com/token",
    "user_info_endpoint": "https://id.example.com/userinfo",
    "client_id": "models",
}


def routed(**facts: Any) -> RoutedEndpoint:
    usual: dict[str, Any] = {"name": "a", "keys": True, "grpc": False, "settles": True, "limited": True, "answer_seconds": 180}
    return RoutedEndpoint(**{**usual, **facts})


def gateway(
    servers: dict[str, RoutedEndpoint] | None = None, *, public_subnets: bool = True, own_subnets: bool = True, **keys: Any
) -> GatewayFacts:
    """Returns a gateway to endpoints, by default one, with more keys."""
    spec = GatewaySpec.model_validate({"host": "models.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ", **keys})
    behind = servers or {"a": routed()}
    return GatewayFacts(
        spec,
        routes(spec, list(behind)),
        "us-west-2",
        {name: behind[name] for name in (spec.routes or behind) if name in behind},
        public_subnets=public_subnets,
        own_subnets=own_subnets,
    )


def certificate_of(region: str) -> GatewayFacts:
    return gateway(certificate_arn=f"arn:aws:acm:{region}:123456789012:certificate/12345678-1234-1234-1234-123456789012")


def two(**route: Any) -> GatewayFacts:
    """Returns two endpoints of Triton servers, the second with this route."""
    behind = {"a": routed(grpc=True), "b": routed(grpc=True)}
    return gateway(behind, routes={"a": {}, "b": route})


def public(*, keys: bool = True, login: bool = False) -> GatewayFacts:
    extra = {"login": LOGIN, "routes": {"a": {"login": True}}} if login else {}
    return gateway({"a": routed(keys=keys)}, public=True, **extra)


def with_hosts(count: int) -> GatewayFacts:
    names = [f"s{number}" for number in range(count)]
    return gateway({name: routed() for name in names}, routes={name: {"host": f"{name}.example.com"} for name in names})


def of_gateway(routed_to: dict[str, Any] | None = None, *, asks: bool = True) -> GatewayApiFacts:
    """Returns routes of a Gateway to two endpoints of Triton servers, by default each at a path of its own."""
    keys = {"gateway": "shared", "namespace": "gateways", "host": "models.example.com", "from_namespaces": ["gateways"]}
    spec = GatewayApiSpec.model_validate({**keys, "routes": routed_to or {}})
    behind = {name: routed(grpc=True, keys=asks) for name in "ab"}
    return GatewayApiFacts(spec, routes(spec, list(behind)), behind)


VECTORS = {
    "GWY001": Vector(
        lambda: certificate_of("us-west-2"), lambda: certificate_of("us-east-1"), "cannot use a certificate of us-east-1"
    ),
    "GWY002": Vector(lambda: two(host="b.example.com"), lambda: two(path="/b"), "gRPC leads to a already"),
    "GWY003": Vector(gateway, lambda: gateway(idle_timeout_seconds=60), "longer than 60 s are cut"),
    "GWY004": Vector(lambda: public(keys=False, login=True), lambda: public(keys=False), "anyone on the internet could use a"),
    "GWY005": Vector(public, lambda: gateway(public=True, public_subnets=False), "no public subnets"),
    "GWY006": Vector(lambda: with_hosts(10), lambda: with_hosts(11), "would have 11 names"),
    "GWY007": Vector(gateway, lambda: gateway({"a": routed(settles=False)}), "a roll-out loses some"),
    "GWY008": Vector(gateway, lambda: gateway(own_subnets=False), "any pod reaches a"),
    "GWY009": Vector(of_gateway, lambda: of_gateway(asks=False), "anyone who reaches the Gateway gateways/shared may use a"),
    "GWY010": Vector(
        lambda: of_gateway({"a": {"grpc_host": "grpc.example.com"}, "b": {"host": "b.example.com"}}),
        lambda: of_gateway({"a": {"grpc_host": "b.example.com"}, "b": {"host": "b.example.com"}}),
        "has a route for HTTP, to b",
    ),
}
