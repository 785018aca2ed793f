"""Creates the autoscaler of one model server."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.component import Component
from eks_inference.faults import Fault, SpecError
from eks_inference.scaling import plan
from eks_inference.scaling.handle import Backend, QueriedMetrics, ScaledServer
from eks_inference.scaling.spec import AutoscalerSpec, KedaSpec


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
        spec: AutoscalerSpec,
        *,
        cluster: Cluster,
        server: ScaledServer,
        metrics: QueriedMetrics,
        backend: Backend,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        if backend.kind != spec.kind:
            raise SpecError([Fault(("kind",), "the backend is for another kind", given=spec.kind, allowed=backend.kind)])
        super().__init__("eks-inference:index:Autoscaler", name, spec.model_dump(mode="json", exclude_none=True), opts)
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
