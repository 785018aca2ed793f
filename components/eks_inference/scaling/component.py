"""The autoscaler of one model server."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.faults import Fault, SpecError
from eks_inference.scaling import plan
from eks_inference.scaling.handle import Backend, QueriedMetrics, ScaledServer
from eks_inference.scaling.spec import AutoscalerSpec, KedaSpec


class Autoscaler(pulumi.ComponentResource):
    """Changes the number of a server's pods: a ScaledObject of KEDA, or a HorizontalPodAutoscaler, as ``spec.kind`` says.

    Both stand in the server's namespace under the Deployment's name. They own the number of pods: the Deployment must not say
    one, or each deployment of the stack would fight them over it.

    ``metrics`` is the Prometheus that reads the server, ``backend`` what makes its metrics into numbers of pods. While either
    does not answer, the pods stay as many as they are. Kubernetes looks every 15 seconds; on EKS that cannot be changed.

    To go from one kind to the other, take ``autoscaling`` out for one deployment: KEDA refuses a Deployment that somebody else
    scales (its admission webhook), and the new object is made before the old one is deleted.

    Raises ``SpecError`` for a backend of another kind, and for KEDA when the address of Prometheus is not known.
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
            message = "the autoscaler was given what serves another kind"
            raise SpecError([Fault(("kind",), message, given=spec.kind, allowed=backend.kind)])
        super().__init__("eks-inference:index:Autoscaler", name, spec.model_dump(mode="json", exclude_none=True), opts)
        inside = on_cluster(cluster, self, *server.ready, *metrics.ready, *backend.ready)
        scaler: pulumi.Resource
        if isinstance(spec, KedaSpec):
            scaler = k8s.apiextensions.CustomResource(
                f"{name}-scaledobject",
                api_version="keda.sh/v1alpha1",
                kind="ScaledObject",
                **plan.scaled_object(
                    spec, namespace=server.namespace, deployment=server.deployment_name, prometheus_url=query_url(metrics)
                ),
                opts=inside,
            )
        else:
            scaler = k8s.autoscaling.v2.HorizontalPodAutoscaler(
                f"{name}-hpa",
                **plan.horizontal_pod_autoscaler(spec, namespace=server.namespace, deployment=server.deployment_name),
                opts=inside,
            )
        self.ready: Sequence[pulumi.Resource] = (scaler,)
        self.register_outputs({"namespace": server.namespace, "deployment": server.deployment_name})


def query_url(metrics: QueriedMetrics) -> str:
    """Where Prometheus answers queries. Raises ``SpecError`` when that is not known."""
    if metrics.url is None:
        hint = "give ExistingPrometheus its url"
        raise SpecError([Fault((), "an autoscaler has to ask Prometheus, and its address is not known", hint=hint)])
    return metrics.url
