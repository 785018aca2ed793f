"""The EFA device plugin as data. Pure functions; no pulumi.

Source: aws/eks-charts 5239609 of 3 August 2026, stable/aws-efa-k8s-device-plugin 0.5.30. The chart tolerates CriticalAddonsOnly
alone, so its plugin stays away from the tainted nodes it is for.
"""

from typing import Any

from eks_inference.accelerators.nodes import KUBELET_PLUGINS, NAMESPACE, NODES_OF_OURS, on_every_node
from eks_inference.catalog.instances import instance_types
from eks_inference.kubernetes import workloads

EFA_RESOURCE = "vpc.amazonaws.com/efa"
"""One EFA interface of a node: what pods ask for."""

EFA_PLUGIN_NAME = "aws-efa-k8s-device-plugin"

_FOLDERS = {
    "device-plugin": KUBELET_PLUGINS,
    "infiniband": "/dev/infiniband",
    # Neuron's tools, by which it hands out the interfaces nearest to a pod's chips; not there on GPU nodes.
    "neuron": "/opt/aws/neuron",
}


def efa_instance_types() -> list[str]:
    """The names of all instance types of the catalog that offer EFA, sorted."""
    return sorted(name for name, shape in instance_types().items() if shape.efa_interfaces)


def daemon_set(image: str) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the DaemonSet: on every instance type with EFA, whatever its taints.

    A node whose pool attaches no EFA interface has no devices, and the plugin there offers none.
    """
    container = {
        "name": EFA_PLUGIN_NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}},
        # Sees the Neuron devices itself, to tell which interface is near which (aws/eks-charts#1245).
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in _FOLDERS.items()],
    }
    pod = {
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "automountServiceAccountToken": False,
        **on_every_node(efa_instance_types(), NODES_OF_OURS),
        "containers": [container],
        "volumes": [
            {"name": name, "hostPath": {"path": path, **({"type": "DirectoryOrCreate"} if name == "neuron" else {})}}
            for name, path in _FOLDERS.items()
        ],
    }
    return workloads.daemon_set(EFA_PLUGIN_NAME, NAMESPACE, pod)
