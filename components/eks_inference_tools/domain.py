"""The EKS domain of stackgraph's views: words, sections, cost and time. ``comparison.py`` adds what a comparison needs."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from eks_inference_tools.alternatives import places_section
from eks_inference_tools.cost.cost_section import cost_section
from eks_inference_tools.cost.estimate import Estimate, Rate, estimated
from eks_inference_tools.cost.price_book import OwnPrices
from eks_inference_tools.cost.served_traffic import traffic_section
from eks_inference_tools.notes import notes
from eks_inference_tools.reading.cluster_words import WORDS
from eks_inference_tools.reading.stack_sections import sections
from eks_inference_tools.timeline.document import time_section
from eks_inference_tools.timeline.timeline import Timeline, timeline
from stackgraph.domain import Chart, Domain, Section
from stackgraph.graph.document import Graph

_Found = TypeVar("_Found")


class Figures:
    """What graphs cost and how long they take, each worked out once, however many parts of a view ask. It keeps the graphs.

    ``prices`` come before those of the stack and the catalog.
    """

    def __init__(self, prices: OwnPrices | None = None) -> None:
        self.cost: Callable[[Graph], Estimate] = _once(lambda graph: estimated(graph, prices))
        self.time: Callable[[Graph], Timeline] = _once(timeline)


def eks(prices: OwnPrices | None = None, measured: Sequence[Rate] = ()) -> Domain:
    """The domain of a view. ``prices`` are those of ``Figures``, ``measured`` are rates of load tests."""
    figures = Figures(prices)

    def shown(graph: Graph) -> Iterator[Section]:
        yield from sections(graph)
        yield cost_section(graph, figures.cost(graph), measured)
        yield traffic_section(graph, figures.cost(graph))
        yield time_section(figures.time(graph))
        yield places_section(graph, figures)

    def chart(graph: Graph) -> Chart | None:
        # Only a page needs it.
        from eks_inference_tools.timeline.document import chart

        return chart(figures.time(graph))

    return Domain(
        words=WORDS,
        sections=shown,
        notes=lambda graph: notes(graph, figures.cost(graph), figures.time(graph)),
        chart=chart,
    )


def _once(function: Callable[[Graph], _Found]) -> Callable[[Graph], _Found]:
    """Returns the function so that it works once for each graph, however many parts of a view ask."""
    found: dict[int, tuple[Graph, _Found]] = {}

    def of(graph: Graph) -> _Found:
        if id(graph) not in found:
            found[id(graph)] = (graph, function(graph))
        return found[id(graph)][1]

    return of
