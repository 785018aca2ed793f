"""Creates a managed node group with its own launch template."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace

import pulumi
import pulumi_aws as aws

from eks_inference.aws import naming
from eks_inference.cluster.handle import ControlPlane
from eks_inference.component import Component, comparing
from eks_inference.network.handle import Network
from eks_inference.place.placement import Placement
from eks_inference.pools import node_plan, plan
from eks_inference.pools.node_plan import Interface, interfaces
from eks_inference.pools.node_role import node_role
from eks_inference.pools.node_spec import ExistingPlacementGroup, ImageIdAmi, ReleaseAmi, SsmParameterAmi
from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference.specs.base import Given


class ManagedPool(Component):
    """Node role, launch template and managed node group, in the private subnets of the chosen zones.

    ``pool`` is the value of the label that placements select; it defaults to ``name``. Nodes get the cluster security group from
    EKS, an encrypted gp3 root disk, instance metadata by token only, and the stack's tags on instances, volumes and interfaces.
    EKS creates the access entry of the node role. Updates and replacements of a pool with accelerators stop old nodes first,
    because a reservation has no room for both.

    With a customer KMS key in the stack settings, the key policy must allow the service-linked role
    ``AWSServiceRoleForAutoScaling`` to use it. Otherwise no instance starts (EC2 Auto Scaling user guide, "Required AWS KMS key
    policy").

    With ``efa`` the nodes have EFA interfaces and are in one subnet, in a cluster placement group unless they come from a
    reservation. In addition to the cluster security group, a security group of the pool allows EFA traffic among the nodes.

    Raises ``SpecError`` for zones outside the network, for an AMI release of another Kubernetes version, and for EFA interfaces
    that the instance type does not offer.
    """

    def __init__(
        self,
        name: str,
        spec: Given[ManagedPoolSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: ControlPlane,
        network: Network,
        pool: str | None = None,
    ) -> None:
        spec = ManagedPoolSpec.of(spec)
        inputs = spec.inputs()
        if "placement" in inputs:
            # The SDK sets inputs as attributes, and pools have a method of that name.
            inputs["placement_group"] = inputs.pop("placement")
        super().__init__("eks-inference:index:ManagedPool", name, inputs, opts)
        self.pool = pool or name
        self._spec = spec
        self._kubernetes_version = cluster.version
        settings = cluster.settings
        self.zone_ids = plan.pool_zones(spec, [subnet.zone_id for subnet in network.private_subnets], settings.region)
        subnet_ids = [subnet.id for subnet in network.private_subnets if subnet.zone_id in self.zone_ids]
        instance = spec.instances()[0]
        accelerated = instance.accelerator is not None
        release = spec.ami if isinstance(spec.ami, ReleaseAmi) else None

        role, permissions = node_role(
            f"{name}-node-role",
            description=f"Nodes of pool {self.pool} of the EKS cluster {cluster.name}",
            settings=settings,
            s3_read_buckets=spec.s3_read_buckets,
            parent=self,
        )
        template = self._launch_template(name, spec, cluster, network)
        bounds = spec.autoscaled
        self.node_group = aws.eks.NodeGroup(
            naming.within(naming.NODE_GROUP, f"{name}-nodes"),
            cluster_name=cluster.name,
            node_role_arn=role.arn,
            # A network may have several subnets in the zone of an EFA pool.
            subnet_ids=subnet_ids[:1] if spec.efa else subnet_ids,
            launch_template=aws.eks.NodeGroupLaunchTemplateArgs(id=template.id, version=template.latest_version.apply(str)),
            # EKS refuses all three when the template has an image id.
            ami_type=plan.ami_type(instance) if release else None,
            version=cluster.version if release else None,
            release_version=plan.release_version(release, instance, cluster.version) if release else None,
            capacity_type=spec.capacity_type.upper(),
            # With a capacity block the template has the type (EKS user guide, "Capacity Blocks for ML").
            instance_types=None if spec.capacity_type == "capacity_block" else list(spec.instance_types),
            scaling_config=aws.eks.NodeGroupScalingConfigArgs(
                desired_size=spec.size,
                min_size=bounds.min if bounds else spec.size,
                # EKS accepts no maximum of 0.
                max_size=bounds.max if bounds else max(spec.size, 1),
            ),
            update_config=aws.eks.NodeGroupUpdateConfigArgs(
                max_unavailable=spec.max_unavailable,
                update_strategy=(spec.update_strategy or ("minimal" if accelerated else "default")).upper(),
            ),
            # A disruption budget may delay draining for long; without force, EKS abandons an update after 15 minutes.
            force_update_version=True,
            node_repair_config=aws.eks.NodeGroupNodeRepairConfigArgs(enabled=True) if spec.node_repair else None,
            labels=plan.pool_labels(spec, self.pool),
            taints=[
                aws.eks.NodeGroupTaintArgs(key=taint.key, value=taint.value, effect=plan.EKS_TAINT_EFFECTS[taint.effect])
                for taint in plan.pool_taints(spec)
            ],
            tags={**settings.tags, "Name": f"{cluster.name}-{self.pool}"},
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[*cluster.ready, *network.ready, *permissions],
                ignore_changes=["scalingConfig.desiredSize"] if bounds else None,
                delete_before_replace=accelerated or None,
            ),
        )
        self.ready: Sequence[pulumi.Resource] = (self.node_group,)
        self.node_role_arn: pulumi.Output[str] = role.arn
        self.register_outputs({"pool": self.pool, "nodeRoleArn": role.arn, "nodeGroupName": self.node_group.node_group_name})

    @comparing
    def placement(self, instance_type: str | None = None) -> Placement:
        """Returns the placement of a workload on this pool; see ``Pool``."""
        found = plan.placement_of(self.pool, self._spec, instance_type, self._kubernetes_version, self.zone_ids, self.ready)
        return replace(found, home=self.home)

    def _launch_template(
        self, name: str, spec: ManagedPoolSpec, cluster: ControlPlane, network: Network
    ) -> aws.ec2.LaunchTemplate:
        settings = cluster.settings
        layout = interfaces(spec.instances()[0], spec.efa) if spec.efa else ()
        placement_group = self._placement_group(name, spec, cluster)
        node_tags = {**settings.tags, "Name": f"{cluster.name}-{self.pool}"}
        block = spec.capacity_type == "capacity_block"
        return aws.ec2.LaunchTemplate(
            f"{name}-template",
            description=f"Nodes of pool {self.pool} of the EKS cluster {cluster.name}",
            image_id=self._image_id(name, spec),
            instance_type=spec.instance_types[0] if block else None,
            user_data=self._user_data(spec, cluster),
            key_name=spec.ssh_key_name,
            block_device_mappings=[
                aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
                    device_name="/dev/xvda",
                    ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                        volume_size=node_plan.root_volume_gib(spec),
                        volume_type="gp3",
                        throughput=node_plan.paid_mib_s(spec),
                        iops=node_plan.paid_iops(spec),
                        encrypted="true",
                        kms_key_id=settings.kms_key_arn,
                        delete_on_termination="true",
                    ),
                )
            ],
            metadata_options=aws.ec2.LaunchTemplateMetadataOptionsArgs(
                http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=spec.metadata_hop_limit
            ),
            instance_market_options=(
                aws.ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block") if block else None
            ),
            capacity_reservation_specification=(
                aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs(
                    capacity_reservation_target=(
                        aws.ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
                            capacity_reservation_id=spec.capacity_reservation_id,
                            capacity_reservation_resource_group_arn=spec.capacity_reservation_group_arn,
                        )
                    )
                )
                if spec.reserved
                else None
            ),
            network_interfaces=self._network_interfaces(name, layout, cluster, network) if layout else None,
            placement=aws.ec2.LaunchTemplatePlacementArgs(group_name=placement_group) if placement_group else None,
            tag_specifications=[
                aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=node_tags)
                for kind in ("instance", "volume", "network-interface")
            ],
            tags=node_tags,
            # Base64, which nobody can review.
            opts=pulumi.ResourceOptions(parent=self, hide_diffs=["userData"]),
        )

    def _network_interfaces(
        self, name: str, layout: Sequence[Interface], cluster: ControlPlane, network: Network
    ) -> list[aws.ec2.LaunchTemplateNetworkInterfaceArgs]:
        """Returns interfaces that include the security groups: EC2 accepts no other groups then, and EKS adds none.

        EKS chooses the subnet. There is no public address, because EC2 refuses one to nodes with several interfaces.
        """
        settings = cluster.settings
        group = aws.ec2.SecurityGroup(
            f"{name}-efa",
            vpc_id=network.vpc_id,
            description=f"EFA among the nodes of pool {self.pool} of the EKS cluster {cluster.name}",
            # EFA traffic is not IP: a rule for 0.0.0.0/0 does not cover it, only a rule for the group itself, in each direction
            # (EC2 user guide, "Get started with EFA and MPI", step 1).
            ingress=[{"protocol": "-1", "from_port": 0, "to_port": 0, "self": True, "description": "EFA from the nodes"}],
            egress=[{"protocol": "-1", "from_port": 0, "to_port": 0, "self": True, "description": "EFA to the nodes"}],
            # Without the cluster's tag, which only one group of a node may have.
            tags={**settings.tags, "Name": f"{cluster.name}-{self.pool}-efa"},
            opts=pulumi.ResourceOptions(parent=self),
        )
        return [
            aws.ec2.LaunchTemplateNetworkInterfaceArgs(
                network_card_index=interface.network_card,
                device_index=interface.device,
                interface_type=interface.kind,
                security_groups=[cluster.security_group_id, group.id],
                associate_public_ip_address="false",
                delete_on_termination="true",
            )
            for interface in layout
        ]

    def _placement_group(self, name: str, spec: ManagedPoolSpec, cluster: ControlPlane) -> pulumi.Input[str] | None:
        """Returns the name of the nodes' placement group."""
        if isinstance(spec.placement, ExistingPlacementGroup):
            return spec.placement.name
        if not plan.makes_placement_group(spec):
            return None
        group = aws.ec2.PlacementGroup(
            f"{name}-placement",
            strategy="cluster",
            tags={**cluster.settings.tags, "Name": f"{cluster.name}-{self.pool}"},
            opts=pulumi.ResourceOptions(parent=self),
        )
        return group.name

    def _image_id(self, name: str, spec: ManagedPoolSpec) -> pulumi.Input[str] | None:
        """Returns the image of the launch template, or None where EKS supplies it.

        An SSM parameter is read as a resource: templates of managed groups cannot refer to one (``resolve:ssm:``), because EKS
        may not read parameters (aws/containers-roadmap#1951).
        """
        if isinstance(spec.ami, ImageIdAmi):
            return spec.ami.id
        if isinstance(spec.ami, SsmParameterAmi):
            parameter = aws.ssm.Parameter.get(f"{name}-image", spec.ami.name, opts=pulumi.ResourceOptions(parent=self))
            # The provider marks the value of every parameter as secret, but reviewers should see an image id.
            return pulumi.Output.unsecret(parameter.value)
        return None

    def _user_data(self, spec: ManagedPoolSpec, cluster: ControlPlane) -> pulumi.Input[str] | None:
        def encoded(known: plan.ClusterFacts | None = None) -> str | None:
            text = plan.user_data(spec, pool=self.pool, cluster=known)
            return base64.b64encode(text.encode()).decode() if text else None

        if isinstance(spec.ami, ReleaseAmi):
            return encoded()
        return pulumi.Output.all(cluster.endpoint, cluster.certificate_authority).apply(
            lambda facts: encoded(plan.ClusterFacts(cluster.name, facts[0], facts[1], cluster.service_cidr)) or ""
        )
