"""The operator that turns Ray resources into pods."""

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.kubernetes.network_policy import EVERY_NAMESPACE, allow_from, network_policy
from eks_inference.kubernetes.pod_security import enforce
from eks_inference.merge import merged
from eks_inference.placement import Placement
from eks_inference.serving.kuberay.spec import KubeRayOperatorSpec

RELEASE = "kuberay-operator"
METRICS_PORT = 8080


class KubeRayOperator(pulumi.ComponentResource):
    """The KubeRay operator and its definitions (RayCluster, RayJob, RayService ...), from its chart, on the core pool.

    Builds a namespace with Pod Security "restricted", a NetworkPolicy (in only to its metrics; out to anywhere, as it asks the
    API server and every Ray head), and one Helm release. Helm installs the definitions once and never updates them: before a
    newer chart version, apply those of that version by hand (KubeRay documentation, "Upgrade KubeRay").
    """

    def __init__(
        self,
        name: str,
        spec: KubeRayOperatorSpec,
        *,
        cluster: Cluster,
        placement: Placement,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("eks-inference:index:KubeRayOperator", name, spec.model_dump(mode="json", exclude_none=True), opts)
        namespace = k8s.core.v1.Namespace(
            f"{name}-namespace",
            metadata={"name": spec.namespace, "labels": enforce("restricted")},
            opts=pulumi.ResourceOptions(parent=self, provider=cluster.provider, depends_on=[*cluster.ready]),
        )
        policy = k8s.networking.v1.NetworkPolicy(
            f"{name}-policy",
            **network_policy(
                RELEASE, spec.namespace, selector={}, ingress=[allow_from(EVERY_NAMESPACE, tcp=[METRICS_PORT])], egress=None
            ),
            opts=pulumi.ResourceOptions(parent=self, provider=cluster.provider, depends_on=[namespace]),
        )
        chart = versions.chart("kuberay-operator")
        location, repository = chart.location(cluster.settings.chart(chart.reference))
        release = k8s.helm.v3.Release(
            f"{name}-release",
            name=RELEASE,
            namespace=spec.namespace,
            chart=location,
            version=chart.version,
            repository_opts=k8s.helm.v3.RepositoryOptsArgs(repo=repository) if repository else None,
            values=merged(_values(cluster.settings.image(versions.image("kuberay-operator")), placement), spec.values),
            opts=pulumi.ResourceOptions(
                parent=self, provider=cluster.provider, depends_on=[namespace, policy, *cluster.ready, *placement.ready]
            ),
        )
        self.namespace: str = spec.namespace
        self.ready: Sequence[pulumi.Resource] = (release,)
        self.register_outputs({"namespace": spec.namespace})


def _values(image: str, placement: Placement) -> dict[str, Any]:
    repository, _, tag = image.rpartition(":")
    return {
        "image": {"repository": repository, "tag": tag},
        "nodeSelector": dict(placement.node_selector),
        "tolerations": placement.tolerations(),
        # The chart limits it to 100m of CPU, which delays reconciling; memory is what its authors saw with 500 Ray pods.
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
    }
