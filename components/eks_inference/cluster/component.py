"""The resources of a cluster: its control plane, and the add-ons it needs once nodes have joined."""

from collections.abc import Collection

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s

from eks_inference.aws import iam
from eks_inference.cluster import plan
from eks_inference.cluster.addon import eks_addon
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.cluster.pod_identity import pod_role
from eks_inference.cluster.provider import kubernetes_provider
from eks_inference.cluster.spec import ClusterAddonsSpec, ClusterSpec
from eks_inference.faults import Fault, SpecError
from eks_inference.network.handle import Network
from eks_inference.placement import Placement
from eks_inference.settings import StackSettings


class EksCluster(pulumi.ComponentResource):
    """An EKS control plane and the add-ons nodes need before they join: pod network, service network, Pod Identity.

    ``name`` is also the name of the cluster in AWS. The component itself is a ``Cluster`` that pools stand on; nothing that has
    pods of its own should, because there is no DNS yet: that stands on ``ClusterAddons``.

    Its network interfaces are in the private subnets; nodes and load balancers may use others. Raises ``SpecError`` when the
    private subnets are in fewer than two zones. pulumi-eks makes the control plane and nothing else; it needs the ``aws`` command
    on PATH, also to preview.
    """

    def __init__(
        self,
        name: str,
        spec: ClusterSpec,
        *,
        network: Network,
        settings: StackSettings,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        zones = plan.control_plane_zones([subnet.zone_id for subnet in network.private_subnets])
        super().__init__("eks-inference:index:EksCluster", name, spec.model_dump(mode="json", exclude_none=True), opts)
        self.name = name
        self.version: str = spec.version
        self.settings = settings
        self.service_cidr = spec.service_cidr

        self.control_plane = self._control_plane(spec, network, zones)
        cluster = self.control_plane.eks_cluster
        self.endpoint: pulumi.Output[str] = cluster.endpoint
        self.certificate_authority: pulumi.Output[str] = cluster.certificate_authority.data
        # With the default groups skipped this is the group EKS makes (pulumi-eks, nodejs/eks/cluster/cluster.ts).
        self.security_group_id = self.control_plane.cluster_security_group_id
        self.provider = kubernetes_provider(
            f"{name}-k8s", self.control_plane, name=name, settings=settings, opts=pulumi.ResourceOptions(parent=self)
        )
        self.ready: tuple[pulumi.Resource, ...] = tuple(
            eks_addon(
                f"{name}-{addon.name}",
                addon,
                cluster_name=name,
                settings=settings,
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

    def _service_role(self) -> tuple[aws.iam.Role, aws.iam.RolePolicyAttachment]:
        """The role of the control plane, and what it may do.

        Not that of pulumi-eks, which takes no permissions boundary, and whose name may exceed IAM's 64 characters.
        """
        name, settings = self.name, self.settings
        role = aws.iam.Role(
            f"{name}-service-role",
            description=f"Control plane of the EKS cluster {name}",
            assume_role_policy=iam.policy_json(plan.service_trust_policy()),
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
        return role, policy

    def _control_plane(self, spec: ClusterSpec, network: Network, zones: Collection[str]) -> eks.Cluster:
        name, settings = self.name, self.settings
        role, policy = self._service_role()
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
            # Given even when empty: with an explicit AWS provider pulumi-eks refuses to go on without it.
            provider_credential_opts=eks.KubeconfigOptionsArgs(profile_name=settings.profile),
            create_oidc_provider=spec.create_oidc_provider,
            # Nodes, their roles and groups are the pools'; every add-on is ours and pinned.
            skip_default_node_group=True,
            skip_default_security_groups=True,
            create_instance_role=False,
            bootstrap_self_managed_addons=False,
            use_default_vpc_cni=True,
            kube_proxy_addon_options=eks.KubeProxyAddonOptionsArgs(enabled=False),
            coredns_addon_options=eks.CoreDnsAddonOptionsArgs(enabled=False),
            tags={**settings.tags, "Name": name},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[policy, *network.ready]),
        )


class ClusterAddons(pulumi.ComponentResource):
    """The add-ons that have pods of their own: CoreDNS, the EBS CSI driver with a default storage class, metrics-server.

    ``core`` is a placement on a pool without taints; the add-ons wait for its nodes, since EKS calls an add-on degraded and gives
    up after 20 minutes while its pods are pending. Raises ``SpecError`` when the pool is tainted.

    The component is itself the ``Cluster`` that everything with pods stands on. On the way down workloads go first, then these
    add-ons, then pools, then the add-ons of ``EksCluster``, then the control plane.
    """

    def __init__(
        self,
        name: str,
        spec: ClusterAddonsSpec,
        *,
        cluster: Cluster,
        core: Placement,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        barring = [taint for taint in core.taints if taint.effect != "PreferNoSchedule"]
        if barring:
            raise SpecError(
                [
                    Fault(
                        ("pools", core.pool, "taints"),
                        "CoreDNS and the storage driver would find no node",
                        given=", ".join(f"{taint.key}={taint.value}:{taint.effect}" for taint in barring),
                        hint="the core pool must have no taint",
                    )
                ]
            )
        super().__init__("eks-inference:index:ClusterAddons", name, spec.model_dump(mode="json", exclude_none=True), opts)
        self.name = cluster.name
        self.version = cluster.version
        self.settings = settings = cluster.settings
        self.endpoint = cluster.endpoint
        self.certificate_authority = cluster.certificate_authority
        self.service_cidr = cluster.service_cidr
        self.security_group_id = cluster.security_group_id
        self.provider = cluster.provider

        addons = plan.addons_after_pools(spec, self.version, settings.tags)
        nodes = [*cluster.ready, *core.ready]
        coredns = eks_addon(
            f"{name}-coredns",
            addons["coredns"],
            cluster_name=self.name,
            settings=settings,
            opts=pulumi.ResourceOptions(parent=self, depends_on=nodes),
        )
        role, permissions = self._storage_role(name, cluster)
        storage_driver = eks_addon(
            f"{name}-aws-ebs-csi-driver",
            addons["aws-ebs-csi-driver"],
            cluster_name=self.name,
            settings=settings,
            pod_identity_associations=[
                aws.eks.AddonPodIdentityAssociationArgs(role_arn=role.arn, service_account=plan.EBS_CSI_SERVICE_ACCOUNT)
            ],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*nodes, *permissions]),
        )
        eks_addon(
            f"{name}-metrics-server",
            addons["metrics-server"],
            cluster_name=self.name,
            settings=settings,
            opts=pulumi.ResourceOptions(parent=self, depends_on=nodes),
        )
        manifest = plan.storage_class(settings.kms_key_arn)
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
        # DNS and volumes. Not metrics-server: no pod needs it to start. The storage class stands for its driver.
        self.ready: tuple[pulumi.Resource, ...] = (coredns, storage_class)
        self.register_outputs({"storageClass": plan.STORAGE_CLASS})

    def _storage_role(self, name: str, cluster: Cluster) -> tuple[aws.iam.Role, list[pulumi.Resource]]:
        """The EBS CSI driver's role, and what must be attached to it before the driver starts."""
        key = self.settings.kms_key_arn
        return pod_role(
            f"{name}-ebs-csi",
            cluster=cluster,
            namespace=plan.EBS_CSI_NAMESPACE,
            service_account=plan.EBS_CSI_SERVICE_ACCOUNT,
            description=f"EBS CSI driver of the EKS cluster {self.name}",
            parent=self,
            managed_policies={"policy": plan.ebs_csi_policy_arn(self.settings.partition)},
            policies={"key": iam.policy_json(plan.ebs_csi_key_policy(key))} if key else {},
            role_name=f"{name}-ebs-csi",
        )
