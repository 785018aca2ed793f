"""The EKS domain of stackgraph's views and comparisons: words, sections, facts, dangers, cost, time."""

from collections.abc import Iterable, Iterator, Mapping

from eks_inference_tools.cost import compared as cost
from eks_inference_tools.cost.estimate import Estimate, estimate
from eks_inference_tools.cost.overrides import prices_of
from eks_inference_tools.cost.price_book import OwnPrices, PriceBook
from eks_inference_tools.cost.sections import cost_section
from eks_inference_tools.reading.dangers import dangers
from eks_inference_tools.reading.overview import overview_of
from eks_inference_tools.reading.sections import sections
from eks_inference_tools.reading.titles import COST, TITLES
from eks_inference_tools.reading.words import WORDS, cluster_version, node_traits, nodes
from eks_inference_tools.reading.workloads import requested
from stackgraph.diff.domain import ComparedDomain, Danger
from stackgraph.diff.graphs import StackDiff
from stackgraph.domain import Chart, Section
from stackgraph.graph.document import Graph
from stackgraph.graph.values import joined


def eks(prices: OwnPrices | None = None) -> ComparedDomain:
    """The domain of every view and comparison of this command. ``prices`` come before those of the stack and the catalog."""

    def estimated(graph: Graph) -> Estimate:
        return estimate(graph, PriceBook((prices or {}, prices_of(graph))))

    def shown(graph: Graph) -> Iterator[Section]:
        yield from sections(graph)
        yield cost_section(graph, estimated(graph))

    def cost_change(before: Graph | None, after: Graph | None) -> str:
        return cost.change(estimated(before) if before else None, estimated(after) if after else None)

    def dangerous(diff: StackDiff) -> Iterable[Danger]:
        yield from dangers(diff)
        if diff.base and diff.head:
            yield from cost.dangers(estimated(diff.base), estimated(diff.head))

    return ComparedDomain(
        words=WORDS,
        sections=shown,
        chart=_chart,
        titles=TITLES,
        facts=compared,
        dangers=dangerous,
        measures={COST: cost_change},
    )


def _chart(graph: Graph) -> Chart | None:
    # Only a page needs it.
    from eks_inference_tools.timeline.chart import chart

    return chart(graph)


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


EKS = eks()
