"""Creates one model server's autoscaler from the interfaces of the server, Prometheus and a metrics backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.component import Component, Handle
from eks_inference.faults import Fault, SpecError
from eks_inference.observability.handle import Metrics
from eks_inference.scaling import plan
from eks_inference.scaling.spec import AutoscalerSpec, KedaSpec
from eks_inference.specs.base import Given, one_of


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
    """Derives pod counts from metrics: ``Keda``, ``ExistingKeda``, ``PrometheusAdapter`` or ``ExistingPrometheusAdapter``."""

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


class Autoscaler(Component):
    """Scales a server: a KEDA ScaledObject or a HorizontalPodAutoscaler, depending on ``spec.kind``.

    The object is in the server's namespace and has the Deployment's name. It owns the pod count: the Deployment must not set
    ``replicas``, or every ``pulumi up`` would reset the count.

    ``metrics`` is the Prometheus that scrapes the server; ``backend`` derives pod counts from its metrics. While either is
    unavailable, the count does not change. Kubernetes evaluates it every 15 seconds, which EKS does not let users change.

    To switch kinds, remove ``autoscaling`` for one deployment: KEDA's admission webhook rejects a Deployment that another object
    scales, and Pulumi creates the new object before it deletes the old one.

    Raises ``SpecError`` for a backend of another kind, and for KEDA without the URL of Prometheus.
    """

    def __init__(
        self,
        name: str,
        spec: Given[AutoscalerSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        server: ScaledServer,
        metrics: QueriedMetrics,
        backend: Backend,
    ) -> None:
        spec = one_of(AutoscalerSpec, spec)
        if backend.kind != spec.kind:
            raise SpecError([Fault(("kind",), "the backend is for another kind", given=spec.kind, allowed=backend.kind)])
        super().__init__("eks-inference:index:Autoscaler", name, spec.inputs(), opts)
        inside = on_cluster(cluster, self, *server.ready, *metrics.ready, *backend.ready)
        target = {"namespace": server.namespace, "deployment": server.deployment_name}
        scaler: pulumi.Resource
        if isinstance(spec, KedaSpec):
            scaler = k8s.apiextensions.CustomResource(
                f"{name}-scaledobject",
                api_version="keda.sh/v1alpha1",
                kind="ScaledObject",
                **plan.scaled_object(spec, **target, prometheus_url=query_url(metrics)),
                opts=inside,
            )
        else:
            scaler = k8s.autoscaling.v2.HorizontalPodAutoscaler(
                f"{name}-hpa", **plan.horizontal_pod_autoscaler(spec, **target), opts=inside
            )
        self.ready: Sequence[pulumi.Resource] = (scaler,)
        self.register_outputs(target)


def query_url(metrics: QueriedMetrics) -> str:
    """Returns the URL of Prometheus. Raises ``SpecError`` if there is none."""
    if metrics.url is None:
        hint = "give ExistingPrometheus its url"
        raise SpecError([Fault((), "an autoscaler queries Prometheus, but its address is not known", hint=hint)])
    return metrics.url
