"""Creates KEDA, which derives pod counts from Prometheus queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import chart_release, in_namespace, namespace_object, on_cluster
from eks_inference.component import Component
from eks_inference.kubernetes.merge import beside
from eks_inference.kubernetes.network_policy import allow_from, namespace, network_policy, pods
from eks_inference.observability.prometheus import PrometheusStack
from eks_inference.observability.prometheus_plan import PROMETHEUS_PORT
from eks_inference.place.placement import Placement
from eks_inference.scaling.spec import KedaOperatorSpec
from eks_inference.specs.base import Given
from eks_inference.specs.settings import StackSettings

RELEASE = "keda"

METRICS_PORT = 6443
WEBHOOK_PORT = 9443
"""Ports at which the API server requests external metrics and validates ScaledObjects."""

# The chart's images, by their key in the values.
_IMAGES = {
    "keda": "ghcr.io/kedacore/keda",
    "metricsApiServer": "ghcr.io/kedacore/keda-metrics-apiserver",
    "webhooks": "ghcr.io/kedacore/keda-admission-webhooks",
}


class Keda(Component):
    """KEDA with its CustomResourceDefinitions, from its chart, on the nodes of ``placement`` (the core pool).

    Creates a namespace with Pod Security "restricted" and one Helm release. A NetworkPolicy closes ingress except for the two
    ports of the API server. Egress stays open, because triggers may query any address. KEDA may scale only Deployments and
    StatefulSets and reads no Secret outside its namespace; ``values`` can widen that.

    ``prometheus`` is the library's Prometheus, whose namespace is closed: an additional policy there admits KEDA.

    Helm updates the definitions. Deleting the release deletes them, and with them every ScaledObject of the cluster.

    Sources: kedacore/charts 2.20.2, values and templates; KEDA documentation, "Cluster" (tested with Kubernetes 1.33 to 1.35).
    """

    kind = "keda"
    """The autoscaler kind that it supports."""

    def __init__(
        self,
        name: str,
        spec: Given[KedaOperatorSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        placement: Placement,
        prometheus: PrometheusStack | None = None,
    ) -> None:
        spec = KedaOperatorSpec.of(spec)
        super().__init__("eks-inference:index:Keda", name, spec.inputs(), opts)
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
                opts=in_namespace(cluster, self, own_namespace),
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
            values=beside(_values(cluster.name, placement, cluster.settings), spec.values, chart=RELEASE, free=_FREE_VALUES),
            cluster=cluster,
            opts=on_cluster(cluster, self, *policies, *cluster.pods_ready, *placement.ready),
        )
        self.namespace: str = spec.namespace
        self.ready: Sequence[pulumi.Resource] = (release,)
        self.register_outputs({"namespace": spec.namespace})


# What the operator may do beyond our autoscalers, which need less.
_FREE_VALUES = ("rbac.enabledCustomScaledRefKinds", "permissions.operator.restrict.secret")


def _values(cluster: str, placement: Placement, settings: StackSettings) -> dict[str, Any]:
    images = {key: settings.image(image).split("/", 1) for key, image in _IMAGES.items()}
    return {
        "clusterName": cluster,
        **placement.scheduling(),
        "image": {
            **{key: {"registry": registry, "repository": repository} for key, (registry, repository) in images.items()},
            # The chart's default contacts the registry at each start.
            "pullPolicy": "IfNotPresent",
        },
        # By default KEDA may scale any kind with a scale subresource and read every Secret of the cluster.
        "rbac": {"enabledCustomScaledRefKinds": False},
        "permissions": {"operator": {"restrict": {"secret": True}}},
    }
