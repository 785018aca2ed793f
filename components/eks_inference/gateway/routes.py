"""Where each server answers: hosts and paths of the routes of a gateway. Pure; no pulumi."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eks_inference.gateway.spec import GatewaySpec, RouteSpec


@dataclass(frozen=True)
class Route:
    """A route with its host and path: ``https://<host><path>`` is the server's ``/``."""

    target: str
    """Name of the server, or of the web UI."""
    host: str
    path: str
    login: bool

    @property
    def url(self) -> str:
        return f"https://{self.host}{self.path.rstrip('/')}"


def routes(spec: GatewaySpec, servers: Sequence[str]) -> tuple[Route, ...]:
    """Returns the routes of a gateway, those of its spec or else one to each server."""
    wanted: Mapping[str, RouteSpec] = spec.routes or {name: RouteSpec() for name in servers}
    hosts = [route.host or spec.host for route in wanted.values()]
    return tuple(
        Route(
            target,
            host := route.host or spec.host,
            path=route.path or ("/" if hosts.count(host) == 1 else f"/{target}"),
            login=route.login,
        )
        for target, route in wanted.items()
    )


def hosts(found: Sequence[Route]) -> tuple[str, ...]:
    """Returns the hosts of routes, each once, in order."""
    return tuple(dict.fromkeys(route.host for route in found))
