"""``Vpc``: a new network for an EKS cluster."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network
from typing import Any

import pulumi
import pulumi_aws as aws

from eks_inference.aws import iam, naming
from eks_inference.component import Component
from eks_inference.faults import Fault, SpecError
from eks_inference.network.handle import Subnet
from eks_inference.network.plan import ZonePlan, network_zones, plan_subnets
from eks_inference.network.spec import Endpoint, FlowLogsSpec, NetworkSpec
from eks_inference.specs.base import Given
from eks_inference.specs.late import Late
from eks_inference.specs.settings import StackSettings

_SERVICES: dict[Endpoint, tuple[str, ...]] = {"ecr": ("ecr.api", "ecr.dkr")}
"""The AWS services of endpoints that stand for several; every other endpoint has the name of its service."""


class Vpc(Component):
    """A VPC with subnets, an internet gateway, NAT gateways and endpoints as specified; implements ``Network``.

    Every private subnet has its own route table, so a change of ``nat`` between single and per zone rewrites routes and moves no
    subnet. The default security group is emptied: nothing here uses it, and anything that uses it by mistake should fail. Subnets
    carry the tags that load balancer controllers look for (``kubernetes.io/role/elb``, ``kubernetes.io/role/internal-elb``).
    With ``cluster_name``, private subnets also carry ``karpenter.sh/discovery``.

    ``families`` are the instance families (``inf2``, ``m5``) or types of the nodes; they decide zones that the spec leaves open.
    ``ready`` holds the resources of a node's route out. NAT gateways depend on the public side, so ``ready`` omits that side.

    Raises ``SpecError`` when EKS would refuse a zone, or when no choice of zones offers every family.
    """

    def __init__(
        self,
        name: str,
        spec: Given[NetworkSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        settings: StackSettings,
        cluster_name: str | None = None,
        families: Sequence[str] = (),
    ) -> None:
        spec = NetworkSpec.of(spec)
        if spec.existing:
            hint = "give others an ExistingVpc as their network"
            raise SpecError([Fault(("existing",), "this component makes a new VPC", hint=hint)])
        zone_ids = network_zones(settings.region, families, wanted=spec.zone_ids, count=spec.zones)
        inputs = {**spec.inputs(), "zone_ids": list(zone_ids)}
        inputs.pop("zones", None)
        super().__init__("eks-inference:index:Vpc", name, inputs, opts)
        self._prefix = name
        self._tags = settings.tags
        self.cidr = spec.cidr
        self.isolated = spec.nat == "none"
        plans = plan_subnets(spec.cidr, zone_ids, public=spec.public_subnets, load_balancers=spec.load_balancer_subnets)

        vpc = aws.ec2.Vpc(
            f"{name}-vpc",
            cidr_block=spec.cidr,
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=self._tagged("vpc"),
            opts=pulumi.ResourceOptions(parent=self, protect=settings.protect or None),
        )
        self.vpc_id: pulumi.Output[str] = vpc.id
        aws.ec2.DefaultSecurityGroup(
            f"{name}-default-security-group",
            vpc_id=vpc.id,
            tags=self._tagged("default-unused"),
            opts=pulumi.ResourceOptions(parent=self),
        )

        if spec.flow_logs:
            flow_logs(name, spec.flow_logs, vpc_id=vpc.id, settings=settings, parent=self)

        public, public_ready = self._public_side(plans) if spec.public_subnets else ({}, [])
        gateways = self._nat_gateways(spec.nat, public, public_ready)
        private, tables, private_ready = self._private_side(plans, gateways, cluster_name)
        endpoints = self._endpoints(settings.region, spec.endpoints, private, tables)

        balanced = {
            plan.zone_id: self._subnet(f"load-balancers-{plan.zone_id}", plan.zone_id, plan.load_balancer, table, {})[0]
            for plan, table in zip(plans, tables, strict=True)
            if plan.load_balancer
        }
        ranges = {plan.zone_id: plan for plan in plans}
        self.public_subnets: Sequence[Subnet] = tuple(
            Subnet(zone_id, subnet.id, str(ranges[zone_id].public)) for zone_id, subnet in public.items()
        )
        self.private_subnets: Sequence[Subnet] = tuple(
            Subnet(zone_id, subnet.id, str(ranges[zone_id].private)) for zone_id, subnet in private.items()
        )
        self.load_balancer_subnets: Sequence[Subnet] = tuple(
            Subnet(zone_id, subnet.id, str(ranges[zone_id].load_balancer)) for zone_id, subnet in balanced.items()
        )
        # With NAT the private routes already depend on the public side; without NAT the endpoints are the only way out.
        self.ready: Sequence[pulumi.Resource] = (*private_ready, *(() if gateways else (*public_ready, *endpoints)))
        self.register_outputs(
            {
                "vpcId": self.vpc_id,
                "privateSubnetIds": [subnet.id for subnet in private.values()],
                "publicSubnetIds": [subnet.id for subnet in public.values()],
            }
        )

    def _public_side(self, plans: Sequence[ZonePlan]) -> tuple[dict[str, aws.ec2.Subnet], list[pulumi.Resource]]:
        """Returns public subnets by zone, and the resources that connect them to the internet."""
        gateway = aws.ec2.InternetGateway(
            f"{self._prefix}-internet-gateway",
            vpc_id=self.vpc_id,
            tags=self._tagged("internet-gateway"),
            opts=pulumi.ResourceOptions(parent=self),
        )
        table = self._route_table("public")
        ready: list[pulumi.Resource] = [self._default_route("public", table, gateway_id=gateway.id)]
        subnets: dict[str, aws.ec2.Subnet] = {}
        for plan in plans:
            if plan.public:
                role = f"public-{plan.zone_id}"
                subnets[plan.zone_id], association = self._subnet(
                    role, plan.zone_id, plan.public, table, {"kubernetes.io/role/elb": "1"}
                )
                ready.append(association)
        return subnets, ready

    def _nat_gateways(
        self, nat: str, public: dict[str, aws.ec2.Subnet], public_ready: Sequence[pulumi.Resource]
    ) -> dict[str, aws.ec2.NatGateway]:
        """Returns the NAT gateway of each zone: a shared one in the first zone, one per zone, or none."""
        gateways: dict[str, aws.ec2.NatGateway] = {}
        for zone_id in [] if nat == "none" else public:
            if nat == "single" and gateways:
                gateways[zone_id] = next(iter(gateways.values()))
                continue
            address = aws.ec2.Eip(
                f"{self._prefix}-nat-{zone_id}-address",
                domain="vpc",
                tags=self._tagged(f"nat-{zone_id}"),
                # An address can be released only after its gateway, and mapped only while the VPC has an internet gateway.
                opts=pulumi.ResourceOptions(parent=self, depends_on=[*public_ready]),
            )
            gateways[zone_id] = aws.ec2.NatGateway(
                f"{self._prefix}-nat-{zone_id}",
                allocation_id=address.id,
                subnet_id=public[zone_id].id,
                tags=self._tagged(f"nat-{zone_id}"),
                opts=pulumi.ResourceOptions(parent=self, depends_on=[*public_ready]),
            )
        return gateways

    def _private_side(
        self, plans: Sequence[ZonePlan], gateways: dict[str, aws.ec2.NatGateway], cluster_name: str | None
    ) -> tuple[dict[str, aws.ec2.Subnet], list[aws.ec2.RouteTable], list[pulumi.Resource]]:
        """Returns private subnets by zone, their route tables, and the resources of their routes out."""
        tags = {"kubernetes.io/role/internal-elb": "1"} | ({"karpenter.sh/discovery": cluster_name} if cluster_name else {})
        subnets: dict[str, aws.ec2.Subnet] = {}
        tables: list[aws.ec2.RouteTable] = []
        ready: list[pulumi.Resource] = []
        for plan in plans:
            role = f"private-{plan.zone_id}"
            tables.append(self._route_table(role))
            subnets[plan.zone_id], association = self._subnet(role, plan.zone_id, plan.private, tables[-1], tags)
            ready.append(association)
            if plan.zone_id in gateways:
                ready.append(self._default_route(role, tables[-1], nat_gateway_id=gateways[plan.zone_id].id))
        return subnets, tables, ready

    def _endpoints(
        self,
        region: str,
        wanted: Sequence[Endpoint],
        private: dict[str, aws.ec2.Subnet],
        tables: Sequence[aws.ec2.RouteTable],
    ) -> list[pulumi.Resource]:
        """Creates a gateway endpoint for S3, and interface endpoints with private DNS in every private subnet."""
        types: dict[str, dict[str, Any]] = {}
        if "s3" in wanted:
            types["s3"] = {"vpc_endpoint_type": "Gateway", "route_table_ids": [table.id for table in tables]}
        if interfaces := sorted(set(wanted) - {"s3"}):
            group = aws.ec2.SecurityGroup(
                f"{self._prefix}-endpoints-security-group",
                vpc_id=self.vpc_id,
                description="HTTPS from the VPC to its interface endpoints",
                ingress=[{"protocol": "tcp", "from_port": 443, "to_port": 443, "cidr_blocks": [self.cidr], "description": "VPC"}],
                tags=self._tagged("endpoints"),
                opts=pulumi.ResourceOptions(parent=self),
            )
            interface = {
                "vpc_endpoint_type": "Interface",
                "private_dns_enabled": True,
                "subnet_ids": [subnet.id for subnet in private.values()],
                "security_group_ids": [group.id],
            }
            types |= {service: interface for endpoint in interfaces for service in _SERVICES.get(endpoint, (endpoint,))}
        return [
            aws.ec2.VpcEndpoint(
                f"{self._prefix}-endpoint-{service.replace('.', '-')}",
                vpc_id=self.vpc_id,
                service_name=f"com.amazonaws.{region}.{service}",
                tags=self._tagged(service),
                opts=pulumi.ResourceOptions(parent=self),
                **arguments,
            )
            for service, arguments in types.items()
        ]

    def _route_table(self, role: str) -> aws.ec2.RouteTable:
        return aws.ec2.RouteTable(
            f"{self._prefix}-{role}-routes",
            vpc_id=self.vpc_id,
            tags=self._tagged(role),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _default_route(self, role: str, table: aws.ec2.RouteTable, **gateway: pulumi.Input[str]) -> aws.ec2.Route:
        return aws.ec2.Route(
            f"{self._prefix}-{role}-internet",
            route_table_id=table.id,
            destination_cidr_block="0.0.0.0/0",
            opts=pulumi.ResourceOptions(parent=self),
            **gateway,
        )

    def _subnet(
        self, role: str, zone_id: str, block: IPv4Network, table: aws.ec2.RouteTable, tags: dict[str, str]
    ) -> tuple[aws.ec2.Subnet, aws.ec2.RouteTableAssociation]:
        subnet = aws.ec2.Subnet(
            f"{self._prefix}-{role}",
            vpc_id=self.vpc_id,
            availability_zone_id=zone_id,
            cidr_block=str(block),
            map_public_ip_on_launch=False,
            tags=self._tagged(role) | tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        association = aws.ec2.RouteTableAssociation(
            f"{self._prefix}-{role}-association",
            subnet_id=subnet.id,
            route_table_id=table.id,
            opts=pulumi.ResourceOptions(parent=self),
        )
        return subnet, association

    def _tagged(self, role: str) -> dict[str, Late]:
        return {**self._tags, "Name": f"{self._prefix}-{role}"}


def flow_logs(
    name: str, spec: FlowLogsSpec, *, vpc_id: pulumi.Input[str], settings: StackSettings, parent: pulumi.Resource
) -> None:
    """Creates the flow log of a VPC, its log group, and a role that may write only there.

    With ``settings.protect`` the log group cannot be deleted.
    Source: Amazon VPC user guide, "Publish flow logs to CloudWatch Logs".
    """
    group = aws.cloudwatch.LogGroup(
        f"{name}-flow-logs",
        retention_in_days=spec.retention_days,
        tags={**settings.tags, "Name": f"{name}-flow-logs"},
        opts=pulumi.ResourceOptions(parent=parent, protect=settings.protect or None),
    )
    role_name = f"{name}-flow-logs-role"
    role = aws.iam.Role(
        naming.within(naming.IAM_ROLE, role_name),
        description=f"Flow logs of the VPC {name}",
        assume_role_policy=iam.policy_json(iam.document(iam.trust("FlowLogs", "vpc-flow-logs.amazonaws.com", "sts:AssumeRole"))),
        permissions_boundary=settings.permissions_boundary_arn,
        tags={**settings.tags, "Name": role_name},
        opts=pulumi.ResourceOptions(parent=parent),
    )
    leave = aws.iam.RolePolicy(
        f"{name}-flow-logs-policy",
        role=role.name,
        policy=group.arn.apply(lambda arn: iam.policy_json(iam.writer(arn, "logs:DescribeLogStreams"))),
        opts=pulumi.ResourceOptions(parent=parent),
    )
    aws.ec2.FlowLog(
        f"{name}-flow-log",
        vpc_id=vpc_id,
        traffic_type=spec.traffic,
        log_destination=group.arn,
        iam_role_arn=role.arn,
        tags={**settings.tags, "Name": f"{name}-flow-log"},
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[leave]),
    )
