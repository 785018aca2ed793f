"""Shared parts of the device plugins: DaemonSet, affinity, tolerations, kubelet folder. Pure; no pulumi."""

from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference.kubernetes import workloads
from eks_inference.place.placement import CLAIMS, DEVICES_LABEL, INSTANCE_TYPE_LABEL

NAMESPACE = "kube-system"
"""Namespace of the device plugins, which use the priority class system-node-critical."""

KUBELET_PLUGINS = "/var/lib/kubelet/device-plugins"
"""Folder of the sockets through which device plugins and the kubelet communicate."""

NODES_OF_OURS = {"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["auto", "fargate", "hybrid"]}
"""Node affinity. EKS Auto Mode nodes run their own plugins; Fargate and hybrid nodes have no devices."""


NOT_CLAIMED = {"key": DEVICES_LABEL, "operator": "NotIn", "values": [CLAIMS]}
"""Node affinity. Where a driver offers the devices for claims, a plugin would allocate the same devices again."""


def device_plugin(
    name: str, instance_types: Sequence[str], container: Mapping[str, Any], pod: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of a device plugin's DaemonSet on every node of these instance types."""
    return workloads.daemon_set(
        name,
        NAMESPACE,
        {
            "priorityClassName": "system-node-critical",
            **on_every_node(instance_types, NODES_OF_OURS, NOT_CLAIMED),
            "containers": [{"name": name, "imagePullPolicy": "IfNotPresent", **container}],
            **pod,
        },
    )


def on_every_node(instance_types: Sequence[str], *further: dict[str, Any]) -> dict[str, Any]:
    """Returns affinity and tolerations of pods that run on every node of these instance types, whatever its taints.

    ``further`` are additional match expressions.
    """
    expressions = [{"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": list(instance_types)}, *further]
    return {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
            }
        },
        # Tolerates accelerator taints and any taint that a pool adds: without its plugin, a node offers no devices.
        "tolerations": [{"operator": "Exists"}],
    }
