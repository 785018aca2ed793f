"""The EKS domain of stackgraph's comparisons: facts, dangers, and what a change does to the cost."""

from collections.abc import Iterable, Iterator

from eks_inference_tools.alternatives import places
from eks_inference_tools.cost import money as cost
from eks_inference_tools.cost.estimate import Estimate
from eks_inference_tools.cost.money import leaves_budget
from eks_inference_tools.cost.price_book import OwnPrices
from eks_inference_tools.cost.served_traffic import traffic
from eks_inference_tools.domain import Figures
from eks_inference_tools.reading.clients import addresses, seen_by_clients
from eks_inference_tools.reading.cluster_words import WORDS, cluster_version, node_traits, nodes
from eks_inference_tools.reading.dangers import cluster_is_refused, dangers, resolved_otherwise
from eks_inference_tools.reading.served_models import requested
from eks_inference_tools.reading.stack_sections import overview_of
from eks_inference_tools.reading.titles import COST, TITLES
from eks_inference_tools.timeline.beside import Beside
from eks_inference_tools.timeline.outages import outages
from stackgraph.diff.comparison_domain import ComparedDomain, Danger
from stackgraph.diff.graphs import StackDiff
from stackgraph.graph.document import Graph
from stackgraph.graph.values import grouped, joined


def eks_compared(prices: OwnPrices | None = None) -> ComparedDomain:
    """The domain of a comparison. ``prices`` are those of ``Figures``."""
    figures = Figures(prices)

    def cost_change(before: Graph | None, after: Graph | None) -> str:
        return cost.change(*(figures.cost(graph) if graph else None for graph in (before, after)))

    def dangerous(diff: StackDiff) -> Iterable[Danger]:
        if diff.base and diff.head and diff.changed:
            now = figures.cost(diff.head)
            if not cluster_is_refused(diff):
                found = outages(diff, figures.time(diff.base), figures.time(diff.head), Beside(diff, diff.head, now))
                yield from seen_by_clients(diff, found)
                yield from addresses(diff)
            yield from cost.dangers(figures.cost(diff.base), now)
            yield from leaves_budget(diff.base, diff.head, figures.cost(diff.base), now)
        yield from dangers(diff)
        yield from resolved_otherwise(diff)

    return ComparedDomain(
        words=WORDS,
        titles=TITLES,
        facts=lambda graph: facts(graph, figures.cost(graph)) | places_by_server(graph, figures),
        dangers=dangerous,
        measures={COST: cost_change},
    )


def places_by_server(graph: Graph, figures: Figures) -> dict[str, str]:
    """Where the pods of servers with several places run, in order, with what the stack then costs."""
    found = grouped((f"places of {place.server}", place.words()) for place in places(graph, figures))
    return {server: "; else ".join(words) for server, words in found.items()}


def facts(graph: Graph, estimate: Estimate) -> dict[str, str]:
    """The facts that a comparison shows before and after, by subject."""
    return dict([*_facts(graph), *traffic(graph, estimate)])


def _facts(graph: Graph) -> Iterator[tuple[str, str]]:
    overview = overview_of(graph)
    for cluster in overview.clusters:
        yield f"cluster {cluster.name}", joined(cluster_version(cluster), cluster.access, by=", ")
    for capacity in overview.capacity:
        yield f"nodes {capacity.name}", joined(nodes(capacity), *node_traits(capacity), by=", ")
    for resource, amount in requested(overview.workloads).items():
        yield f"{resource} requested", str(amount)
    for model in overview.models:
        settings = (f"{key} {value}" for key, value in model.settings.items())
        yield f"model of {model.owner}", joined(model.model, *settings, by=", ")
    for workload in overview.workloads:
        if workload.accelerators:
            asks = (f"{amount} {resource.rpartition('/')[2]}" for resource, amount in workload.accelerators.items())
            yield workload.title, joined(f"{workload.replicas or '?'} × ({', '.join(asks)})", *workload.images, by=", ")
