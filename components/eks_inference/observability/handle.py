"""Interfaces between Prometheus and what it scrapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pulumi

from eks_inference.cluster.handle import Cluster
from eks_inference.component import Handle
from eks_inference.observability.spec import Objectives


class Metrics(Protocol):
    """A Prometheus with its operator: ``PrometheusStack`` or ``ExistingPrometheus``."""

    @property
    def cluster(self) -> Cluster: ...

    @property
    def namespace(self) -> str:
        """The namespace of Prometheus, which NetworkPolicies must admit."""
        ...

    @property
    def monitor_labels(self) -> Mapping[str, str]:
        """Labels that a PodMonitor needs for this Prometheus to select it."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """Resources that must exist before a PodMonitor and outlive it: its CustomResourceDefinition."""
        ...


@dataclass(frozen=True)
class ExistingPrometheus(Handle):
    """A Prometheus that the team already runs, with an operator whose PodMonitor supports ``attachMetadata``.

    ``monitor_labels`` must match its ``podMonitorSelector``: by default, kube-prometheus-stack selects
    ``{"release": <name of the Helm release>}``. Its ``podMonitorNamespaceSelector`` must cover the namespaces of the servers. Its
    scrape interval must be at least 15 seconds, and no other Prometheus may scrape Ray: see ``ServerMetrics``.
    """

    cluster: Cluster
    namespace: str
    monitor_labels: Mapping[str, str] = field(default_factory=dict)
    ready: Sequence[pulumi.Resource] = ()
    url: str | None = None
    """URL for queries inside the cluster, e.g. ``http://prometheus-operated.prom.svc:9090``; autoscalers need it."""


@dataclass(frozen=True)
class Expected:
    """What alerts expect of a server."""

    server: str
    """Its name, the label ``server`` of its metrics."""
    pods: int
    """Fewest pods that should run. Without any, nobody misses its metrics."""
    objectives: Objectives = field(default_factory=Objectives)
    requests_per_pod: int | None = None
    """Requests that a pod works on at once; None where the engine itself counts those that wait."""


@dataclass(frozen=True)
class Budget:
    """What a stack may cost a month, and what an hour of a node costs, by instance type."""

    usd_per_month: float
    usd_per_hour: Mapping[str, float]


class RayPods(Protocol):
    """A Ray server that has its namespace to itself: ``RayServeVllm``."""

    @property
    def expected(self) -> Expected: ...
    @property
    def namespace(self) -> str: ...
    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """Resources that must exist before Prometheus gets access."""
        ...


class VllmPods(Protocol):
    """A server whose pods export vLLM metrics: ``VllmServer``, ``TritonServer``, ``DisaggregatedPair``.

    It has its namespace to itself.
    """

    @property
    def expected(self) -> Expected: ...
    @property
    def metrics_job(self) -> str:
        """The exporter, as dashboards name it: ``vllm``, or ``triton`` if Triton embeds vLLM."""
        ...

    @property
    def metrics_ports(self) -> Mapping[str, int]:
        """Metrics ports by their name in the pods."""
        ...

    @property
    def metric_names(self) -> Mapping[str, str]:
        """Metrics that dashboards call differently: the server's name → the dashboards' name."""
        ...

    @property
    def namespace(self) -> str: ...
    @property
    def pod_labels(self) -> Mapping[str, str]: ...
    @property
    def foundation(self) -> Sequence[pulumi.Resource]:
        """Resources that must exist before anything in the namespace."""
        ...
