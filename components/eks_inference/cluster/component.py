"""Creates a cluster: its control plane, and the add-ons that need nodes."""

from __future__ import annotations

from collections.abc import Collection

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s

from eks_inference.aws import iam
from eks_inference.aws.log_group import log_group
from eks_inference.cluster import plan
from eks_inference.cluster.handle import ControlPlane
from eks_inference.cluster.objects import eks_addon, kubernetes_provider, on_cluster
from eks_inference.cluster.pod_identity import pod_role
from eks_inference.cluster.spec import ClusterAddonsSpec, ClusterSpec
from eks_inference.component import Component, rendered
from eks_inference.faults import Fault, SpecError
from eks_inference.network.handle import Network
from eks_inference.place.placement import Placement
from eks_inference.specs.base import Given
from eks_inference.specs.settings import StackSettings


class EksCluster(Component):
    """An EKS control plane and the add-ons that nodes need before they join: pod network, service network, Pod Identity.

    ``name`` is also the name of the cluster in AWS. Pools are built on it. Components with pods need DNS and
    therefore build on ``ClusterAddons``.

    The control plane's network interfaces are in the private subnets of the first two zones that accept them, because EKS never
    changes these zones; nodes and load balancers may use others. It does not wait
    for ``network.ready``: only nodes need the way out, and a NAT gateway takes two minutes. Raises
    ``SpecError`` when the private subnets are in fewer than two zones. pulumi-eks creates only the control plane; it needs the
    ``aws`` command on PATH, even for a preview.
    """

    def __init__(
        self,
        name: str,
        spec: Given[ClusterSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        network: Network,
        settings: StackSettings,
    ) -> None:
        spec = ClusterSpec.of(spec)
        zones = plan.control_plane_zones([subnet.zone_id for subnet in network.private_subnets])
        super().__init__("eks-inference:index:EksCluster", name, spec.inputs(), opts)
        self.name = name
        self.version: str = spec.version
        self.settings = settings
        self.service_cidr = spec.service_cidr
        self.api_cidrs = plan.api_cidrs(spec.service_cidr, [one.cidr for one in network.private_subnets if one.zone_id in zones])

        self.control_plane = self._control_plane(spec, network, zones)
        cluster = self.control_plane.eks_cluster
        self.endpoint: pulumi.Output[str] = cluster.endpoint
        self.certificate_authority: pulumi.Output[str] = cluster.certificate_authority.data
        # Without the default groups this is the group that EKS creates (pulumi-eks, nodejs/eks/cluster/cluster.ts).
        self.security_group_id = self.control_plane.cluster_security_group_id
        self.provider = kubernetes_provider(
            f"{name}-k8s",
            self.endpoint,
            self.certificate_authority,
            name=name,
            settings=settings,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.ready: tuple[pulumi.Resource, ...] = tuple(
            eks_addon(
                f"{name}-{addon.name}",
                addon,
                cluster=self,
                opts=pulumi.ResourceOptions(parent=self, depends_on=[self.control_plane]),
            )
            for addon in plan.addons_before_pools(spec).values()
        )
        self.kubeconfig_command = plan.kubeconfig_command(name, settings.region, settings.profile)
        self.register_outputs(
            {
                "name": name,
                "version": spec.version,
                "endpoint": self.endpoint,
                "securityGroupId": self.security_group_id,
                "kubeconfigCommand": self.kubeconfig_command,
            }
        )

    def _control_plane(self, spec: ClusterSpec, network: Network, zones: Collection[str]) -> eks.Cluster:
        """Creates the control plane, its role and its log group.

        pulumi-eks would create a role without permissions boundary, whose name may exceed IAM's limit of 64 characters.
        """
        name, settings = self.name, self.settings
        # EKS user guide, "Amazon EKS cluster IAM role"; the principal is the same in every partition.
        trust = iam.trust("ControlPlane", "eks.amazonaws.com", "sts:AssumeRole", "sts:TagSession")
        role = aws.iam.Role(
            f"{name}-service-role",
            description=f"Control plane of the EKS cluster {name}",
            assume_role_policy=iam.policy_json(iam.document(trust)),
            permissions_boundary=settings.permissions_boundary_arn,
            tags={**settings.tags, "Name": f"{name}-service-role"},
            opts=pulumi.ResourceOptions(parent=self),
        )
        policy = aws.iam.RolePolicyAttachment(
            f"{name}-service-policy",
            role=role.name,
            policy_arn=iam.managed_policy_arn("AmazonEKSClusterPolicy", settings.partition),
            opts=pulumi.ResourceOptions(parent=self),
        )
        logs = (
            [log_group(f"{name}-logs", f"/aws/eks/{name}/cluster", spec.log_retention_days, settings=settings, parent=self)]
            if spec.log_types
            else []
        )
        return eks.Cluster(
            f"{name}-control-plane",
            name=name,
            version=spec.version,
            service_role=role,
            vpc_id=network.vpc_id,
            private_subnet_ids=[subnet.id for subnet in network.private_subnets if subnet.zone_id in zones],
            authentication_mode=eks.AuthenticationMode.API,
            access_entries={
                entry.key: eks.AccessEntryArgs(
                    principal_arn=entry.principal_arn,
                    access_policies={
                        "cluster": eks.AccessPolicyAssociationArgs(
                            policy_arn=entry.policy_arn(settings.partition),
                            access_scope=aws.eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
                        )
                    },
                    tags=settings.tags,
                )
                for entry in plan.access_entries(spec)
            },
            endpoint_private_access=spec.endpoint.private,
            endpoint_public_access=spec.endpoint.public,
            public_access_cidrs=list(spec.endpoint.public_access_cidrs) or None,
            kubernetes_service_ip_address_range=spec.service_cidr,
            enabled_cluster_log_types=list(spec.log_types),
            encryption_config_key_arn=settings.kms_key_arn,
            deletion_protection=settings.protect,
            # Set even when empty: with an explicit AWS provider, pulumi-eks fails without it.
            provider_credential_opts=eks.KubeconfigOptionsArgs(profile_name=settings.profile),
            create_oidc_provider=spec.create_oidc_provider,
            # Pools create nodes with their roles and groups; every add-on is ours and pinned.
            skip_default_node_group=True,
            skip_default_security_groups=True,
            create_instance_role=False,
            bootstrap_self_managed_addons=False,
            use_default_vpc_cni=True,
            kube_proxy_addon_options=eks.KubeProxyAddonOptionsArgs(enabled=False),
            coredns_addon_options=eks.CoreDnsAddonOptionsArgs(enabled=False),
            tags={**settings.tags, "Name": name},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[policy, *logs]),
        )


class ClusterAddons(Component):
    """The add-ons with Deployments: CoreDNS, the EBS CSI driver with a default storage class, metrics-server.

    ``core`` is a placement on a pool without taints. The add-ons depend on its nodes: while their pods are pending, EKS reports
    an add-on as degraded and gives up after 20 minutes. Raises ``SpecError`` when the pool is tainted.

    The component is itself the ``Cluster`` for everything with pods. Teardown removes workloads first, then these add-ons, then
    pools, then the add-ons of ``EksCluster``, then the control plane.
    """

    def __init__(
        self,
        name: str,
        spec: Given[ClusterAddonsSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: ControlPlane,
        core: Placement,
    ) -> None:
        spec = ClusterAddonsSpec.of(spec)
        barring = [taint for taint in core.taints if taint.effect != "PreferNoSchedule"]
        if barring:
            raise SpecError(
                [
                    Fault(
                        ("pools", core.pool, "taints"),
                        "CoreDNS and the EBS CSI driver would find no node",
                        given=", ".join(f"{taint.key}={taint.value}:{taint.effect}" for taint in barring),
                        hint="the core pool must have no taints",
                    )
                ]
            )
        super().__init__("eks-inference:index:ClusterAddons", name, spec.inputs(), opts)
        self.name = cluster.name
        self.version = cluster.version
        self.settings = settings = cluster.settings
        self.endpoint = cluster.endpoint
        self.certificate_authority = cluster.certificate_authority
        self.service_cidr = cluster.service_cidr
        self.api_cidrs = cluster.api_cidrs
        self.security_group_id = cluster.security_group_id
        self.provider = cluster.provider

        addons = plan.addons_after_pools(spec, self.version, settings.tags)
        nodes = [*cluster.ready, *core.ready]
        coredns = eks_addon(
            f"{name}-coredns",
            addons["coredns"],
            cluster=cluster,
            opts=pulumi.ResourceOptions(parent=self, depends_on=nodes),
        )
        key = settings.kms_key_arn
        role, permissions = pod_role(
            f"{name}-ebs-csi",
            cluster=cluster,
            namespace=plan.EBS_CSI_NAMESPACE,
            service_account=plan.EBS_CSI_SERVICE_ACCOUNT,
            description=f"EBS CSI driver of the EKS cluster {self.name}",
            parent=self,
            managed_policies={"policy": iam.managed_policy_arn(plan.EBS_CSI_POLICY, settings.partition)},
            policies={"key": rendered(iam.policy_json, plan.ebs_csi_key_policy(key))} if key else {},
            role_name=f"{name}-ebs-csi",
        )
        storage_driver = eks_addon(
            f"{name}-aws-ebs-csi-driver",
            addons["aws-ebs-csi-driver"],
            cluster=cluster,
            pod_identity_associations=[{"role_arn": role.arn, "service_account": plan.EBS_CSI_SERVICE_ACCOUNT}],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*nodes, *permissions]),
        )
        eks_addon(
            f"{name}-metrics-server",
            addons["metrics-server"],
            cluster=cluster,
            opts=pulumi.ResourceOptions(parent=self, depends_on=nodes),
        )
        manifest = plan.storage_class(key)
        storage_class = k8s.storage.v1.StorageClass(
            f"{name}-storage-class",
            metadata=manifest["metadata"],
            provisioner=manifest["provisioner"],
            parameters=manifest["parameters"],
            volume_binding_mode=manifest["volumeBindingMode"],
            allow_volume_expansion=manifest["allowVolumeExpansion"],
            reclaim_policy=manifest["reclaimPolicy"],
            opts=on_cluster(cluster, self, storage_driver),
        )
        # No pod needs metrics-server to start. The storage class implies its driver.
        self.pods_ready: tuple[pulumi.Resource, ...] = (coredns,)
        self.ready: tuple[pulumi.Resource, ...] = (coredns, storage_class)
        self.register_outputs({"storageClass": plan.STORAGE_CLASS})
