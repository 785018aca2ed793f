"""The EKS domain of stackgraph's views and comparisons: words, sections, facts and dangers."""

from collections.abc import Iterator, Mapping

from eks_inference_tools.reading.dangers import dangers
from eks_inference_tools.reading.overview import overview_of
from eks_inference_tools.reading.sections import sections
from eks_inference_tools.reading.titles import FACTS, FINDINGS
from eks_inference_tools.reading.words import WORDS, cluster_version, node_traits, nodes
from eks_inference_tools.reading.workloads import requested
from stackgraph.diff.domain import ComparedDomain
from stackgraph.graph.document import Graph
from stackgraph.graph.values import joined


def compared(graph: Graph) -> Mapping[str, str]:
    """The facts that a comparison shows before and after, by subject."""
    return dict(_compared(graph))


def _compared(graph: Graph) -> Iterator[tuple[str, str]]:
    facts = overview_of(graph)
    for cluster in facts.clusters:
        yield f"cluster {cluster.name}", joined(cluster_version(cluster), cluster.access, by=", ")
    for capacity in facts.capacity:
        yield f"nodes {capacity.name}", joined(nodes(capacity), *node_traits(capacity), by=", ")
    for resource, amount in requested(facts.workloads).items():
        yield f"{resource} requested", str(amount)
    for model in facts.models:
        settings = (f"{key} {value}" for key, value in model.settings.items())
        yield f"model of {model.owner}", joined(model.model, *settings, by=", ")
    for workload in facts.workloads:
        if workload.accelerators:
            asks = (f"{amount} {resource.rpartition('/')[2]}" for resource, amount in workload.accelerators.items())
            yield workload.title, joined(f"{workload.replicas or '?'} × ({', '.join(asks)})", *workload.images, by=", ")


EKS = ComparedDomain(
    words=WORDS,
    sections=sections,
    facts_title=FACTS,
    facts=compared,
    dangers=dangers,
    findings_title=FINDINGS,
)
"""The domain of every view and comparison of this command."""
