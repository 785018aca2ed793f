"""Creates the drivers that offer devices for claims, and the interface through which workloads depend on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pulumi

from eks_inference.accelerators.claims import plan
from eks_inference.accelerators.claims.plan import DeviceKind
from eks_inference.catalog import claim_drivers
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import chart_release, namespace_object, on_cluster
from eks_inference.component import Component


class DeviceDriver(Protocol):
    """Publishes the devices of nodes for claims: ``DraDriver``."""

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """Resources that must outlive a pod with claims: the kubelet cannot end it without the driver."""
        ...


class DraDriver(Component):
    """A driver for dynamic resource allocation: it publishes the devices of nodes, and pods claim them (``device_claims``).

    ``devices`` is ``neuron`` (AWS's Neuron driver), ``nvidia`` (NVIDIA's for GPUs) or ``efa`` (AWS's DRANET for EFA interfaces).
    Creates one Helm release, pinned, whose DaemonSet runs on nodes with the label ``eks-inference/devices=claims`` (pools with
    ``devices: claims``) and tolerates all taints. The chart installs the DeviceClass ``device_class``. The library's device
    plugins do not run on such nodes; no other plugin may either, because both would allocate the same devices. The driver for
    GPUs gets a namespace of its own with Pod Security "privileged".

    The scheduler of the control plane allocates, so a claim needs no second scheduler. Not for EKS Auto Mode, nor for nodes that
    Karpenter starts for pods.

    Sources: neuron-helm-chart 1.10.0, aws-dranet 1.0.0, dra-driver-nvidia-gpu 0.4.1; EKS user guide, "Manage hardware devices".
    """

    def __init__(
        self,
        name: str,
        opts: pulumi.ResourceOptions | None = None,
        *,
        devices: DeviceKind,
        cluster: Cluster,
    ) -> None:
        driver = claim_drivers.driver(devices)
        super().__init__("eks-inference:index:DraDriver", name, {"devices": devices}, opts)
        self.cluster = cluster
        self.device_class: str = driver.device_class
        """The class that claims name."""
        space = plan.NAMESPACES[devices]
        before: list[pulumi.Resource] = []
        if space != "kube-system":
            before.append(namespace_object(f"{name}-namespace", space, "privileged", cluster=cluster, parent=self))
        release = chart_release(
            f"{name}-release",
            driver.chart,
            namespace=space,
            values=plan.chart_values(devices, cluster.settings.image),
            cluster=cluster,
            opts=on_cluster(cluster, self, *before, *cluster.pods_ready),
        )
        self.ready: Sequence[pulumi.Resource] = (release,)
        self.register_outputs({"deviceClass": driver.device_class})
