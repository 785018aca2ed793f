"""Reads EKS clusters from a graph. Pure."""

from dataclasses import dataclass
from typing import Any

from eks_inference_tools.reading.scalars import is_true
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
    """Who can reach its API, in words."""


def clusters(graph: Graph) -> tuple[Cluster, ...]:
    """The clusters that the graph makes. Leaves out clusters that it only reads."""
    return tuple(_cluster(resource) for resource in cluster_resources(graph))


def cluster_resources(graph: Graph) -> tuple[Resource, ...]:
    return tuple(r for r in graph.resources if r.type in (CLUSTER_TYPE, REMOTE_CLUSTER_TYPE) and not is_read(r))


def is_auto(cluster: Resource) -> bool:
    """Whether EKS starts nodes for its pods (Auto Mode)."""
    return is_true(at(cluster.inputs, "autoMode" if cluster.type == REMOTE_CLUSTER_TYPE else "computeConfig", "enabled"))


def public_networks(cluster: Resource) -> tuple[str, ...] | None:
    """The networks from which the public API endpoint is reachable. Empty when it is off, None when that is unknown.

    By default, EKS makes the endpoint public to all networks.
    """
    public = at(_network(cluster), "endpointPublicAccess")
    if is_token(public):
        return None
    return texts(at(_network(cluster), "publicAccessCidrs")) or ("0.0.0.0/0",) if public is None or is_true(public) else ()


def _network(cluster: Resource) -> Any:
    return cluster.inputs if cluster.type == REMOTE_CLUSTER_TYPE else cluster.inputs.get("vpcConfig")


def _cluster(resource: Resource) -> Cluster:
    private, networks = at(_network(resource), "endpointPrivateAccess"), public_networks(resource)
    reach = [*(["private"] if private else []), *([f"public to {', '.join(networks)}"] if networks else [])]
    access = f"endpoint {' and '.join(reach)}" if reach else ""
    return Cluster(
        urn=resource.urn,
        name=text(resource.inputs.get("name")) or text(resource.name),
        version=text(resource.inputs.get("version")),
        access="endpoint access unknown" if networks is None or is_token(private) else access,
    )
