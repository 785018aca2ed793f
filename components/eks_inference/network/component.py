"""``Vpc``: a network for an EKS cluster, from scratch."""

from collections.abc import Sequence
from ipaddress import IPv4Network

import pulumi
import pulumi_aws as aws

from eks_inference.network.handle import Subnet
from eks_inference.network.plan import ZonePlan, network_zones, plan_subnets
from eks_inference.network.spec import Endpoint, NetworkSpec
from eks_inference.settings import StackSettings

_ANYWHERE = "0.0.0.0/0"
_SERVICES: dict[Endpoint, tuple[str, ...]] = {"ecr": ("ecr.api", "ecr.dkr")}
"""The services of endpoints that are not named as their one service is."""


class Vpc(pulumi.ComponentResource):
    """A VPC with subnets by zone id, an internet gateway, NAT gateways and endpoints as the spec asks; implements ``Network``.

    Every private subnet has a route table of its own, so that changing ``nat`` between single and per zone rewrites routes and
    moves no subnet. The default security group is emptied: nothing here uses it, and anything that does by mistake should not
    work. Subnets carry the tags that load balancer controllers look for (``kubernetes.io/role/elb``,
    ``kubernetes.io/role/internal-elb``) and, when ``cluster_name`` is given, private ones ``karpenter.sh/discovery``.

    ``families`` are the instance families (``inf2``, ``m5``) that will run in it; they choose the zones when the spec names none.
    ``ready`` holds what a node's way out consists of; NAT gateways wait for the public side, so it need not be listed.

    Raises ``SpecError`` when EKS would refuse a zone, or no choice of zones offers every family.
    """

    vpc_id: pulumi.Output[str]
    cidr: str
    """Address range of the whole VPC."""
    private_subnets: Sequence[Subnet]
    public_subnets: Sequence[Subnet]
    ready: Sequence[pulumi.Resource]

    def __init__(
        self,
        name: str,
        spec: NetworkSpec,
        *,
        settings: StackSettings,
        cluster_name: str | None = None,
        families: Sequence[str] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        zone_ids = network_zones(settings.region, families, wanted=spec.zone_ids, count=spec.zones)
        inputs = spec.model_dump(mode="json", exclude={"zones"}) | {"zone_ids": list(zone_ids)}
        super().__init__("eks-inference:index:Vpc", name, inputs, opts)
        self._prefix = name
        self._tags = settings.tags
        self.cidr = spec.cidr
        plans = plan_subnets(spec.cidr, zone_ids, public=spec.public_subnets)

        vpc = aws.ec2.Vpc(
            f"{name}-vpc",
            cidr_block=spec.cidr,
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=self._tagged("vpc"),
            opts=pulumi.ResourceOptions(parent=self, protect=settings.protect or None),
        )
        self.vpc_id = vpc.id
        aws.ec2.DefaultSecurityGroup(
            f"{name}-default-security-group",
            vpc_id=vpc.id,
            tags=self._tagged("default-unused"),
            opts=pulumi.ResourceOptions(parent=self),
        )

        public, public_ready = self._public_side(plans) if spec.public_subnets else ({}, [])
        gateways = self._nat_gateways(spec.nat, public, public_ready)
        private, tables, private_ready = self._private_side(plans, gateways, cluster_name)
        endpoints = self._endpoints(settings.region, spec.endpoints, private, tables)

        self.public_subnets = tuple(Subnet(zone_id, subnet.id) for zone_id, subnet in public.items())
        self.private_subnets = tuple(Subnet(zone_id, subnet.id) for zone_id, subnet in private.items())
        # With NAT the private routes already come after the public side; without it the endpoints are the way out.
        self.ready = (*private_ready, *(() if gateways else (*public_ready, *endpoints)))
        self.register_outputs(
            {
                "vpcId": self.vpc_id,
                "privateSubnetIds": [subnet.id for subnet in private.values()],
                "publicSubnetIds": [subnet.id for subnet in public.values()],
            }
        )

    def _public_side(self, plans: Sequence[ZonePlan]) -> tuple[dict[str, aws.ec2.Subnet], list[pulumi.Resource]]:
        """Public subnets by zone, and what gives them the internet."""
        gateway = aws.ec2.InternetGateway(
            f"{self._prefix}-internet-gateway",
            vpc_id=self.vpc_id,
            tags=self._tagged("internet-gateway"),
            opts=pulumi.ResourceOptions(parent=self),
        )
        table = aws.ec2.RouteTable(
            f"{self._prefix}-public-routes",
            vpc_id=self.vpc_id,
            tags=self._tagged("public"),
            opts=pulumi.ResourceOptions(parent=self),
        )
        route = aws.ec2.Route(
            f"{self._prefix}-public-internet",
            route_table_id=table.id,
            destination_cidr_block=_ANYWHERE,
            gateway_id=gateway.id,
            opts=pulumi.ResourceOptions(parent=self),
        )
        subnets: dict[str, aws.ec2.Subnet] = {}
        ready: list[pulumi.Resource] = [route]
        for plan in plans:
            if plan.public is None:
                continue
            role = f"public-{plan.zone_id}"
            subnets[plan.zone_id] = self._subnet(role, plan.zone_id, plan.public, {"kubernetes.io/role/elb": "1"})
            ready.append(self._association(role, subnets[plan.zone_id], table))
        return subnets, ready

    def _nat_gateways(
        self, nat: str, public: dict[str, aws.ec2.Subnet], public_ready: Sequence[pulumi.Resource]
    ) -> dict[str, aws.ec2.NatGateway]:
        """The NAT gateway each zone uses: one for all in the first zone, one each, or none."""
        gateways: dict[str, aws.ec2.NatGateway] = {}
        for zone_id in public:
            if nat == "none":
                break
            if nat == "single" and gateways:
                gateways[zone_id] = next(iter(gateways.values()))
                continue
            address = aws.ec2.Eip(
                f"{self._prefix}-nat-{zone_id}-address",
                domain="vpc",
                tags=self._tagged(f"nat-{zone_id}"),
                # An address can only be released after its gateway, and mapped while the VPC has an internet gateway.
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
        """Private subnets by zone, their route tables, and what gives them a way out."""
        tags = {"kubernetes.io/role/internal-elb": "1"} | ({"karpenter.sh/discovery": cluster_name} if cluster_name else {})
        subnets: dict[str, aws.ec2.Subnet] = {}
        tables: list[aws.ec2.RouteTable] = []
        ready: list[pulumi.Resource] = []
        for plan in plans:
            role = f"private-{plan.zone_id}"
            subnets[plan.zone_id] = self._subnet(role, plan.zone_id, plan.private, tags)
            table = aws.ec2.RouteTable(
                f"{self._prefix}-{role}-routes",
                vpc_id=self.vpc_id,
                tags=self._tagged(role),
                opts=pulumi.ResourceOptions(parent=self),
            )
            tables.append(table)
            ready.append(self._association(role, subnets[plan.zone_id], table))
            if plan.zone_id in gateways:
                route = aws.ec2.Route(
                    f"{self._prefix}-{role}-internet",
                    route_table_id=table.id,
                    destination_cidr_block=_ANYWHERE,
                    nat_gateway_id=gateways[plan.zone_id].id,
                    opts=pulumi.ResourceOptions(parent=self),
                )
                ready.append(route)
        return subnets, tables, ready

    def _endpoints(
        self,
        region: str,
        wanted: Sequence[Endpoint],
        private: dict[str, aws.ec2.Subnet],
        tables: Sequence[aws.ec2.RouteTable],
    ) -> list[pulumi.Resource]:
        """A gateway endpoint for S3; interface endpoints in every private subnet, under the services' usual names."""
        made: list[pulumi.Resource] = []
        if "s3" in wanted:
            gateway = aws.ec2.VpcEndpoint(
                f"{self._prefix}-endpoint-s3",
                vpc_id=self.vpc_id,
                service_name=f"com.amazonaws.{region}.s3",
                vpc_endpoint_type="Gateway",
                route_table_ids=[table.id for table in tables],
                tags=self._tagged("s3"),
                opts=pulumi.ResourceOptions(parent=self),
            )
            made.append(gateway)
        interfaces = sorted(set(wanted) - {"s3"})
        services = [service for endpoint in interfaces for service in _SERVICES.get(endpoint, (endpoint,))]
        if not services:
            return made
        group = aws.ec2.SecurityGroup(
            f"{self._prefix}-endpoints-security-group",
            vpc_id=self.vpc_id,
            description="HTTPS from the VPC to its interface endpoints",
            ingress=[{"protocol": "tcp", "from_port": 443, "to_port": 443, "cidr_blocks": [self.cidr], "description": "VPC"}],
            tags=self._tagged("endpoints"),
            opts=pulumi.ResourceOptions(parent=self),
        )
        for service in services:
            endpoint = aws.ec2.VpcEndpoint(
                f"{self._prefix}-endpoint-{service.replace('.', '-')}",
                vpc_id=self.vpc_id,
                service_name=f"com.amazonaws.{region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=[subnet.id for subnet in private.values()],
                security_group_ids=[group.id],
                tags=self._tagged(service),
                opts=pulumi.ResourceOptions(parent=self),
            )
            made.append(endpoint)
        return made

    def _subnet(self, role: str, zone_id: str, block: IPv4Network, tags: dict[str, str]) -> aws.ec2.Subnet:
        return aws.ec2.Subnet(
            f"{self._prefix}-{role}",
            vpc_id=self.vpc_id,
            availability_zone_id=zone_id,
            cidr_block=str(block),
            map_public_ip_on_launch=False,
            tags=self._tagged(role) | tags,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _association(self, role: str, subnet: aws.ec2.Subnet, table: aws.ec2.RouteTable) -> aws.ec2.RouteTableAssociation:
        return aws.ec2.RouteTableAssociation(
            f"{self._prefix}-{role}-association",
            subnet_id=subnet.id,
            route_table_id=table.id,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _tagged(self, role: str) -> dict[str, str]:
        return {**self._tags, "Name": f"{self._prefix}-{role}"}
