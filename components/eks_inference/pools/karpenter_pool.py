"""Creates a pool that Karpenter fills: an EC2NodeClass and a NodePool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.component import Component, comparing
from eks_inference.network.handle import Network
from eks_inference.place.placement import Placement
from eks_inference.pools import karpenter_plan, plan
from eks_inference.pools.karpenter import NodeAutoscaler
from eks_inference.pools.spec import KarpenterPoolSpec
from eks_inference.specs.base import Given


class KarpenterPool(Component):
    """One EC2NodeClass and one NodePool, both named after the pool.

    ``pool`` is also the value of the label that placements select; it defaults to ``name``. Nodes start in the private subnets of
    the chosen zones with the cluster security group, both given by id. The deployment waits until Karpenter reports the
    EC2NodeClass as ready, with image, subnets, group and instance profile; nodes start later, with their pods.

    Teardown deletes the NodePool first and waits at most 30 minutes until its nodes are drained, then deletes the EC2NodeClass,
    then the controller.

    With ``replicas``, a Karpenter with ``static_capacity`` starts that many nodes at once, and the deployment does not wait for
    them; any other Karpenter leaves the pool empty. A NodePool cannot change between a fixed number of nodes and nodes that
    follow the pods, so it is then replaced, and the old one ends first.

    Raises ``SpecError`` for zones outside the network and for an AMI release of another Kubernetes version.
    """

    def __init__(
        self,
        name: str,
        spec: Given[KarpenterPoolSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        network: Network,
        karpenter: NodeAutoscaler,
        pool: str | None = None,
    ) -> None:
        spec = KarpenterPoolSpec.of(spec)
        super().__init__("eks-inference:index:KarpenterPool", name, spec.inputs(), opts)
        self.pool = pool or name
        self._spec = spec
        self._kubernetes_version = cluster.version
        network_zones = [subnet.zone_id for subnet in network.private_subnets]
        self.zone_ids = plan.pool_zones(spec, network_zones, cluster.settings.region)
        profile = karpenter.instance_profile
        drained = pulumi.CustomTimeouts(delete="30m")
        node_class = k8s.apiextensions.CustomResource(
            f"{name}-class",
            api_version="karpenter.k8s.aws/v1",
            kind="EC2NodeClass",
            metadata={"name": self.pool, "annotations": {"pulumi.com/waitFor": "condition=Ready"}},
            spec=karpenter_plan.node_class(
                spec,
                settings=cluster.settings,
                name_tag=f"{cluster.name}-{self.pool}",
                kubernetes_version=cluster.version,
                identity={"instanceProfile": profile} if profile is not None else {"role": karpenter.node_role_name},
                subnet_ids=[subnet.id for subnet in network.private_subnets if subnet.zone_id in self.zone_ids],
                security_group_id=cluster.security_group_id,
            ),
            opts=pulumi.ResourceOptions.merge(
                on_cluster(cluster, self, *cluster.pods_ready, *network.ready, *karpenter.ready, timeouts=drained),
                pulumi.ResourceOptions(hide_diffs=["spec.userData"]),
            ),
        )
        self.node_pool = k8s.apiextensions.CustomResource(
            f"{name}-pool",
            api_version="karpenter.sh/v1",
            kind="NodePool",
            metadata={"name": self.pool},
            spec=karpenter_plan.node_pool(spec, pool=self.pool),
            opts=pulumi.ResourceOptions.merge(
                on_cluster(cluster, self, node_class, timeouts=drained, delete_before_replace=True),
                pulumi.ResourceOptions(replacement_trigger="dynamic" if spec.replicas is None else "static"),
            ),
        )
        self.ready: Sequence[pulumi.Resource] = (self.node_pool,)
        self.register_outputs({"pool": self.pool})

    @comparing
    def placement(self, instance_type: str | None = None) -> Placement:
        """Returns the placement of a workload on this pool; see ``Pool``."""
        found = plan.placement_of(self.pool, self._spec, instance_type, self._kubernetes_version, self.zone_ids, self.ready)
        return replace(found, home=self.home)
