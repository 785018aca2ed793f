"""The subject of the rules about gateways: its routes, and what they lead to. Pure; no pulumi."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from eks_inference.gateway.gateway_api_spec import GatewayApiSpec
from eks_inference.gateway.routes import Route
from eks_inference.gateway.spec import GatewaySpec


@dataclass(frozen=True)
class RoutedServer:
    """A server or an endpoint behind the gateway."""

    path: tuple[str, ...]
    """Its key in the stack."""
    api_keys: bool
    """Whether servers of its kind can require an API key, or the endpoint does."""
    grpc: bool
    """Whether it answers over gRPC too, whose paths no client can change."""
    settles: bool
    """``behind_load_balancer`` of its spec."""
    limited: bool
    """Whether only some namespaces may call it."""
    answer_seconds: int
    """How long a terminating pod goes on with the requests it has: the longest answer that the library expects. Of an endpoint:
    how long an answer may be silent."""


@dataclass(frozen=True)
class GatewayApiFacts:
    """Routes of a Gateway that the cluster has. ``servers`` has their servers and endpoints, by name."""

    about: ClassVar[str] = "routes of a Gateway (Gateway API)"

    spec: GatewayApiSpec
    routes: tuple[Route, ...]
    servers: Mapping[str, RoutedServer]


@dataclass(frozen=True)
class GatewayFacts:
    """A gateway in its stack. ``servers`` has those of the routes, by name; the web UI is none of them."""

    about: ClassVar[str] = "gateways"

    spec: GatewaySpec
    routes: tuple[Route, ...]
    region: str
    servers: Mapping[str, RoutedServer]
    public_subnets: bool
    """Whether the network has public subnets."""
    own_subnets: bool
    """Whether an internal load balancer has subnets without pods."""
