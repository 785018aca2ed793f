"""Creates the Karpenter controller with its AWS resources."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pulumi
import pulumi_aws as aws

from eks_inference.aws import iam, naming
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import chart_release, on_cluster
from eks_inference.cluster.pod_identity import pod_identity
from eks_inference.component import Component, Handle, carried, rendered
from eks_inference.faults import Fault, SpecError
from eks_inference.kubernetes.merge import beside
from eks_inference.network.handle import Network
from eks_inference.place.placement import Placement
from eks_inference.pools import karpenter_plan as plan
from eks_inference.pools.node_role import node_role
from eks_inference.pools.spec import KarpenterSpec
from eks_inference.specs.base import Given


class NodeAutoscaler(Protocol):
    """The interface of Karpenter for pools: ``Karpenter`` or ``ExistingKarpenter``."""

    @property
    def node_role_name(self) -> pulumi.Input[str]:
        """Name, not ARN, of the nodes' role. The controller may pass this role, and the cluster has an access entry for it."""
        ...

    @property
    def instance_profile(self) -> pulumi.Input[str] | None:
        """The instance profile of the nodes. None: Karpenter makes one from the role, for which it must reach IAM."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]: ...


@dataclass(frozen=True)
class ExistingKarpenter(Handle):
    """An existing Karpenter controller of version 1."""

    node_role_name: pulumi.Input[str]
    instance_profile: pulumi.Input[str] | None = None
    ready: Sequence[pulumi.Resource] = ()
    cluster: Cluster | None = None
    """The cluster where it is; None: not said, so that it goes with any."""


class Karpenter(Component):
    """The controller on the core pool, its Pod Identity role, the role of its nodes, and the queue of interruption events.

    ``placement`` must be on a pool that Karpenter does not manage. There are two charts, one for the custom resource definitions
    and one for the controller, so that during teardown a definition outlives its objects. The controller outlives NodePools and
    EC2NodeClasses, because it handles their finalizers; access entry, queue and roles outlive the controller.

    In a ``network`` without internet, nodes get an instance profile of the stack, and the controller looks up no prices: IAM and
    the price list have no endpoints in a VPC (Karpenter 1.14, Getting started, "Private Clusters").

    Raises ``SpecError`` when the pool has fewer nodes than the controller has replicas: no two replicas share a node, and the
    release would wait for the second one until it times out.
    """

    def __init__(
        self,
        name: str,
        spec: Given[KarpenterSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        placement: Placement,
        network: Network | None = None,
    ) -> None:
        spec = KarpenterSpec.of(spec)
        if placement.max_nodes is not None and placement.max_nodes < spec.replicas:
            message = f"pool {placement.pool} has too few nodes for one replica each"
            allowed = f"at most {placement.max_nodes}"
            raise SpecError([Fault(("karpenter", "replicas"), message, given=str(spec.replicas), allowed=allowed)])
        super().__init__("eks-inference:index:Karpenter", name, spec.inputs(), opts)
        settings = cluster.settings
        self._queue_name = f"{cluster.name}-karpenter"

        role, permissions = node_role(
            f"{name}-node-role",
            description=f"Nodes that Karpenter makes for the EKS cluster {cluster.name}",
            settings=settings,
            s3_read_buckets=spec.s3_read_buckets,
            parent=self,
        )
        isolated = network is not None and network.isolated
        profile = (
            aws.iam.InstanceProfile(
                f"{name}-node-profile",
                role=role.name,
                tags={**settings.tags, "Name": f"{name}-node-profile"},
                opts=pulumi.ResourceOptions(parent=self),
            )
            if isolated
            else None
        )
        access = aws.eks.AccessEntry(
            f"{name}-node-access",
            cluster_name=cluster.name,
            principal_arn=role.arn,
            type="EC2_LINUX",
            tags={**settings.tags, "Name": f"{name}-node-access"},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*cluster.pods_ready]),
        )
        crds = chart_release(
            f"{name}-crds",
            "karpenter-crd",
            namespace=plan.NAMESPACE,
            values={},
            skip_crds=True,
            cluster=cluster,
            opts=on_cluster(cluster, self, *cluster.pods_ready),
        )
        release = chart_release(
            f"{name}-release",
            "karpenter",
            namespace=plan.NAMESPACE,
            # The controller's chart also contains the definitions, but Helm never updates them.
            skip_crds=True,
            values=beside(
                plan.chart_values(
                    cluster=cluster.name,
                    queue_name=self._queue_name,
                    spec=spec,
                    placement=placement,
                    settings=settings,
                    isolated=isolated,
                ),
                spec.values,
                chart="karpenter",
            ),
            cluster=cluster,
            opts=on_cluster(
                cluster,
                self,
                *(*cluster.pods_ready, *placement.ready),
                *(crds, access, *permissions),
                *self._controller_identity(name, cluster, role),
                *self._interruptions(name, cluster),
            ),
        )
        self.node_role_name: pulumi.Output[str] = role.name
        self.node_role_arn: pulumi.Output[str] = role.arn
        self.instance_profile: pulumi.Output[str] | None = profile and profile.name
        self.ready: Sequence[pulumi.Resource] = (release,)
        self.queue_name = carried(self._queue_name, self.ready)
        self.register_outputs({"nodeRoleName": role.name, "nodeRoleArn": role.arn, "queueName": self.queue_name})

    def _controller_identity(self, name: str, cluster: Cluster, nodes: aws.iam.Role) -> list[pulumi.Resource]:
        """Creates the controller's role and policies."""
        settings = cluster.settings
        policies: dict[str, pulumi.Input[str]] = {
            concern: rendered(iam.policy_json, document)
            for concern, document in plan.controller_policies(
                cluster=cluster.name, settings=settings, queue_name=self._queue_name
            ).items()
        }
        policies["instance-profiles"] = nodes.arn.apply(
            lambda arn: iam.policy_json(plan.instance_profiles_policy(cluster=cluster.name, settings=settings, node_role_arn=arn))
        )
        return pod_identity(
            f"{name}-controller",
            cluster=cluster,
            namespace=plan.NAMESPACE,
            service_account=plan.SERVICE_ACCOUNT,
            description=f"Karpenter controller of the EKS cluster {cluster.name}",
            parent=self,
            policies=policies,
        )

    def _interruptions(self, name: str, cluster: Cluster) -> list[pulumi.Resource]:
        """Creates the interruption queue, the EventBridge rules that fill it, and the queue policy."""
        settings = cluster.settings
        queue = aws.sqs.Queue(
            f"{name}-interruptions",
            name=self._queue_name,
            # A warning is useless after five minutes: a spot instance stops two minutes after its warning.
            message_retention_seconds=300,
            sqs_managed_sse_enabled=True,
            tags={**settings.tags, "Name": self._queue_name},
            opts=pulumi.ResourceOptions(parent=self),
        )
        rules = {
            event: aws.cloudwatch.EventRule(
                naming.within(naming.EVENT_RULE, f"{name}-{event}"),
                description=f"{detail_type}, for Karpenter in the EKS cluster {cluster.name}",
                event_pattern=json.dumps({"source": [source], "detail-type": [detail_type]}),
                tags={**settings.tags, "Name": f"{name}-{event}"},
                opts=pulumi.ResourceOptions(parent=self),
            )
            for event, (source, detail_type) in plan.INTERRUPTION_EVENTS.items()
        }
        policy = aws.sqs.QueuePolicy(
            f"{name}-interruptions-policy",
            queue_url=queue.url,
            policy=pulumi.Output.all(queue.arn, *(rule.arn for rule in rules.values())).apply(
                lambda arns: iam.policy_json(plan.queue_policy(arns[0], arns[1:]))
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )
        targets = [
            aws.cloudwatch.EventTarget(
                f"{name}-{event}-to-queue",
                rule=rule.name,
                arn=queue.arn,
                opts=pulumi.ResourceOptions(parent=self),
            )
            for event, rule in rules.items()
        ]
        return [policy, *targets]
