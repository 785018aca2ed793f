"""What the readers and the read need to know of each other: a Prometheus, whoever installed it, and the pods of a server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pulumi

from eks_inference.cluster.handle import Cluster


class Metrics(Protocol):
    """A Prometheus with its operator: ``PrometheusStack`` or ``ExistingPrometheus``."""

    @property
    def cluster(self) -> Cluster: ...

    @property
    def namespace(self) -> str:
        """Where Prometheus runs: the pods a NetworkPolicy has to let in."""
        ...

    @property
    def monitor_labels(self) -> Mapping[str, str]:
        """Labels a PodMonitor must carry for this Prometheus to read it."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """What must exist before a PodMonitor and outlive it: the definition of its kind."""
        ...


@dataclass(frozen=True)
class ExistingPrometheus:
    """A Prometheus the team already runs, with an operator whose PodMonitor knows ``attachMetadata``.

    ``monitor_labels`` are what its ``podMonitorSelector`` asks for: with kube-prometheus-stack as it comes,
    ``{"release": <name of the Helm release>}``. Its ``podMonitorNamespaceSelector`` has to cover the namespaces of the servers.
    It should scrape every 15 seconds or less often, and be the only one that scrapes Ray: see ``ServerMetrics``.
    """

    cluster: Cluster
    namespace: str
    monitor_labels: Mapping[str, str] = field(default_factory=dict)
    ready: Sequence[pulumi.Resource] = ()
    url: str | None = None
    """Where it answers queries inside the cluster, e.g. ``http://prometheus-operated.prom.svc:9090``; autoscalers ask there."""


class RayPods(Protocol):
    """A server on Ray, alone in its namespace: ``RayServeVllm``."""

    @property
    def namespace(self) -> str: ...
    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """What must exist before Prometheus is let in."""
        ...


class VllmPods(Protocol):
    """A server whose pods hand on what vLLM counts: ``VllmServer``, ``TritonServer``, ``DisaggregatedPair``.

    It is alone in its namespace.
    """

    @property
    def metrics_job(self) -> str:
        """Whose metrics they are, as dashboards ask: ``vllm``, or ``triton`` around it."""
        ...

    @property
    def metrics_ports(self) -> Mapping[str, int]:
        """Where they answer, by the names of the ports in the pods."""
        ...

    @property
    def metric_names(self) -> Mapping[str, str]:
        """Metrics that dashboards know by another name: theirs → the dashboards'."""
        ...

    @property
    def namespace(self) -> str: ...
    @property
    def pod_labels(self) -> Mapping[str, str]: ...
    @property
    def foundation(self) -> Sequence[pulumi.Resource]:
        """What must exist before anything in the namespace."""
        ...
