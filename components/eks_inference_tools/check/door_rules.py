"""Rules K8S… about interfaces that anybody could enter."""

from collections.abc import Iterator

from eks_inference.catalog.openings import Opening, openings
from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts, walk
from stackgraph.graph.values import at, text


@rule(
    "K8S017",
    "Web interfaces ask for a login, and charts open none to the internet.",
    severity="warning",
    fix="leave the setting out; reach the interface with kubectl port-forward, or put a login in front",
    source="catalog/openings.toml",
)
def doors_are_closed(facts: GraphFacts) -> Iterator[Judgement]:
    interfaces, values = openings("interface"), openings("chart")
    for pod, container, title in facts.containers:
        for name, value in container.environment:
            if row := interfaces.get(name):
                yield _door(title, name, value, row, open_=row.by(value), urn=pod.urn)
    for chart in facts.charts:
        for path, value in walk(chart.values):
            where, dotted = f"chart {chart.resource.name}", ".".join(path)
            for row in (row for end, row in values.items() if f".{dotted}".endswith(f".{end}")):
                beside = at(chart.values, *path[:-1])
                limited = text(value) == "LoadBalancer" and (at(beside, "loadBalancerSourceRanges") or at(beside, "annotations"))
                yield _door(where, dotted, text(value), row, open_=row.by(text(value)) and not limited, urn=chart.resource.urn)


def _door(where: str, key: str, value: str, row: Opening, *, open_: bool, urn: str) -> Judgement:
    given = text(f"{key}: {value}")
    return Judgement(
        holds=not open_,
        path=(),
        working=(f"{where}: {given}; {row.source}",),
        message=f"{where}: {given}: {row.opens}",
        given=given,
        resource=urn,
    )
