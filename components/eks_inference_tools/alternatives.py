"""What a stack costs, and when a server answers first, at each place of its pods: while those before have no capacity. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from eks_inference.place.placement import INSTANCE_TYPE_LABEL, POOL_LABEL
from eks_inference_tools.cost.estimate import TEMPLATE, Estimate, Total, moved
from eks_inference_tools.cost.money import total as dollars
from eks_inference_tools.cost.needed_quotas import needs
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.timeline.durations import spread, total
from eks_inference_tools.timeline.timeline import End, Timeline
from stackgraph.domain import Listing, Part, Row, Section
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at

_SECONDS = dict.fromkeys(("low", "p50", "high"), int)
SHAPE = [{"server": str, "where": str, "quotas": [str], "answersSeconds": _SECONDS, "perHour": float, "atLeast": bool}]
"""``places`` of `preview`."""


class Figures(Protocol):
    """What graphs cost and how long they take."""

    cost: Callable[[Graph], Estimate]
    time: Callable[[Graph], Timeline]


@dataclass(frozen=True)
class Place:
    """A place of the pods of a server, with the cost of the stack as deployed while they are there."""

    server: str
    where: str
    usd_per_hour: Total
    answers: End
    quotas: tuple[str, ...]
    """What the account needs of quotas for nodes with accelerators."""

    def document(self) -> Mapping[str, Any]:
        """The place as plain data, for JSON."""
        end, cost = self.answers, self.usd_per_hour
        seconds = {each: round(getattr(end, each)) for each in _SECONDS}
        known = {"server": self.server, "where": self.where, "quotas": list(self.quotas), "answersSeconds": seconds}
        return {**known, "perHour": round(cost.usd_per_hour, 6), "atLeast": bool(cost.at_least or end.untimed)}

    def words(self) -> str:
        return f"{self.where}: {dollars(self.usd_per_hour)}/h, first answer after {total(self.answers)}"


def places(graph: Graph, figures: Figures) -> Iterator[Place]:
    """Yields the places of servers with several, in the order in which their pods take them."""
    for urn, server in figures.time(graph).servers.items():
        resource = graph.by_urn[urn]
        found = PodSpec(at(resource.inputs, *TEMPLATE)).places
        for pod_spec in found if len(found) > 1 else ():
            there = moved(graph, resource, pod_spec)
            (answers,) = (end for end in figures.time(there).answers if end.name == server)
            labels = dict(pod_spec.chosen_labels())
            where = f"{labels.get(INSTANCE_TYPE_LABEL, 'nodes')} of {labels.get(POOL_LABEL, 'the cluster')}"
            cost = figures.cost(there)
            quotas = (" of ".join(need.cells[1::-1]) for need in needs(there, cost) if need.quota and need.quota.families)
            yield Place(server, where, cost.totals[1], answers, tuple(quotas))


def places_section(graph: Graph, figures: Figures) -> Section:
    """A row for each place."""
    rows = [
        (one.server, one.where, dollars(one.usd_per_hour), total(one.answers), spread(one.answers), ", ".join(one.quotas))
        for one in places(graph, figures)
    ]
    header = ("Pods of", "Run on, in this order", "Stack per hour", "First answer", "Seen", "Quota")
    cells = [[(Part((text,)),) for text in row] for row in rows]
    lines = [Row(row[:-1], {"needs": row[-1:]}) for row in rows]
    return Section("Alternatives", [Listing(tuple(map(str.upper, header[:-1])), lines)], header, cells)
