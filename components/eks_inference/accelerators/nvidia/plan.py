"""Names that everybody uses for NVIDIA GPUs in Kubernetes. Pure; no pulumi.

Source: NVIDIA/k8s-device-plugin v0.20.0 (static manifest, chart).
"""

from typing import Any

from eks_inference.accelerators.nodes import KUBELET_PLUGINS, NAMESPACE, NODES_OF_OURS, on_every_node
from eks_inference.catalog.instances import instance_types
from eks_inference.kubernetes import workloads

GPU_RESOURCE = "nvidia.com/gpu"
"""One whole GPU: what pods ask for."""

PLUGIN_NAME = "nvidia-device-plugin"

ALL_GPUS = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
"""Environment that makes NVIDIA's container runtime, which AL2023 uses for all containers, show every GPU of the node."""


def nvidia_instance_types() -> list[str]:
    """The names of all instance types of the catalog with NVIDIA GPUs, sorted."""
    return sorted(name for name, shape in instance_types().items() if shape.nvidia)


def on_gpu_nodes() -> dict[str, Any]:
    """Affinity and tolerations of pods that run on every node with GPUs, whatever its taints."""
    return on_every_node(nvidia_instance_types(), NODES_OF_OURS)


def daemon_set(image: str) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the device plugin."""
    container = {
        "name": PLUGIN_NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": name, "value": value} for name, value in ALL_GPUS.items()],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "device-plugins", "mountPath": KUBELET_PLUGINS}],
    }
    pod = {
        # It talks to the kubelet, not to the API server.
        "automountServiceAccountToken": False,
        "priorityClassName": "system-node-critical",
        **on_gpu_nodes(),
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "device-plugins", "hostPath": {"path": KUBELET_PLUGINS, "type": "Directory"}}],
    }
    return workloads.daemon_set(PLUGIN_NAME, NAMESPACE, pod)
