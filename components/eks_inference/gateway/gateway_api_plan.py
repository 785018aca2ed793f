"""Plans routes of a Gateway (Gateway API): HTTPRoutes, GRPCRoutes, NetworkPolicies. Pure; no pulumi.

Sources: kubernetes-sigs/gateway-api v1.6.3, config/crd/standard: a zero timeout is none (HTTPRoute, timeouts); a listener takes
either HTTPRoutes or GRPCRoutes for a host (GRPCRoute, hostnames); ReplacePrefixMatch goes with one match, by prefix (HTTPRoute,
filters); a route may lead to a Service of its own namespace without a ReferenceGrant (backendRefs).
"""

from collections.abc import Iterator
from typing import Any

from eks_inference.gateway.gateway_api_spec import GatewayApiSpec
from eks_inference.gateway.routes import Route, path_to
from eks_inference.kubernetes.front import Door
from eks_inference.kubernetes.network_policy import Peer, addresses, namespace

GROUP = "gateway.networking.k8s.io"
API_VERSION = f"{GROUP}/v1"
_NO_LIMIT = "0s"


def is_routed(route: Route, door: Door) -> bool:
    """Whether a door of a target has a route: one with gRPC only where its host is named."""
    return not door.grpc or bool(route.grpc_host)


def route_manifest(name: str, spec: GatewayApiSpec, route: Route, door: Door, *, namespace: str) -> dict[str, Any]:
    """Returns ``kind``, ``metadata`` and ``spec`` of the route that leads to a door."""
    parent = {"name": spec.gateway, "namespace": spec.namespace, **({"sectionName": spec.listener} if spec.listener else {})}
    # GRPCRoute has no timeouts.
    rule = {"matches": [{"method": {"service": door.grpc}}]} if door.grpc else _http_rule(path_to(route, door))
    return {
        "kind": "GRPCRoute" if door.grpc else "HTTPRoute",
        "metadata": {"name": f"{name}-grpc" if door.grpc else name, "namespace": namespace},
        "spec": {
            "parentRefs": [parent],
            "hostnames": [route.grpc_host if door.grpc else route.host],
            "rules": [{"backendRefs": [{"name": door.service, "port": door.port}], **rule}],
        },
    }


def _http_rule(path: str) -> dict[str, Any]:
    rewrite = {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}
    return {
        "matches": [{"path": {"type": "PathPrefix", "value": path}}],
        # A stream lasts as long as it flows; some Gateways would end it after 15 seconds.
        "timeouts": {"request": _NO_LIMIT, "backendRequest": _NO_LIMIT},
        # What is behind the route knows nothing of its path.
        **({} if path == "/" else {"filters": [rewrite]}),
    }


def senders(spec: GatewayApiSpec) -> Iterator[Peer]:
    """Yields who sends the requests of the Gateway, for NetworkPolicies."""
    yield from map(namespace, spec.from_namespaces)
    yield from map(addresses, spec.from_cidrs)
