"""Karpenter with a Deployment of the team's own, on a cluster of this library."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from eks_inference import (
    ClusterAddons,
    EksCluster,
    Karpenter,
    KarpenterPool,
    ManagedPool,
    NvidiaDevicePlugin,
    StackSettings,
    Vpc,
)

settings = StackSettings()
network = Vpc("net", {}, settings=settings, cluster_name="ml")
control_plane = EksCluster("ml", {}, network=network, settings=settings)
core = ManagedPool("core", {"instance_types": ["m5.large"], "size": 2}, cluster=control_plane, network=network).placement()
cluster = ClusterAddons("addons", {}, cluster=control_plane, core=core)
karpenter = Karpenter("karpenter", {}, cluster=cluster, placement=core, network=network)
gpus = KarpenterPool(
    "gpu", {"instance_types": ["g5.xlarge"], "cpu_limit": 16}, cluster=cluster, network=network, karpenter=karpenter
)
plugin = NvidiaDevicePlugin("nvidia", {}, cluster=cluster)
place = gpus.placement()
labels = {"app": "embedder"}
container = {"name": "main", "image": "ghcr.io/team/embedder:1.0.0", "resources": place.resources()}
pods = {"metadata": {"labels": labels}, "spec": {"containers": [container], **place.scheduling()}}
spec: Any = {"selector": {"matchLabels": labels}, "template": pods}
k8s.apps.v1.Deployment(
    "embedder",
    metadata={"name": "embedder", "namespace": "default"},
    spec=spec,
    opts=pulumi.ResourceOptions(provider=cluster.provider, depends_on=[*place.ready, *plugin.ready]),
)
