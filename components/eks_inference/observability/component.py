"""Creates the CloudWatch add-on for metrics and logs."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from eks_inference.aws import iam
from eks_inference.aws.log_group import log_group
from eks_inference.cluster.addon import eks_addon
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.pod_identity import pod_role
from eks_inference.component import Component
from eks_inference.observability import plan
from eks_inference.observability.spec import CloudWatchSpec


class CloudWatchObservability(Component):
    """CloudWatch Container Insights and container logs: the EKS add-on amazon-cloudwatch-observability and its role.

    Its DaemonSets run on every node and tolerate all taints; on Neuron and NVIDIA nodes they also report devices. Application
    Signals, which would modify workload pods, is off.

    ``cluster`` must run the Pod Identity agent, as ``ClusterAddons`` does. Destroy deletes the add-on before the add-ons that its
    pods need. The log groups ``/aws/containerinsights/<cluster>/...`` exist before the agents, which would create them without
    retention; the stack deletes them, unless its settings protect them.
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
            managed_policies={"policy": iam.managed_policy_arn("CloudWatchAgentServerPolicy", settings.partition)},
        )
        prefix = plan.cloudwatch_log_group_prefix(cluster.name)
        groups = [
            log_group(f"{name}-{kind}-logs", f"{prefix}{kind}", spec.log_retention_days, settings=settings, parent=self)
            for kind in plan.CLOUDWATCH_LOGS
        ]
        addon = eks_addon(
            f"{name}-addon",
            plan.cloudwatch_addon(spec, cluster.version),
            cluster=cluster,
            pod_identity_associations=[{"role_arn": role.arn, "service_account": plan.CLOUDWATCH_SERVICE_ACCOUNT}],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*cluster.pods_ready, *permissions, *groups]),
        )
        self.ready: Sequence[pulumi.Resource] = (addon,)
        self.register_outputs({"namespace": plan.CLOUDWATCH_NAMESPACE, "logGroupPrefix": prefix})
