"""Creates what sends metrics and logs to CloudWatch: its add-on, and Fluent Bit for the logs of containers."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.aws import iam
from eks_inference.aws.log_group import log_group
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import eks_addon, in_namespace, namespace_object, on_cluster
from eks_inference.cluster.pod_identity import pod_identity, pod_role
from eks_inference.component import Component
from eks_inference.kubernetes.network_policy import DNS, HTTPS, POD_IDENTITY, network_policy
from eks_inference.observability import cloudwatch_plan as plan
from eks_inference.observability.spec import CloudWatchSpec, FluentBitSpec
from eks_inference.specs.base import Given


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
        spec: Given[CloudWatchSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
    ) -> None:
        spec = CloudWatchSpec.of(spec)
        super().__init__("eks-inference:index:CloudWatchObservability", name, spec.inputs(), opts)
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


class FluentBit(Component):
    """Fluent Bit on every node: sends all container logs to one CloudWatch log group, with one stream per container.

    The group is ``/aws/eks/<cluster>/workload`` and a stream is ``<namespace>.<pod>.<container>``, as in the source system. An
    event is ``{"stream": "stdout", "log": <the line>, "node": <name>}`` with the time of the line. Fluent Bit's own logs,
    including delivery errors, are not sent: read them with ``kubectl -n <namespace> logs daemonset/fluent-bit``.

    Creates a namespace, the log group with its retention, a role that may write only to that group (EKS Pod Identity: ``cluster``
    must run the agent, as ``ClusterAddons`` does), a NetworkPolicy (no ingress; egress only to DNS, credentials and HTTPS) and a
    DaemonSet that tolerates all taints. Typed objects replace the chart aws-for-fluent-bit, because previews show them and
    because the chart's agent may read all pods of the cluster, which is unnecessary here.

    The namespace's Pod Security is "privileged": logs are in a node folder and belong to root. Fluent Bit retries lines that
    CloudWatch rejects until it accepts them. Reading pauses meanwhile, and lines that the kubelet rotates away are lost.

    With ``settings.protect`` the log group cannot be deleted; otherwise the stack deletes it.
    """

    def __init__(
        self,
        name: str,
        spec: Given[FluentBitSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
    ) -> None:
        spec = FluentBitSpec.of(spec)
        super().__init__("eks-inference:index:FluentBit", name, spec.inputs(), opts)
        settings = cluster.settings
        group_name = plan.fluent_bit_log_group(spec, cluster.name)
        group = log_group(f"{name}-log-group", group_name, spec.retention_days, settings=settings, parent=self)
        self.log_group_name: pulumi.Output[str] = group.name
        identity = pod_identity(
            name,
            cluster=cluster,
            namespace=spec.namespace,
            service_account=plan.FLUENT_BIT,
            description=f"Fluent Bit of the EKS cluster {cluster.name}",
            policies={"role-policy": group.arn.apply(lambda arn: iam.policy_json(iam.writer(arn)))},
            parent=self,
        )
        # Pods mount the node's log folder, which needs "privileged".
        namespace = namespace_object(f"{name}-namespace", spec.namespace, "privileged", cluster=cluster, parent=self)
        inside = in_namespace(cluster, self, namespace)
        closed = k8s.networking.v1.NetworkPolicy(
            f"{name}-network",
            **network_policy(plan.FLUENT_BIT, spec.namespace, selector={}, ingress=(), egress=[DNS, POD_IDENTITY, HTTPS]),
            opts=inside,
        )
        account = k8s.core.v1.ServiceAccount(
            f"{name}-account",
            metadata={"name": plan.FLUENT_BIT, "namespace": spec.namespace},
            automount_service_account_token=False,
            opts=inside,
        )
        config = plan.fluent_bit_configuration(spec, cluster=cluster.name, region=settings.region)
        config_map = k8s.core.v1.ConfigMap(
            f"{name}-config",
            metadata={"name": plan.FLUENT_BIT, "namespace": spec.namespace},
            data={plan.FLUENT_BIT_CONFIG: config},
            opts=inside,
        )
        daemon_set = k8s.apps.v1.DaemonSet(
            f"{name}-daemonset",
            **plan.fluent_bit_daemon_set(spec, config, settings.image(versions.image("aws-for-fluent-bit"))),
            opts=on_cluster(cluster, self, closed, account, config_map, group, *identity),
        )
        self.ready: Sequence[pulumi.Resource] = (daemon_set,)
        self.register_outputs({"namespace": spec.namespace, "logGroup": self.log_group_name})
