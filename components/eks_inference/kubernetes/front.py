"""Where requests from outside the cluster enter: a port of a Service, and what a load balancer needs to know of it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Front:
    """A port of a Service that a load balancer sends requests to, past the Service and straight to its pods."""

    service: str
    port: int
    """Port of the Service."""
    labels: Mapping[str, str]
    """Labels of the pods behind the Service."""
    health: str
    """Path that answers with 200 while the pod is ready; with ``grpc`` a method that answers with status 0."""
    paths: tuple[str, ...]
    """Paths that are led out: one that ends in a slash with all below it, others exactly. ``/`` is everything, for what closes
    paths by itself. Of a gRPC service clients cannot change them, so no route has its own path before them."""
    target_port: int | None = None
    """Port of the pods. None: that of the Service."""
    api: str = ""
    """Path of the API for clients, ``/v1``; empty: ``/``."""
    grpc: bool = False
    drain_seconds: int = 0
    """How long a terminating pod goes on with the requests it has."""
    tells_load: bool = False
    """Whether each pod tells at the same port, ``/metrics``, vLLM's metrics of its load."""

    @property
    def pod_port(self) -> int:
        return self.target_port or self.port


GATED = {"elbv2.k8s.aws/pod-readiness-gate-inject": "enabled"}
"""Label of a namespace whose new pods are ready only once their load balancer has found them healthy (AWS Load Balancer
Controller, "Pod readiness gate"). Pods that start before the load balancer knows their Service have no such gate."""
