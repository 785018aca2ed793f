"""Creates support for NVIDIA GPUs as a typed Kubernetes object, so that previews show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.nvidia import plan
from eks_inference.accelerators.nvidia.plan import NvidiaSpec
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.component import Component
from eks_inference.specs.base import Given


class GpuPlugin(Protocol):
    """Offers the GPUs of nodes: ``NvidiaDevicePlugin``, or ``DraDriver`` where they are claimed."""

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """Resources that must exist before a pod that requests a GPU."""
        ...


class NvidiaDevicePlugin(Component):
    """The NVIDIA device plugin: makes ``nvidia.com/gpu`` a resource of every node with GPUs.

    Creates the DaemonSet ``nvidia-device-plugin`` in ``kube-system``. It runs on every GPU instance type of the catalog and
    tolerates all taints. Never install it together with the GPU operator or NVIDIA's DRA driver: both would allocate the same
    GPUs. ``beside_efa`` says that an EFA device plugin gives pods their interfaces, which this plugin would give them too.

    Source: NVIDIA/k8s-device-plugin v0.20.0, static manifest. Unlike the manifest, this DaemonSet selects instance types, because
    the plugin fails on nodes without GPUs, and tolerates every taint of a pool.
    """

    resource_name = plan.GPU_RESOURCE
    """The resource that pods request."""

    def __init__(
        self,
        name: str,
        spec: Given[NvidiaSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        beside_efa: bool = False,
    ) -> None:
        spec = NvidiaSpec.of(spec)
        super().__init__("eks-inference:index:NvidiaDevicePlugin", name, spec.inputs(), opts)
        self.cluster = cluster
        daemon_set = k8s.apps.v1.DaemonSet(
            f"{name}-daemonset",
            **plan.daemon_set(cluster.settings.image(versions.image(plan.PLUGIN_NAME)), beside_efa=beside_efa),
            opts=on_cluster(cluster, self, *cluster.pods_ready),
        )
        self.ready: Sequence[pulumi.Resource] = (daemon_set,)
        self.register_outputs({"resourceName": plan.GPU_RESOURCE})
