"""EKS clusters of a graph. Pure."""

from dataclasses import dataclass
from typing import Any

from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, text, texts

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
        access=_access(*(at(network, key) for key in keys)),
    )


def _access(private: Any, public: Any, cidrs: Any) -> str:
    """Who can reach a cluster's API; public is what EKS does unless told otherwise."""
    if is_token(private) or is_token(public):
        return "endpoint access unknown"
    reach = ["private"] if private else []
    if public is None or public:
        reach.append(f"public to {', '.join(texts(cidrs)) or '0.0.0.0/0'}")
    return f"endpoint {' and '.join(reach)}" if reach else ""
