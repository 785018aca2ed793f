"""The controller of LeaderWorkerSets."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import chart_release, namespace_object, on_cluster
from eks_inference.kubernetes.network_policy import allow_from, network_policy
from eks_inference.placement import Placement

RELEASE = "lws"
NAMESPACE = "lws-system"
WEBHOOK_PORT = 9443
"""Where the API server asks whether a LeaderWorkerSet is one."""


class LeaderWorkerSetController(pulumi.ComponentResource):
    """The LeaderWorkerSet controller and its definitions, from its chart, on the nodes of ``placement`` (the core pool).

    Builds the namespace ``lws-system`` with Pod Security "restricted", a NetworkPolicy (in only to its webhooks; out to anywhere)
    and one Helm release. Helm installs the definitions once and never updates them: before a newer chart version, apply those of
    that version by hand.
    """

    def __init__(self, name: str, *, cluster: Cluster, placement: Placement, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("eks-inference:index:LeaderWorkerSetController", name, {"namespace": NAMESPACE}, opts)
        settings = cluster.settings
        namespace = namespace_object(f"{name}-namespace", NAMESPACE, "restricted", cluster=cluster, parent=self)
        policy = k8s.networking.v1.NetworkPolicy(
            f"{name}-policy",
            **network_policy(RELEASE, NAMESPACE, selector={}, ingress=[allow_from(tcp=[WEBHOOK_PORT])], egress=None),
            opts=on_cluster(cluster, self, namespace),
        )
        image, _, tag = settings.image(versions.image("lws")).rpartition(":")
        release = chart_release(
            f"{name}-release",
            RELEASE,
            namespace=NAMESPACE,
            cluster=cluster,
            values={
                # The chart's own default is the tag main, pulled anew at every start.
                "image": {"manager": {"repository": image, "tag": tag, "pullPolicy": "IfNotPresent"}},
                "podSecurityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                **placement.scheduling(),
                # Of the chart's 1 CPU and 1 GiB it uses a fraction with a handful of sets.
                "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            },
            opts=on_cluster(cluster, self, namespace, policy, *cluster.ready, *placement.ready),
        )
        self.ready: Sequence[pulumi.Resource] = (release,)
        self.register_outputs({"namespace": NAMESPACE})
