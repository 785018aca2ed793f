"""Plans the gateway and routes of a Gateway (Gateway API): hosts, paths, Ingresses, HTTPRoutes, NetworkPolicies, security groups.
Pure; no pulumi.

All Ingresses of a gateway form one group, which shares one load balancer. Settings of the load balancer stand in all of them with
one value, as the controller demands.

Sources: kubernetes-sigs/aws-load-balancer-controller v3.5.0, docs/guide/ingress (annotations, spec) and docs/guide/tasks; Elastic
Load Balancing user guide, "Target groups for your Application Load Balancers" (deregistration delay, health checks).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference.faults import Fault, did_you_mean
from eks_inference.gateway.spec import (
    EVERYWHERE,
    AddressSpec,
    GatewayApiRouteSpec,
    GatewayApiSpec,
    GatewaySpec,
    LoginSpec,
    RouteSpec,
)
from eks_inference.kubernetes.network_policy import Door, Peer, addresses, allow_from, namespace, network_policy
from eks_inference.specs.base import dns_label_faults

_MAX_NAME_LENGTH = 50


@dataclass(frozen=True)
class Route:
    """A route with its host and path: ``<scheme>://<host><path>`` is the ``/`` of what it leads to."""

    target: str
    """Name of the endpoint, of the server behind one, or of the web UI."""
    host: str
    path: str
    login: bool = False
    grpc_host: str | None = None
    """Host name for gRPC alone, which otherwise shares ``host``."""
    scheme: str = "https"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}{self.path.rstrip('/')}"


def routes(spec: GatewaySpec | GatewayApiSpec, targets: Sequence[str]) -> tuple[Route, ...]:
    """Returns the routes of a gateway, those of its spec or else one to each target."""
    wanted: Mapping[str, AddressSpec] = spec.routes or {name: AddressSpec() for name in targets}
    hosts = [route.host or spec.host for route in wanted.values()]
    return tuple(
        Route(
            target,
            host := route.host or spec.host,
            path=route.path or ("/" if hosts.count(host) == 1 else f"/{target}"),
            login=isinstance(route, RouteSpec) and route.login,
            grpc_host=route.grpc_host if isinstance(route, GatewayApiRouteSpec) else None,
            scheme=spec.scheme if isinstance(spec, GatewayApiSpec) else "https",
        )
        for target, route in wanted.items()
    )


def path_to(route: Route, door: Door) -> str:
    """Returns the path below which everything is led to a door."""
    return f"/{door.grpc}" if door.grpc else route.path


def hosts(found: Sequence[Route]) -> tuple[str, ...]:
    """Returns the hosts of routes, each once, in order."""
    return tuple(dict.fromkeys(route.host for route in found))


def name_faults(name: str, why: str) -> list[Fault]:
    """Returns what is wrong with the name of a gateway, which begins those of its routes."""
    return dns_label_faults(name, why, max_length=_MAX_NAME_LENGTH)


def target_faults(named: Mapping[str, object], found: Sequence[Route], targets: Mapping[str, object]) -> list[Fault]:
    """Returns the routes of a spec that lead to nothing, and whether there is none."""
    allowed = ", ".join(targets) or "no target to route to"
    faults = [
        Fault(("routes", name), "no target has this name", name, allowed, did_you_mean(name, targets))
        for name in named
        if name not in targets
    ]
    if not found:
        faults.append(Fault(("routes",), "a gateway needs a model server or the web UI", allowed="one or more routes"))
    return faults


HTTPS_PORT = 443
LOGIN_SECRET = "gateway-login"
"""Name of the Secret with the client of the login, which the component makes in each namespace that needs it."""

_HEALTH_SECONDS = 10
_FAILURES = 2
"""Like the readiness probes of pods, which decide first: a pod that is not ready is no target."""

_PREFIX = "alb.ingress.kubernetes.io/"


def ingress_name(gateway: str, door: Door) -> str:
    """Returns the name of the Ingress of one door in its namespace."""
    return f"{gateway}-grpc" if door.grpc else gateway


def balancer_annotations(
    gateway: str,
    spec: GatewaySpec,
    *,
    certificate_arn: Any,
    subnets: Any,
    security_group: Any,
    attributes: Any,
) -> dict[str, Any]:
    """Returns the annotations that all Ingresses of a gateway share. Fields of type ``Any`` may be unknown until deployed."""
    settings = {
        "group.name": gateway,
        "scheme": "internet-facing" if spec.public else "internal",
        "target-type": "ip",
        "listen-ports": json.dumps([{"HTTPS": HTTPS_PORT}]),
        "certificate-arn": certificate_arn,
        "ssl-policy": spec.ssl_policy,
        "subnets": subnets,
        # Ours, so that a preview shows who may connect. The controller then makes no group and no rule of its own.
        "security-groups": security_group,
        "manage-backend-security-group-rules": "false",
        "load-balancer-attributes": attributes,
        **({"wafv2-acl-arn": spec.web_acl_arn} if spec.web_acl_arn is not None else {}),
    }
    return {f"{_PREFIX}{key}": value for key, value in settings.items()}


def attributes(spec: GatewaySpec, log_bucket: str) -> str:
    """Returns the attributes of the load balancer; ``log_bucket`` is empty where there are no access logs."""
    wanted = {
        "idle_timeout.timeout_seconds": str(spec.idle_timeout_seconds),
        "routing.http.drop_invalid_header_fields.enabled": "true",
        # The controller changes only what it is told: an attribute that is left out keeps its value.
        "access_logs.s3.enabled": "true" if log_bucket else "false",
        **({"access_logs.s3.bucket": log_bucket} if log_bucket else {}),
    }
    return ",".join(f"{key}={value}" for key, value in wanted.items())


def ingress(
    gateway: str,
    route: Route,
    door: Door,
    *,
    namespace: str,
    shared: Mapping[str, Any],
    ingress_class: str,
    login: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the Ingress for one door of a route."""
    path = path_to(route, door)
    target = {
        "healthcheck-path": door.health,
        "healthcheck-protocol": "HTTP",
        "healthcheck-interval-seconds": str(_HEALTH_SECONDS),
        "healthcheck-timeout-seconds": str(_HEALTH_SECONDS - 1),
        "healthy-threshold-count": str(_FAILURES),
        "unhealthy-threshold-count": str(_FAILURES),
        "success-codes": door.healthy,
        # A target that is taken out keeps the requests it has for as long as its pod goes on with them.
        "target-group-attributes": f"deregistration_delay.timeout_seconds={door.drain_seconds}",
        **({"backend-protocol-version": "GRPC"} if door.grpc else {}),
        **({} if path != route.path or path == "/" else _without_prefix(door.service, path)),
        # Longer paths first, whatever the namespaces are called.
        "group.order": str(-len(path)),
    }
    backend = {"service": {"name": door.service, "port": {"number": door.port}}}
    return {
        "metadata": {
            "name": ingress_name(gateway, door),
            "namespace": namespace,
            "annotations": {**shared, **{f"{_PREFIX}{key}": value for key, value in target.items()}, **login},
        },
        "spec": {
            "ingressClassName": ingress_class,
            "rules": [{"host": route.host, "http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]}}],
        },
    }


def _without_prefix(service: str, path: str) -> dict[str, str]:
    """Makes the load balancer take the path of a route away: what is behind it knows nothing of it."""
    pattern = path.replace(".", r"\.")  # of what a path may have, only a dot means something in a pattern
    rewrites = [{"regex": f"^{pattern}/?(.*)$", "replace": "/$1"}]
    return {f"transforms.{service}": json.dumps([{"type": "url-rewrite", "urlRewriteConfig": {"rewrites": rewrites}}])}


def login_annotations(login: LoginSpec, secret: Any) -> dict[str, Any]:
    """Returns the annotations that send browsers to the login first. ``secret`` is the Secret with the client."""
    provider = {
        "issuer": login.issuer,
        "authorizationEndpoint": login.authorization_endpoint,
        "tokenEndpoint": login.token_endpoint,
        "userInfoEndpoint": login.user_info_endpoint,
        "secretName": secret,
    }
    settings = {
        "auth-type": "oidc",
        "auth-idp-oidc": provider,
        "auth-scope": login.scope,
        "auth-session-timeout": str(login.session_timeout_seconds),
        "auth-on-unauthenticated-request": "authenticate",
    }
    return {f"{_PREFIX}{key}": value for key, value in settings.items()}


def entrance(gateway: str, namespace: str, doors: Sequence[Door], senders: Sequence[Peer]) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the NetworkPolicy that lets ``senders`` reach the pods of a route."""
    ports = sorted({door.pod_port for door in doors})
    return network_policy(gateway, namespace, selector=doors[0].labels, ingress=[allow_from(*senders, tcp=ports)], egress=None)


def from_clients(spec: GatewaySpec) -> list[Any]:
    """Returns what the security group of the load balancer lets in."""
    return [{**_tcp(HTTPS_PORT), "cidr_blocks": list(spec.sources), "description": "Clients"}]


def to_pods(spec: GatewaySpec, ports: Sequence[int], pods: Any) -> list[Any]:
    """Returns what the security group of the load balancer lets out. ``pods`` is the group of the pods' nodes."""
    out = [{**_tcp(port), "security_groups": [pods], "description": "Pods"} for port in ports]
    if any(route.login for route in spec.routes.values()):
        out.append({**_tcp(HTTPS_PORT), "cidr_blocks": [EVERYWHERE], "description": "The provider of the login"})
    return out


def _tcp(port: int) -> dict[str, Any]:
    return {"protocol": "tcp", "from_port": port, "to_port": port}


# Sources: kubernetes-sigs/gateway-api v1.6.3, config/crd/standard: a zero timeout is none (HTTPRoute, timeouts); a listener takes
# either HTTPRoutes or GRPCRoutes for a host (GRPCRoute, hostnames); ReplacePrefixMatch goes with one match, by prefix (HTTPRoute,
# filters); a route may lead to a Service of its own namespace without a ReferenceGrant (backendRefs).

GATEWAY_API_VERSION = "gateway.networking.k8s.io/v1"
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
