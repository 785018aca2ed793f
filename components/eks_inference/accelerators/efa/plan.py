"""Plans the EFA device plugin. Pure functions; no pulumi.

Source: aws/eks-charts 5239609 of 3 August 2026, stable/aws-efa-k8s-device-plugin 0.5.30. The chart tolerates only
CriticalAddonsOnly, so its plugin does not run on tainted accelerator nodes.
"""

from typing import Any

from eks_inference.accelerators.device_plugins import KUBELET_PLUGINS, device_plugin
from eks_inference.catalog.instances import instance_types

EFA_RESOURCE = "vpc.amazonaws.com/efa"
"""One EFA interface of a node, as pods request it."""

EFA_PLUGIN_NAME = "aws-efa-k8s-device-plugin"

_FOLDERS = {
    "device-plugin": KUBELET_PLUGINS,
    "infiniband": "/dev/infiniband",
    # Neuron tools, with which the plugin finds the interfaces nearest to a pod's chips; absent on GPU nodes.
    "neuron": "/opt/aws/neuron",
}


def efa_instance_types() -> list[str]:
    """Names of all instance types in the catalog with EFA, sorted."""
    return sorted(name for name, shape in instance_types().items() if shape.efa_interfaces)


def daemon_set(image: str) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the DaemonSet, for every instance type with EFA.

    On a node whose pool attaches no EFA interface, the plugin advertises none.
    """
    container = {
        "image": image,
        "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}},
        # Needs the Neuron devices to find the interfaces near them (aws/eks-charts#1245).
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in _FOLDERS.items()],
    }
    pod = {
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "volumes": [
            {"name": name, "hostPath": {"path": path, **({"type": "DirectoryOrCreate"} if name == "neuron" else {})}}
            for name, path in _FOLDERS.items()
        ],
    }
    return device_plugin(EFA_PLUGIN_NAME, efa_instance_types(), container, pod)
