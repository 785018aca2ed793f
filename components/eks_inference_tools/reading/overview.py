"""Collects what a platform engineer looks for in a graph: clusters, nodes, workloads, models, endpoints. Pure."""

from dataclasses import dataclass

from eks_inference_tools.reading.capacity import NodeCapacity, node_capacity
from eks_inference_tools.reading.clusters import Cluster, clusters
from eks_inference_tools.reading.endpoints import Endpoint, endpoints
from eks_inference_tools.reading.models import ModelFact, models
from eks_inference_tools.reading.parts import parts
from eks_inference_tools.reading.workloads import Workload, workloads
from stackgraph.graph.document import Graph


@dataclass(frozen=True)
class Overview:
    clusters: tuple[Cluster, ...]
    capacity: tuple[NodeCapacity, ...]
    workloads: tuple[Workload, ...]
    models: tuple[ModelFact, ...]
    endpoints: tuple[Endpoint, ...]


def overview_of(graph: Graph) -> Overview:
    """The overview of a graph. Accepts values that are secret, unknown or of an unexpected type."""
    graphs = [part.graph for part in parts(graph)]
    running = tuple(one for each in graphs for one in workloads(each))
    return Overview(
        clusters=clusters(graph),
        capacity=tuple({one.urn: one for each in graphs for one in node_capacity(each)}.values()),
        workloads=running,
        models=tuple(models(graph, running)),
        endpoints=tuple({one.urn: one for each in graphs for one in endpoints(each)}.values()),
    )
