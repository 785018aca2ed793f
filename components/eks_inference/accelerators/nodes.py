"""What the device plugins have in common: where they run, and where they meet the kubelet. Pure; no pulumi."""

from collections.abc import Sequence
from typing import Any

from eks_inference.placement import INSTANCE_TYPE_LABEL

NAMESPACE = "kube-system"
"""Where device plugins run: pods of the class system-node-critical are at home there."""

KUBELET_PLUGINS = "/var/lib/kubelet/device-plugins"
"""Where plugins meet the kubelet."""

NODES_OF_OURS = {"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["auto", "fargate", "hybrid"]}
"""Node affinity: nodes of EKS Auto Mode run plugins of their own; Fargate and hybrid nodes have no devices."""


def on_every_node(instance_types: Sequence[str], *further: dict[str, Any]) -> dict[str, Any]:
    """Affinity and tolerations of pods that run on every node of these instance types, whatever its taints.

    ``further`` are match expressions that hold as well.
    """
    expressions = [{"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": list(instance_types)}, *further]
    return {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
            }
        },
        # Taints of accelerators and whatever else a pool adds: a node without its plugin has no devices at all.
        "tolerations": [{"operator": "Exists"}],
    }
