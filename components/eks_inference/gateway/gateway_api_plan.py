"""Plans routes of a Gateway (Gateway API): HTTPRoutes, GRPCRoutes, NetworkPolicies. Pure; no pulumi.

Sources: kubernetes-sigs/gateway-api v1.6.3, config/crd/standard: a zero timeout is none (HTTPRoute, timeouts); a listener takes
either HTTPRoutes or GRPCRoutes for a host (GRPCRoute, hostnames); a route may lead to a Service of its own namespace without a
ReferenceGrant (backendRefs).
"""

from collections.abc import Iterator
from typing import Any

from eks_inference.gateway.gateway_api_spec import GatewayApiSpec
from eks_inference.gateway.routes import Route
from eks_inference.kubernetes.front import Front
from eks_inference.kubernetes.network_policy import Peer, addresses, namespace

GROUP = "gateway.networking.k8s.io"
API_VERSION = f"{GROUP}/v1"
_NO_LIMIT = "0s"


def is_routed(route: Route, front: Front) -> bool:
    """Whether a front of a target has a route: one with gRPC only where its host is named."""
    return not front.grpc or bool(route.grpc_host)


def route_manifest(name: str, spec: GatewayApiSpec, route: Route, front: Front, *, namespace: str) -> dict[str, Any]:
    """Returns ``kind``, ``metadata`` and ``spec`` of the route that leads to a front."""
    parent = {"name": spec.gateway, "namespace": spec.namespace, **({"sectionName": spec.listener} if spec.listener else {})}
    rule: dict[str, Any] = {"backendRefs": [{"name": front.service, "port": front.port}]}
    if front.grpc:
        # GRPCRoute has no timeouts.
        rule |= {"matches": [{"method": {"service": path.removeprefix("/")}} for path in front.paths]}
    else:
        # A stream lasts as long as it flows; some Gateways would end it after 15 seconds.
        rule |= {
            "matches": [{"path": {"type": "PathPrefix", "value": route.path}}],
            "timeouts": {"request": _NO_LIMIT, "backendRequest": _NO_LIMIT},
            **({} if route.path == "/" else {"filters": [_WITHOUT_PREFIX]}),
        }
    return {
        "kind": "GRPCRoute" if front.grpc else "HTTPRoute",
        "metadata": {"name": f"{name}-grpc" if front.grpc else name, "namespace": namespace},
        "spec": {"parentRefs": [parent], "hostnames": [route.grpc_host if front.grpc else route.host], "rules": [rule]},
    }


_WITHOUT_PREFIX = {
    "type": "URLRewrite",
    "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}},
}
"""Takes the path of a route away: servers know nothing of it."""


def senders(spec: GatewayApiSpec) -> Iterator[Peer]:
    """Yields who sends the requests of the Gateway, for NetworkPolicies."""
    yield from map(namespace, spec.from_namespaces)
    yield from map(addresses, spec.from_cidrs)
