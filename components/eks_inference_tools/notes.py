"""The lines above every view: what a stack costs, how long it takes, what its servers take. Apart from what draws."""

from collections.abc import Iterator

from eks_inference_tools.cost.estimate import Estimate, estimated
from eks_inference_tools.cost.money import summary as cost
from eks_inference_tools.cost.price_book import OwnPrices
from eks_inference_tools.cost.served_traffic import traffic
from eks_inference_tools.timeline.durations import summary as time
from eks_inference_tools.timeline.timeline import Timeline, timeline
from stackgraph.graph.document import Graph


def notes(graph: Graph, estimate: Estimate, course: Timeline) -> Iterator[str]:
    """Yields the lines."""
    yield from cost(estimate)
    yield from time(course)
    yield from (f"{name}: {said}" for name, said in traffic(graph, estimate))


def notes_of(graph: Graph, prices: OwnPrices) -> Iterator[str]:
    """Yields the lines about a graph. ``prices`` come before those of the stack and the catalog."""
    return notes(graph, estimated(graph, prices), timeline(graph))
