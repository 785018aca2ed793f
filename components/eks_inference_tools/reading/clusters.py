"""EKS clusters of a graph. Pure."""

from dataclasses import dataclass

from eks_inference_tools.reading.words import endpoint_access
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.values import at, text

CLUSTER_TYPE = "aws:eks/cluster:Cluster"
REMOTE_CLUSTER_TYPE = "eks:index:Cluster"


@dataclass(frozen=True)
class Cluster:
    """An EKS control plane."""

    urn: str
    name: str
    version: str
    access: str
    """Who reaches its API, in words."""


def clusters(graph: Graph) -> tuple[Cluster, ...]:
    """The clusters that the graph makes."""
    return tuple(_cluster(resource) for resource in cluster_resources(graph))


def cluster_resources(graph: Graph) -> tuple[Resource, ...]:
    return tuple(r for r in graph.resources if r.type in (CLUSTER_TYPE, REMOTE_CLUSTER_TYPE) and not is_read(r))


def _cluster(resource: Resource) -> Cluster:
    network = resource.inputs if resource.type == REMOTE_CLUSTER_TYPE else resource.inputs.get("vpcConfig")
    keys = ("endpointPrivateAccess", "endpointPublicAccess", "publicAccessCidrs")
    return Cluster(
        urn=resource.urn,
        name=text(resource.inputs.get("name")) or text(resource.name),
        version=text(resource.inputs.get("version")),
        access=endpoint_access(*(at(network, key) for key in keys)),
    )
