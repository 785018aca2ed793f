"""Rule EKS006 about the network of nodes: whoever hands a pool a network as ids cannot be asked whether it is the cluster's."""

from collections.abc import Iterator

from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.machines import SUBNET_TYPE
from eks_inference_tools.reading.node_groups import NODE_GROUP_TYPE
from eks_inference_tools.reading.node_pools import NODE_CLASS_TYPE
from stackgraph.graph.document import Graph, Resource

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
    for nodes in (one for type_ in (NODE_GROUP_TYPE, NODE_CLASS_TYPE) for one in graph.of_type(type_)):
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
