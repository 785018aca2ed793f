"""KEDA, which makes answers of Prometheus into numbers of pods."""

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import chart_release, namespace_object, on_cluster
from eks_inference.kubernetes.network_policy import allow_from, namespace, network_policy, pods
from eks_inference.merge import merged
from eks_inference.observability.prometheus import PrometheusStack
from eks_inference.observability.prometheus_plan import PROMETHEUS_PORT
from eks_inference.placement import Placement
from eks_inference.scaling.spec import KedaOperatorSpec
from eks_inference.settings import StackSettings

RELEASE = "keda"

METRICS_PORT = 6443
WEBHOOK_PORT = 9443
"""Where the API server asks: for external metrics, and whether a ScaledObject is one."""

# Where each image of the chart stands in its values, and what it is without a mirror.
_IMAGES = {
    "keda": "ghcr.io/kedacore/keda",
    "metricsApiServer": "ghcr.io/kedacore/keda-metrics-apiserver",
    "webhooks": "ghcr.io/kedacore/keda-admission-webhooks",
}


class Keda(pulumi.ComponentResource):
    """KEDA and its definitions (ScaledObject ...), from its chart, on the nodes of ``placement`` (the core pool).

    Builds a namespace with Pod Security "restricted", which NetworkPolicies close but for the two ports at which the API server
    asks, and one Helm release. Where KEDA may connect to stays open: that is up to the triggers of whoever uses it. It scales
    Deployments and StatefulSets only, and reads no Secret outside its namespace; ``values`` can give it more.

    ``prometheus``: ours, whose namespace lets nobody in but whom a policy names; one there lets KEDA ask it.

    The definitions go with the release, and every ScaledObject of the cluster with them. Helm keeps them up to date.

    Sources: kedacore/charts 2.20.2, values and templates; KEDA documentation, "Cluster" (tested with Kubernetes 1.33 to 1.35).
    """

    kind = "keda"
    """The kind of autoscalers it serves."""

    def __init__(
        self,
        name: str,
        spec: KedaOperatorSpec,
        *,
        cluster: Cluster,
        placement: Placement,
        prometheus: PrometheusStack | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("eks-inference:index:Keda", name, spec.model_dump(mode="json", exclude_none=True), opts)
        own_namespace = namespace_object(f"{name}-namespace", spec.namespace, "restricted", cluster=cluster, parent=self)
        policies = [
            k8s.networking.v1.NetworkPolicy(
                f"{name}-policy",
                **network_policy(
                    RELEASE,
                    spec.namespace,
                    selector={},
                    ingress=[allow_from(pods({})), allow_from(tcp=[METRICS_PORT, WEBHOOK_PORT])],
                    egress=None,
                ),
                opts=on_cluster(cluster, self, own_namespace),
            )
        ]
        if prometheus:
            policies.append(
                k8s.networking.v1.NetworkPolicy(
                    f"{name}-prometheus-policy",
                    **network_policy(
                        RELEASE,
                        prometheus.namespace,
                        selector={},
                        ingress=[allow_from(namespace(spec.namespace), tcp=[PROMETHEUS_PORT])],
                        egress=None,
                    ),
                    opts=on_cluster(cluster, self, *prometheus.ready),
                )
            )
        release = chart_release(
            f"{name}-release",
            RELEASE,
            namespace=spec.namespace,
            values=merged(_values(cluster.name, placement, cluster.settings), spec.values),
            cluster=cluster,
            opts=on_cluster(cluster, self, *policies, *cluster.ready, *placement.ready),
        )
        self.namespace: str = spec.namespace
        self.ready: Sequence[pulumi.Resource] = (release,)
        self.register_outputs({"namespace": spec.namespace})


def _values(cluster: str, placement: Placement, settings: StackSettings) -> dict[str, Any]:
    images = {key: settings.image(image).split("/", 1) for key, image in _IMAGES.items()}
    return {
        "clusterName": cluster,
        **placement.scheduling(),
        "image": {
            **{key: {"registry": registry, "repository": repository} for key, (registry, repository) in images.items()},
            # The chart would ask the registry at each start.
            "pullPolicy": "IfNotPresent",
        },
        # Otherwise it may scale whatever kind of object has a number of replicas, and read every Secret of the cluster.
        "rbac": {"enabledCustomScaledRefKinds": False},
        "permissions": {"operator": {"restrict": {"secret": True}}},
    }
