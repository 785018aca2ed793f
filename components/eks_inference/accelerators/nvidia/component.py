"""Support for NVIDIA GPUs as a typed Kubernetes object, so that a preview shows it."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.nvidia import plan
from eks_inference.accelerators.nvidia.spec import NvidiaSpec
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster


class NvidiaDevicePlugin(pulumi.ComponentResource):
    """The NVIDIA device plugin: makes ``nvidia.com/gpu`` a resource of every node with GPUs.

    Builds the DaemonSet ``nvidia-device-plugin`` in ``kube-system``, on every GPU instance type of the catalog whatever its
    taints. Never install it beside the GPU operator or NVIDIA's DRA driver: two of them on a node hand out the same GPU twice.

    Sources: NVIDIA/k8s-device-plugin v0.20.0, static manifest. Unlike it, the plugin names its instance types, so that it does
    not fail on nodes without GPUs, and runs whatever else a pool's taints are.
    """

    resource_name = plan.GPU_RESOURCE
    """What pods ask for."""

    def __init__(self, name: str, spec: NvidiaSpec, *, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("eks-inference:index:NvidiaDevicePlugin", name, spec.model_dump(mode="json", exclude_none=True), opts)
        self.cluster = cluster
        daemon_set = k8s.apps.v1.DaemonSet(
            f"{name}-daemonset",
            **plan.daemon_set(cluster.settings.image(versions.image(plan.PLUGIN_NAME))),
            opts=on_cluster(cluster, self, *cluster.ready),
        )
        self.ready: Sequence[pulumi.Resource] = (daemon_set,)
        self.register_outputs({"resourceName": plan.GPU_RESOURCE})
