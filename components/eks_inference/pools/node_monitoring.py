"""Creates the agent by which node repair learns of failed accelerators."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import eks_addon
from eks_inference.cluster.plan import Addon
from eks_inference.component import Component

ADDON = "eks-node-monitoring-agent"

# The add-on's NVIDIA server tolerates no taint by default. Without it the agent reports a failure on every tainted GPU node, and
# repair replaces healthy ones (aws/containers-roadmap#2555 and #2567).
_CONFIGURATION = {"dcgmAgent": {"tolerations": [{"operator": "Exists"}]}}


class NodeMonitoringAgent(Component):
    """The EKS add-on eks-node-monitoring-agent: it watches NVIDIA and Neuron devices, kernel, disks and network of every node.

    It sets conditions of the nodes, such as ``AcceleratedHardwareReady``. ``node_repair`` of managed pools and of Karpenter acts
    on them; without the agent, repair sees only nodes that stop reporting.

    False alarms are known: a lost connection to the NVIDIA server (reason ``DCGMError``) stays on the node after the connection
    is back, until the agent's pod is deleted (aws/eks-node-monitoring-agent#266, September 2026), and repair replaces the node.
    Raises ``KeyError`` when the catalog has no version of the add-on for the cluster's Kubernetes version.
    """

    def __init__(
        self,
        name: str,
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
    ) -> None:
        super().__init__("eks-inference:index:NodeMonitoringAgent", name, {}, opts)
        addon = eks_addon(
            f"{name}-addon",
            Addon(ADDON, versions.addon(ADDON, cluster.version), _CONFIGURATION),
            cluster=cluster,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*cluster.pods_ready]),
        )
        self.ready: Sequence[pulumi.Resource] = (addon,)
        self.register_outputs({})
