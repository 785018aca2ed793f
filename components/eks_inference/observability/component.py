"""Metrics and logs of a cluster as resources."""

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from eks_inference.cluster.addon import eks_addon
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.pod_identity import pod_role
from eks_inference.observability import plan
from eks_inference.observability.spec import CloudWatchSpec


class CloudWatchObservability(pulumi.ComponentResource):
    """CloudWatch Container Insights and container logs: the EKS add-on amazon-cloudwatch-observability and its role.

    Its DaemonSets run on every node, whatever the taints; on Neuron and NVIDIA nodes they also report the devices. Application
    Signals, which would change the pods of workloads, is not switched on for them.

    ``cluster`` must run the Pod Identity agent, as ``ClusterAddons`` does; on the way down the add-on goes before the add-ons
    its pods need. The agents make their log groups ``/aws/containerinsights/<cluster>/...`` themselves: these carry no tags of
    ours, never expire and stay when the stack is destroyed (CloudWatch bills them).
    """

    def __init__(
        self,
        name: str,
        spec: CloudWatchSpec,
        *,
        cluster: Cluster,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(
            "eks-inference:index:CloudWatchObservability", name, spec.model_dump(mode="json", exclude_none=True), opts
        )
        settings = cluster.settings
        role, permissions = pod_role(
            name,
            cluster=cluster,
            namespace=plan.CLOUDWATCH_NAMESPACE,
            service_account=plan.CLOUDWATCH_SERVICE_ACCOUNT,
            description=f"CloudWatch agents of the EKS cluster {cluster.name}",
            parent=self,
            managed_policies={"policy": plan.cloudwatch_policy_arn(settings.partition)},
        )
        addon = eks_addon(
            f"{name}-addon",
            plan.cloudwatch_addon(spec, cluster.version),
            cluster_name=cluster.name,
            settings=settings,
            pod_identity_associations=[
                aws.eks.AddonPodIdentityAssociationArgs(role_arn=role.arn, service_account=plan.CLOUDWATCH_SERVICE_ACCOUNT)
            ],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*cluster.ready, *permissions]),
        )
        self.ready: Sequence[pulumi.Resource] = (addon,)
        self.register_outputs(
            {"namespace": plan.CLOUDWATCH_NAMESPACE, "logGroupPrefix": plan.cloudwatch_log_group_prefix(cluster.name)}
        )
