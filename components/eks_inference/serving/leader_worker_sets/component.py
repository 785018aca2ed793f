"""The controller that turns LeaderWorkerSets into pods, and what a server needs to know about it, whoever installed it."""

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
from eks_inference.kubernetes.network_policy import allow_from, network_policy
from eks_inference.place.placement import Placement


class LeaderWorkerSets(Protocol):
    """Something that turns LeaderWorkerSets into pods: ``LeaderWorkerSetController`` or ``ExistingLeaderWorkerSets``."""

    @property
    def ready(self) -> Sequence[pulumi.Resource]: ...


@dataclass(frozen=True)
class ExistingLeaderWorkerSets(Handle):
    """A LeaderWorkerSet controller that the team already runs: v0.9.0 or newer."""

    ready: Sequence[pulumi.Resource] = ()
    cluster: Cluster | None = None
    """The cluster where it is; None: not said, so that it goes with any."""


RELEASE = "lws"
NAMESPACE = "lws-system"
WEBHOOK_PORT = 9443
"""Port on which the API server has LeaderWorkerSets validated."""


class LeaderWorkerSetController(Component):
    """The LeaderWorkerSet controller and its custom resource definitions, from its chart, on the core pool (``placement``).

    Creates the namespace ``lws-system`` with Pod Security "restricted", a NetworkPolicy (ingress to the webhooks only, egress to
    anywhere) and one Helm release. Helm installs the definitions once and never updates them: before you move to a newer chart
    version, apply the definitions of that version by hand.
    """

    def __init__(
        self,
        name: str,
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        placement: Placement,
    ) -> None:
        super().__init__("eks-inference:index:LeaderWorkerSetController", name, {"namespace": NAMESPACE}, opts)
        settings = cluster.settings
        namespace = namespace_object(f"{name}-namespace", NAMESPACE, "restricted", cluster=cluster, parent=self)
        policy = k8s.networking.v1.NetworkPolicy(
            f"{name}-policy",
            **network_policy(RELEASE, NAMESPACE, selector={}, ingress=[allow_from(tcp=[WEBHOOK_PORT])], egress=None),
            opts=in_namespace(cluster, self, namespace),
        )
        image, _, tag = settings.image(versions.image("lws")).rpartition(":")
        release = chart_release(
            f"{name}-release",
            RELEASE,
            namespace=NAMESPACE,
            cluster=cluster,
            values={
                # By default the chart takes the tag main and pulls it at every start.
                "image": {"manager": {"repository": image, "tag": tag, "pullPolicy": "IfNotPresent"}},
                "podSecurityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                **placement.scheduling(),
                # With a handful of sets, it uses a fraction of the chart's 1 CPU and 1 GiB.
                "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            },
            opts=on_cluster(cluster, self, namespace, policy, *cluster.pods_ready, *placement.ready),
        )
        self.ready: Sequence[pulumi.Resource] = (release,)
        self.register_outputs({"namespace": NAMESPACE})
