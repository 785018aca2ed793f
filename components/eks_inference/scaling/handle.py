"""What an autoscaler needs to know of the server it scales and of what it stands on, whoever installed that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pulumi

from eks_inference.observability.handle import Metrics


class ScaledServer(Protocol):
    """A model server whose pods are those of one Deployment that says nothing of their number: ``VllmServer``, ``TritonServer``.

    Not ``RayServeVllm``: Ray scales its own workers.
    """

    @property
    def namespace(self) -> str: ...
    @property
    def deployment_name(self) -> str: ...
    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """The Deployment: the autoscaler comes after it, and goes before it."""
        ...


class QueriedMetrics(Metrics, Protocol):
    """A Prometheus that can be asked: ``PrometheusStack`` or ``ExistingPrometheus`` with a ``url``."""

    @property
    def url(self) -> str | None:
        """Where it answers queries inside the cluster, without a path: ``http://prometheus.monitoring.svc:9090``."""
        ...


class Backend(Protocol):
    """What makes metrics into numbers of pods: ``Keda``, ``PrometheusAdapter`` or their ``Existing...`` forms."""

    @property
    def kind(self) -> str:
        """The ``kind`` of the autoscalers it serves."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]: ...


@dataclass(frozen=True)
class ExistingKeda:
    """KEDA 2.12 or newer that the team already runs; it has to reach Prometheus."""

    ready: Sequence[pulumi.Resource] = ()
    kind: str = "keda"


@dataclass(frozen=True)
class ExistingPrometheusAdapter:
    """A prometheus-adapter the team already runs, with the rules of ``scaling.plan.adapter_rules`` and ``recording_rules``."""

    ready: Sequence[pulumi.Resource] = ()
    kind: str = "hpa"
