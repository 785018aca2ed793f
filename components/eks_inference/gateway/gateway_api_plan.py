"""Plans routes of a Gateway (Gateway API): HTTPRoutes, GRPCRoutes, NetworkPolicies. Pure; no pulumi.

Sources: kubernetes-sigs/gateway-api v1.6.3, config/crd/standard: a zero timeout is none (HTTPRoute, timeouts); a listener takes
either HTTPRoutes or GRPCRoutes for a host (GRPCRoute, hostnames); ReplacePrefixMatch goes with one match, by
prefix (HTTPRoute, filters); a route may lead to a Service of its own namespace without a ReferenceGrant (backendRefs).
"""

from collections.abc import Iterator
from typing import Any

from eks_inference.gateway.gateway_api_spec import GatewayApiSpec
from eks_inference.gateway.routes import PathType, Route, led_out
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
    backend = {"backendRefs": [{"name": front.service, "port": front.port}]}
    rules = [{**backend, **rule} for rule in (_grpc_rules(front) if front.grpc else _http_rules(route, front))]
    return {
        "kind": "GRPCRoute" if front.grpc else "HTTPRoute",
        "metadata": {"name": f"{name}-grpc" if front.grpc else name, "namespace": namespace},
        "spec": {"parentRefs": [parent], "hostnames": [route.grpc_host if front.grpc else route.host], "rules": rules},
    }


def _grpc_rules(front: Front) -> Iterator[dict[str, Any]]:
    """GRPCRoute has no timeouts."""
    yield {"matches": [{"method": {"service": path.strip("/")}} for path in front.paths]}


def _http_rules(route: Route, front: Front) -> Iterator[dict[str, Any]]:
    """A rule for all paths, or one for each where the path of the route is taken away: servers know nothing of it."""
    paths = led_out(route, front)
    matches = [{"path": {"type": _TYPES[kind], "value": path}} for kind, path, _ in paths]
    # A stream lasts as long as it flows; some Gateways would end it after 15 seconds.
    timeouts = {"timeouts": {"request": _NO_LIMIT, "backendRequest": _NO_LIMIT}}
    if route.path == "/":
        yield {"matches": matches, **timeouts}
        return
    for match, (kind, _, inside) in zip(matches, paths, strict=True):
        way, key = _REWRITES[kind]
        rewrite = {"type": way, key: inside}
        yield {"matches": [match], **timeouts, "filters": [{"type": "URLRewrite", "urlRewrite": {"path": rewrite}}]}


_TYPES: dict[PathType, str] = {"Exact": "Exact", "Prefix": "PathPrefix"}
_REWRITES: dict[PathType, tuple[str, str]] = {
    "Exact": ("ReplaceFullPath", "replaceFullPath"),
    "Prefix": ("ReplacePrefixMatch", "replacePrefixMatch"),
}


def senders(spec: GatewayApiSpec) -> Iterator[Peer]:
    """Yields who sends the requests of the Gateway, for NetworkPolicies."""
    yield from map(namespace, spec.from_namespaces)
    yield from map(addresses, spec.from_cidrs)
