"""The subject of the rules about gateways: its routes, and what they lead to. Pure; no pulumi."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from eks_inference.gateway.gateway_api_spec import GatewayApiSpec
from eks_inference.gateway.routes import Route
from eks_inference.gateway.spec import GatewaySpec


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
    """Routes of a Gateway that the cluster has. ``endpoints`` has those of its routes, by target."""

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
