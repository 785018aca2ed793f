"""Creates EFA support of a cluster as a typed Kubernetes object, so that previews show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.efa.plan import EFA_PLUGIN_NAME, EFA_RESOURCE, daemon_set
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.component import Component, Handle


class EfaDevices(Protocol):
    """Makes EFA interfaces a resource of nodes: ``EfaPlugin`` or ``ExistingEfaPlugin``."""

    @property
    def ready(self) -> Sequence[pulumi.Resource]: ...


@dataclass(frozen=True)
class ExistingEfaPlugin(Handle):
    """A device plugin that the team already runs, e.g. from AWS's chart. It must tolerate the taints of accelerator nodes."""

    ready: Sequence[pulumi.Resource] = ()
    cluster: Cluster | None = None
    """The cluster where it is; None: not said, so that it goes with any."""


class EfaPlugin(Component):
    """The EFA device plugin: makes ``vpc.amazonaws.com/efa`` a resource of every node with EFA interfaces.

    Creates the DaemonSet ``aws-efa-k8s-device-plugin`` in ``kube-system``. It runs on every instance type of the catalog with EFA
    and tolerates all taints: AWS's chart does not tolerate those of Neuron and GPU nodes. As in the chart, it is privileged and
    uses the host network. Never install it together with that chart or the EFA DRA driver: both would allocate the same
    interfaces. On AL2023 it pairs interfaces with the nearest devices.

    Sources: chart aws-efa-k8s-device-plugin 0.5.30; EKS user guide, "Manage EFA devices on Amazon EKS".
    """

    resource_name = EFA_RESOURCE
    """The resource that pods request."""

    def __init__(self, name: str, *, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("eks-inference:index:EfaPlugin", name, {"resourceName": EFA_RESOURCE}, opts)
        plugin = k8s.apps.v1.DaemonSet(
            f"{name}-daemonset",
            **daemon_set(cluster.settings.image(versions.image(EFA_PLUGIN_NAME))),
            opts=on_cluster(cluster, self, *cluster.pods_ready),
        )
        self.ready: Sequence[pulumi.Resource] = (plugin,)
        self.register_outputs({"resourceName": EFA_RESOURCE})
