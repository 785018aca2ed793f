"""Plans the NVIDIA device plugin. Pure; no pulumi.

Source: NVIDIA/k8s-device-plugin v0.20.0 (static manifest, chart).
"""

from typing import Any

from eks_inference.accelerators.device_plugins import KUBELET_PLUGINS, NODES_OF_OURS, device_plugin, on_every_node
from eks_inference.catalog.instances import DEVICE_RESOURCES, instance_types
from eks_inference.specs.base import Spec


class NvidiaSpec(Spec):
    """The NVIDIA device plugin. The EKS AL2023 image contains driver and container runtime."""


GPU_RESOURCE = DEVICE_RESOURCES["nvidia"]
"""One whole GPU, as pods request it."""

PLUGIN_NAME = "nvidia-device-plugin"

ALL_GPUS = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
"""Environment that exposes every GPU of the node. On AL2023, NVIDIA's container runtime runs all containers and reads it."""


def nvidia_instance_types() -> list[str]:
    """Names of all instance types in the catalog with NVIDIA GPUs, sorted."""
    return sorted(name for name, shape in instance_types().items() if shape.nvidia)


def on_gpu_nodes() -> dict[str, Any]:
    """Returns affinity and tolerations of pods that run on every node with GPUs, whatever its taints."""
    return on_every_node(nvidia_instance_types(), NODES_OF_OURS)


_NO_INTERFACES = {"MOFED_ENABLED": "false"}


def daemon_set(image: str, *, beside_efa: bool = False) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the device plugin.

    ``beside_efa``: the EFA plugin gives pods their interfaces. By default releases since 0.19 give every pod with a GPU all
    interfaces of its node (EKS user guide, "Manage EFA devices on Amazon EKS").
    """
    settings = {**ALL_GPUS, **(_NO_INTERFACES if beside_efa else {})}
    container = {
        "image": image,
        "env": [{"name": name, "value": value} for name, value in settings.items()],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "device-plugins", "mountPath": KUBELET_PLUGINS}],
    }
    pod = {
        # The plugin talks to the kubelet, not to the API server.
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "device-plugins", "hostPath": {"path": KUBELET_PLUGINS, "type": "Directory"}}],
    }
    return device_plugin(PLUGIN_NAME, nvidia_instance_types(), container, pod)
