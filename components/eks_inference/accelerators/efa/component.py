"""EFA support of a cluster as a typed Kubernetes object, so that a preview shows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.efa.plan import EFA_PLUGIN_NAME, EFA_RESOURCE, daemon_set
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster


class EfaDevices(Protocol):
    """Something that makes EFA interfaces a resource of nodes: ``EfaPlugin`` or ``ExistingEfaPlugin``."""

    @property
    def ready(self) -> Sequence[pulumi.Resource]: ...


@dataclass(frozen=True)
class ExistingEfaPlugin:
    """A device plugin that the team already runs, e.g. from AWS's own chart, on tainted nodes too."""

    ready: Sequence[pulumi.Resource] = ()


class EfaPlugin(pulumi.ComponentResource):
    """The EFA device plugin: makes ``vpc.amazonaws.com/efa`` a resource of every node with EFA interfaces.

    Builds the DaemonSet ``aws-efa-k8s-device-plugin`` in ``kube-system``, on every instance type of the catalog with EFA whatever
    its taints: AWS's chart forgets those of Neuron and GPU nodes, and its plugin then stays away from the nodes it is for. It is
    privileged and on the host's network, as the chart has it. Never install it beside that chart or the EFA DRA driver: two of
    them hand out the same interface twice. On nodes of AL2023 it pairs interfaces with the devices nearest to them.

    Sources: chart aws-efa-k8s-device-plugin 0.5.30; EKS user guide, "Manage EFA devices on Amazon EKS".
    """

    resource_name = EFA_RESOURCE
    """What pods ask for."""

    def __init__(self, name: str, *, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("eks-inference:index:EfaPlugin", name, {"resourceName": EFA_RESOURCE}, opts)
        plugin = k8s.apps.v1.DaemonSet(
            f"{name}-daemonset",
            **daemon_set(cluster.settings.image(versions.image(EFA_PLUGIN_NAME))),
            opts=on_cluster(cluster, self, *cluster.ready),
        )
        self.ready: Sequence[pulumi.Resource] = (plugin,)
        self.register_outputs({"resourceName": EFA_RESOURCE})
