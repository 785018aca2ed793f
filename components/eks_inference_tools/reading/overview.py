"""What a platform engineer looks for in a graph: clusters, nodes, workloads, models, endpoints, charts. Pure."""

from dataclasses import dataclass

from eks_inference_tools.reading.capacity import NodeCapacity, node_capacity
from eks_inference_tools.reading.clusters import Cluster, clusters
from eks_inference_tools.reading.endpoints import Endpoint, endpoints
from eks_inference_tools.reading.models import ModelFact, models
from eks_inference_tools.reading.workloads import Workload, workloads
from stackgraph.graph.describe import CHART_TYPE, describe, short_type
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import joined, text


@dataclass(frozen=True)
class Opaque:
    """A chart or remote component: how many objects it makes, only a plugin or a cluster knows."""

    urn: str
    kind: str
    """``chart`` or ``remote component``."""
    type: str
    name: str
    detail: str = ""


@dataclass(frozen=True)
class Overview:
    """All of it."""

    clusters: tuple[Cluster, ...]
    capacity: tuple[NodeCapacity, ...]
    workloads: tuple[Workload, ...]
    models: tuple[ModelFact, ...]
    endpoints: tuple[Endpoint, ...]
    opaque: tuple[Opaque, ...]


def overview_of(graph: Graph) -> Overview:
    """The overview of a graph. Never fails on values that are secret, unknown or of an unexpected kind."""
    running = workloads(graph)
    return Overview(
        clusters=clusters(graph),
        capacity=node_capacity(graph),
        workloads=running,
        models=tuple(models(graph, running)),
        endpoints=endpoints(graph),
        opaque=tuple(opaque(resource) for resource in graph.opaque),
    )


def opaque(resource: Resource) -> Opaque:
    """What is known of a resource whose inside is not."""
    kind, detail = "remote component", describe(resource)
    if resource.type == CHART_TYPE:
        namespace = text(resource.inputs.get("namespace"))
        kind, detail = "chart", joined(detail, f"in {namespace}" if namespace else "")
    return Opaque(resource.urn, kind, short_type(resource.type), text(resource.name), detail)
