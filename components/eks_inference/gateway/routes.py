"""Where what a gateway leads to answers: hosts and paths of its routes. Pure; no pulumi."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eks_inference.faults import Fault, did_you_mean
from eks_inference.gateway.gateway_api_spec import GatewayApiRouteSpec, GatewayApiSpec
from eks_inference.gateway.spec import AddressSpec, GatewaySpec, RouteSpec
from eks_inference.kubernetes.front import Door
from eks_inference.spec import dns_label_faults

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
    allowed = ", ".join(targets) or "there is nothing to route to"
    faults = [
        Fault(("routes", name), "there is nothing of this name", name, allowed, did_you_mean(name, targets))
        for name in named
        if name not in targets
    ]
    if not found:
        faults.append(Fault(("routes",), "a gateway needs a model server or the web UI", allowed="one or more routes"))
    return faults
