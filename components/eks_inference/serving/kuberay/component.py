"""The operator that turns Ray resources into pods, and what a workload needs to know about it, whoever installed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import chart_release, in_namespace, namespace_object, on_cluster
from eks_inference.component import Component, Handle
from eks_inference.kubernetes.merge import beside
from eks_inference.kubernetes.network_policy import EVERY_NAMESPACE, allow_from, network_policy
from eks_inference.place.placement import Placement
from eks_inference.serving.kuberay.spec import KubeRayOperatorSpec
from eks_inference.specs.base import Given


class RayOperator(Protocol):
    """A KubeRay operator that watches all namespaces: ``KubeRayOperator`` or ``ExistingKubeRayOperator``."""

    @property
    def namespace(self) -> str:
        """Namespace of the operator, whose pods call the heads of Ray clusters."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """Resources that must exist before a Ray resource and outlive it: the operator finalizes what it created."""
        ...


@dataclass(frozen=True)
class ExistingKubeRayOperator(Handle):
    """A KubeRay operator that the team already runs: 1.4 or newer, with the custom resource definitions of its version."""

    namespace: str = "kuberay-operator"
    ready: Sequence[pulumi.Resource] = ()
    cluster: Cluster | None = None
    """The cluster where it is; None: not said, so that it goes with any."""


RELEASE = "kuberay-operator"
METRICS_PORT = 8080


class KubeRayOperator(Component):
    """The KubeRay operator and its custom resource definitions (RayCluster, RayJob, RayService ...), from its chart.

    Creates a namespace with Pod Security "restricted", a NetworkPolicy and one Helm release on ``placement``, the core pool. The
    policy admits traffic to the metrics only, and lets the operator connect anywhere because it calls the API server and every
    Ray head. Helm installs the definitions once and never updates them: before you move to a newer chart version, apply the
    definitions of that version by hand (KubeRay documentation, "Upgrade KubeRay").
    """

    def __init__(
        self,
        name: str,
        spec: Given[KubeRayOperatorSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        placement: Placement,
    ) -> None:
        spec = KubeRayOperatorSpec.of(spec)
        super().__init__("eks-inference:index:KubeRayOperator", name, spec.inputs(), opts)
        self.namespace: str = spec.namespace
        namespace = namespace_object(f"{name}-namespace", spec.namespace, "restricted", cluster=cluster, parent=self)
        metrics_only = [allow_from(EVERY_NAMESPACE, tcp=[METRICS_PORT])]
        policy = k8s.networking.v1.NetworkPolicy(
            f"{name}-policy",
            **network_policy(RELEASE, spec.namespace, selector={}, ingress=metrics_only, egress=None),
            opts=in_namespace(cluster, self, namespace),
        )
        image, _, tag = cluster.settings.image(versions.image(RELEASE)).rpartition(":")
        values = {
            "image": {"repository": image, "tag": tag},
            **placement.scheduling(),
            # The chart's limit of 100m CPU delays reconciling. Its authors saw this much memory with 500 Ray pods.
            "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
        }
        release = chart_release(
            f"{name}-release",
            RELEASE,
            namespace=spec.namespace,
            values=beside(values, spec.values, chart=RELEASE),
            cluster=cluster,
            opts=on_cluster(cluster, self, namespace, policy, *cluster.pods_ready, *placement.ready),
        )
        self.ready: Sequence[pulumi.Resource] = (release,)
        self.register_outputs({"namespace": spec.namespace})
