"""Rules about the network of nodes (EKS006), and about images in a network without a route to the internet (NET006)."""

from collections.abc import Iterator

from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts, walk
from eks_inference_tools.reading.machines import SUBNET_TYPE
from eks_inference_tools.reading.node_groups import NODE_GROUP_TYPE
from eks_inference_tools.reading.node_pools import NODE_CLASS_TYPE
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.values import at, items, text

_VPC_TYPE = "aws:ec2/vpc:Vpc"


@rule(
    "EKS006",
    "Nodes are in the VPC of their cluster.",
    fix="pass the pool the network that the cluster was made in",
    source="EKS API, CreateNodegroup: subnets; EKS user guide, VPC and subnet requirements: nodes are in the cluster's VPC",
)
def nodes_are_in_the_vpc(facts: GraphFacts) -> Iterator[Judgement]:
    if len(facts.clusters) != 1:
        return
    graph = facts.graph
    expected = _vpcs(graph, facts.clusters[0])
    for nodes in (resource for type_ in (NODE_GROUP_TYPE, NODE_CLASS_TYPE) for resource in graph.of_type(type_)):
        found = _vpcs(graph, nodes)
        # What the program does not make is not known to be the same, or another.
        if found and expected:
            theirs, ours = (", ".join(sorted(graph.by_urn[urn].name for urn in urns)) for urns in (found, expected))
            yield Judgement(
                holds=found == expected,
                path=(),
                working=(f"{nodes.name}: {theirs}; cluster {facts.clusters[0].name}: {ours}",),
                message=f"{nodes.name} starts nodes in another VPC than the cluster's: they never join",
                given=theirs,
                allowed=ours,
                resource=nodes.urn,
            )


def _vpcs(graph: Graph, resource: Resource) -> set[str]:
    """Returns the VPCs that a resource names, or that its subnets are in, among those that the program makes."""
    named = {urn for urns in resource.property_dependencies.values() for urn in urns}
    named |= {
        urn
        for subnet in (graph.by_urn[one] for one in named if one in graph.by_urn)
        if subnet.type == SUBNET_TYPE
        for urn in subnet.property_dependencies.get("vpcId", ())
    }
    return {urn for urn in named if urn in graph.by_urn and graph.by_urn[urn].type == _VPC_TYPE}


# A registry that is not listed may be in reach of the VPC.
_PUBLIC = ("docker.io", "gcr.io", "ghcr.io", "mcr.microsoft.com", "nvcr.io", "public.ecr.aws", "quay.io", "registry.k8s.io")

_ROUTES_OUT = ("carrierGatewayId", "coreNetworkArn", "localGatewayId", "natGatewayId", "networkInterfaceId", "transitGatewayId")
"""Targets of a default route of private subnets, besides peering, which is not transitive."""

_ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"


@rule(
    "NET006",
    "In a network without internet, images come from a registry within its reach.",
    fix="copy the images into ECR of the region or another registry in reach, and name it in mirrors",
    source="Amazon ECR user guide, interface VPC endpoints: private repositories of the region; without a host, an image is on "
    "docker.io (distribution/reference)",
)
def images_are_in_reach(facts: GraphFacts) -> Iterator[Judgement]:
    if not _cut_off(facts):
        return
    regions = {
        part[2] for one in facts.graph.of_type(_ENDPOINT) if len(part := text(one.inputs.get("serviceName")).split(".")) > 3
    }
    found = {image: (title, pod.urn) for pod, container, title in facts.containers if (image := container.image)}
    for chart in facts.charts:
        for path, value in walk(chart.values):
            if path[-1] == "repository":
                registry = text(at(chart.values, *path[:-1], "registry"))
                image = f"{registry}/{text(value)}" if registry else text(value)
                found.setdefault(image, (f"chart {chart.resource.name}: {'.'.join(path[:-1])}", chart.resource.urn))
    for image, (title, urn) in sorted(found.items()):
        host = _registry(image)
        where = "in another region" if ".dkr.ecr." in host else "on the internet"
        elsewhere = ".dkr.ecr." in host and not any(f".dkr.ecr.{region}." in host for region in regions)
        yield Judgement(
            holds=host not in _PUBLIC and not elsewhere,
            path=(),
            working=(f"{title}: {image}",),
            message=f"{title}: {host} is {where}, and the nodes have no way there",
            given=image,
            resource=urn,
        )


def _registry(image: str) -> str:
    """The first part of a path is a host if it has a dot or a port (distribution/reference); ``nginx:1.27`` is only a name."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"


def _cut_off(facts: GraphFacts) -> bool:
    """Whether the program makes the network of the cluster, and its nodes have no way to the internet."""
    graph = facts.graph
    inside = {vpc.urn for vpc in graph.of_type("aws:ec2/vpc:Vpc") if not is_read(vpc)}
    inside &= {urn for cluster in facts.clusters for urn in _needs(graph, cluster)}
    if not inside:
        return False

    def within(type_: str) -> Iterator[Resource]:
        return (resource for resource in graph.of_type(type_) if inside & _needs(graph, resource))

    tables = within("aws:ec2/routeTable:RouteTable")
    routes = [
        *(route.inputs for route in within("aws:ec2/route:Route")),
        *(route for table in tables for route in items(table.inputs.get("routes"))),
    ]
    public = any(at(subnet.inputs, "mapPublicIpOnLaunch") for subnet in within("aws:ec2/subnet:Subnet"))
    return not public and not any(at(route, way) for route in routes for way in _ROUTES_OUT)


def _needs(graph: Graph, resource: Resource) -> set[str]:
    """The URNs of everything that a resource depends on."""
    found: set[str] = set()
    todo = [resource]
    while todo:
        one = todo.pop()
        new = {*one.dependencies, *(urn for urns in one.property_dependencies.values() for urn in urns)} - found
        found |= new
        todo += [graph.by_urn[urn] for urn in new if urn in graph.by_urn]
    return found
