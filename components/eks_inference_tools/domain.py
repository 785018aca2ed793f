"""The EKS domain of stackgraph's views and comparisons: words, sections, facts, dangers, cost, time."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from eks_inference_tools.cost import compared as cost
from eks_inference_tools.cost.estimate import estimated
from eks_inference_tools.cost.per_token import Rate
from eks_inference_tools.cost.price_book import OwnPrices
from eks_inference_tools.cost.sections import cost_section
from eks_inference_tools.notes import notes
from eks_inference_tools.reading.dangers import dangers
from eks_inference_tools.reading.overview import overview_of
from eks_inference_tools.reading.sections import sections
from eks_inference_tools.reading.titles import COST, TIME, TITLES
from eks_inference_tools.reading.words import WORDS, cluster_version, node_traits, nodes
from eks_inference_tools.reading.workloads import requested
from eks_inference_tools.timeline.comparing import change
from eks_inference_tools.timeline.section import time_section
from eks_inference_tools.timeline.timeline import timeline
from stackgraph.diff.domain import ComparedDomain, Danger
from stackgraph.diff.graphs import StackDiff
from stackgraph.domain import Chart, Section
from stackgraph.graph.document import Graph
from stackgraph.graph.values import joined

_Found = TypeVar("_Found")


def eks(prices: OwnPrices | None = None, measured: Sequence[Rate] = ()) -> ComparedDomain:
    """The domain of a view or comparison of this command. It keeps the graphs that it saw.

    ``prices`` are those of ``estimated``; ``measured`` are rates of load tests.
    """

    costs = _once(lambda graph: estimated(graph, prices))
    times = _once(timeline)

    def shown(graph: Graph) -> Iterator[Section]:
        yield from sections(graph)
        yield cost_section(graph, costs(graph), measured)
        yield time_section(times(graph))

    def cost_change(before: Graph | None, after: Graph | None) -> str:
        return cost.change(costs(before) if before else None, costs(after) if after else None)

    def time_change(before: Graph | None, after: Graph | None) -> str:
        return change(times(before) if before else None, times(after) if after else None)

    def dangerous(diff: StackDiff) -> Iterable[Danger]:
        yield from dangers(diff)
        if diff.base and diff.head:
            yield from cost.dangers(costs(diff.base), costs(diff.head))

    return ComparedDomain(
        words=WORDS,
        sections=shown,
        notes=lambda graph: notes(costs(graph), times(graph)),
        chart=_chart,
        titles=TITLES,
        facts=compared,
        dangers=dangerous,
        measures={COST: cost_change, TIME: time_change},
    )


def _chart(graph: Graph) -> Chart | None:
    # Only a page needs it.
    from eks_inference_tools.timeline.chart import chart

    return chart(graph)


def _once(function: Callable[[Graph], _Found]) -> Callable[[Graph], _Found]:
    """Returns the function so that it works once for each graph, however many parts of a view ask."""
    found: dict[int, tuple[Graph, _Found]] = {}

    def of(graph: Graph) -> _Found:
        if id(graph) not in found:
            found[id(graph)] = (graph, function(graph))
        return found[id(graph)][1]

    return of


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
