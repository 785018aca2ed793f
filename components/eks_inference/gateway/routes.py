"""Where each server answers: hosts and paths of the routes of a gateway. Pure; no pulumi."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from eks_inference.faults import Fault, did_you_mean
from eks_inference.gateway.gateway_api_spec import GatewayApiRouteSpec, GatewayApiSpec
from eks_inference.gateway.spec import AddressSpec, GatewaySpec, RouteSpec
from eks_inference.kubernetes.front import Front
from eks_inference.spec import dns_label_faults

_MAX_NAME_LENGTH = 50
PathType = Literal["Exact", "Prefix"]
"""How Kubernetes compares a path: whole, or by its first parts."""


@dataclass(frozen=True)
class Route:
    """A route with its host and path: ``<scheme>://<host><path>`` is the server's ``/``."""

    target: str
    """Name of the server, or of the web UI."""
    host: str
    path: str
    login: bool = False
    grpc_host: str | None = None
    """Host name for gRPC alone, which otherwise shares ``host``."""
    scheme: str = "https"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}{self.path.rstrip('/')}"


def routes(spec: GatewaySpec | GatewayApiSpec, servers: Sequence[str]) -> tuple[Route, ...]:
    """Returns the routes of a gateway, those of its spec or else one to each server."""
    wanted: Mapping[str, AddressSpec] = spec.routes or {name: AddressSpec() for name in servers}
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


def led_out(route: Route, front: Front) -> tuple[tuple[PathType, str, str], ...]:
    """Returns the paths of a route that lead to a front: how each is compared, the path, and what it is for the server.

    Whole paths wherever a server has a list of them: whoever reads ``/v1/../pause`` in whichever way, it is none of these.
    """
    before = "" if front.grpc else route.path.rstrip("/")
    return tuple(
        ("Prefix", f"{before}{path}".rstrip("/") or "/", path.rstrip("/") or "/")
        if path.endswith("/")
        else ("Exact", f"{before}{path}", path)
        for path in front.paths
    )


def hosts(found: Sequence[Route]) -> tuple[str, ...]:
    """Returns the hosts of routes, each once, in order."""
    return tuple(dict.fromkeys(route.host for route in found))


def name_faults(name: str, why: str) -> list[Fault]:
    """Returns what is wrong with the name of a gateway, which begins those of its routes."""
    return dns_label_faults(name, why, max_length=_MAX_NAME_LENGTH)


def target_faults(named: Mapping[str, object], found: Sequence[Route], targets: Mapping[str, object]) -> list[Fault]:
    """Returns the routes of a spec that lead to nothing, and whether there is none."""
    allowed = ", ".join(targets) or "there is nothing to route to"
    faults = [
        Fault(("routes", name), "there is nothing of this name", name, allowed, did_you_mean(name, targets))
        for name in named
        if name not in targets
    ]
    if not found:
        faults.append(Fault(("routes",), "a gateway needs a model server or the web UI", allowed="one or more routes"))
    return faults
