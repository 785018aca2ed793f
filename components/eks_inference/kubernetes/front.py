"""Where requests enter: ports of model servers' pods, and ports of Services that lead out of the cluster. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Front:
    """A port of a model server's pods, to which an endpoint's proxy sends requests."""

    labels: Mapping[str, str]
    """Labels of the pods."""
    pod_port: int
    grpc: bool = False
    tells_load: bool = False
    """Whether each pod tells at the same port, ``/metrics``, vLLM's metrics of its load."""


@dataclass(frozen=True)
class Door:
    """A port of a Service that a load balancer sends requests to, past the Service and straight to its pods.

    Only what closes paths and asks its clients by itself has one: all paths are led to it.
    """

    service: str
    port: int
    """Port of the Service."""
    labels: Mapping[str, str]
    """Labels of the pods behind the Service."""
    pod_port: int
    health: str
    """Path that answers with 200 while the pod is ready; over gRPC one that answers with a status of ``healthy``."""
    healthy: str = "200"
    api: str = ""
    """Path of the API for clients, ``/v1``; empty: ``/``."""
    grpc: str = ""
    """Name of the gRPC service, if it is one. Clients cannot change its paths, so no route has its own path before them."""
    drain_seconds: int = 0
    """How long a terminating pod goes on with the requests it has."""


GATED = {"elbv2.k8s.aws/pod-readiness-gate-inject": "enabled"}
"""Label of a namespace whose new pods are ready only once their load balancer has found them healthy (AWS Load Balancer
Controller, "Pod readiness gate"). Pods that start before the load balancer knows their Service have no such gate."""
