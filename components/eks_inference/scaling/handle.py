"""Interfaces through which an autoscaler depends on its server, Prometheus and the metrics backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pulumi

from eks_inference.cluster.handle import Cluster
from eks_inference.component import Handle
from eks_inference.observability.handle import Metrics


class ScaledServer(Protocol):
    """A model server that is one Deployment without ``replicas``: ``VllmServer``, ``TritonServer``, or one
    half of ``PrefillDecodeServers``.

    ``RayServeVllm`` is none: Ray scales its own workers.
    """

    @property
    def namespace(self) -> str: ...
    @property
    def deployment_name(self) -> str: ...
    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """The Deployment. Pulumi creates the autoscaler after it and deletes the autoscaler first."""
        ...


class ScaledParts(Protocol):
    """A model server as its autoscalers see it."""

    @property
    def scaled(self) -> Mapping[str, ScaledServer]:
        """What each autoscaler scales, by the keys of ``ServerSpec.scalers``."""
        ...


class QueriedMetrics(Metrics, Protocol):
    """A Prometheus that accepts queries: ``PrometheusStack`` or ``ExistingPrometheus`` with a ``url``."""

    @property
    def url(self) -> str | None:
        """URL for queries inside the cluster, without a path: ``http://prometheus.monitoring.svc:9090``."""
        ...


class Backend(Protocol):
    """Derives pod counts from metrics: ``Keda``, ``PrometheusAdapter`` or their ``Existing...`` forms."""

    @property
    def kind(self) -> str:
        """The autoscaler ``kind`` that it supports."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]: ...


@dataclass(frozen=True)
class ExistingKeda(Handle):
    """KEDA 2.12 or later that the team already runs. It must be able to reach Prometheus."""

    ready: Sequence[pulumi.Resource] = ()
    kind: str = "keda"
    cluster: Cluster | None = None
    """The cluster where it is; None: not said, so that it goes with any."""


@dataclass(frozen=True)
class ExistingPrometheusAdapter(Handle):
    """A prometheus-adapter that the team already runs, with ``scaling.plan.adapter_rules`` and ``recording_rules``."""

    ready: Sequence[pulumi.Resource] = ()
    kind: str = "hpa"
    cluster: Cluster | None = None
    """The cluster where it is; None: not said, so that it goes with any."""
