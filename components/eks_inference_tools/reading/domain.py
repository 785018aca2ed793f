"""What this command knows beside the resources of a stack: EKS clusters and nodes, and the models that run on them."""

from collections.abc import Iterator, Mapping

from eks_inference_tools.reading.dangers import dangers
from eks_inference_tools.reading.overview import overview_of
from eks_inference_tools.reading.sections import sections
from eks_inference_tools.reading.words import WORDS, cluster_version, node_traits, nodes
from eks_inference_tools.reading.workloads import requested
from stackgraph.diff.domain import ComparedDomain
from stackgraph.graph.document import Graph
from stackgraph.graph.values import joined


def compared(graph: Graph) -> Mapping[str, str]:
    """What a comparison shows before and after: texts by what they are about."""
    return dict(_compared(graph))


def _compared(graph: Graph) -> Iterator[tuple[str, str]]:
    facts = overview_of(graph)
    for cluster in facts.clusters:
        yield f"cluster {cluster.name}", joined(cluster_version(cluster), cluster.access, by=", ")
    for capacity in facts.capacity:
        yield f"nodes {capacity.name}", joined(nodes(capacity), *node_traits(capacity), by=", ")
    for resource, amount in requested(facts.workloads).items():
        yield f"{resource} asked for", str(amount)
    for model in facts.models:
        settings = (f"{key} {value}" for key, value in model.settings.items())
        yield f"model of {model.owner}", joined(model.model, *settings, by=", ")
    for workload in facts.workloads:
        if workload.accelerators:
            asks = (f"{amount} {resource.rpartition('/')[2]}" for resource, amount in workload.accelerators.items())
            yield workload.title, joined(f"{workload.replicas or '?'} × ({', '.join(asks)})", *workload.images, by=", ")


EKS = ComparedDomain(words=WORDS, sections=sections, facts_title="Clusters, nodes, models", facts=compared, dangers=dangers)
"""For every view and comparison of this command."""
