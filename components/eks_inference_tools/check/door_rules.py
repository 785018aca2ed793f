"""Rules K8S… about interfaces that anybody could enter."""

from collections.abc import Iterator

from eks_inference.catalog.openings import Opening, openings
from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts, walk
from eks_inference_tools.reading.objects import namespace_of
from eks_inference_tools.reading.scalars import is_true
from stackgraph.graph.values import at, text

_LOGIN = ("metadata", "annotations", "alb.ingress.kubernetes.io/auth-type")


@rule(
    "K8S017",
    "Web interfaces ask for a login, and charts open none to the internet.",
    severity="warning",
    fix="leave the setting out; reach the interface with kubectl port-forward, or put a login in front",
    source="catalog/openings.toml; an error where an Ingress without a login leads to the interface",
)
def doors_are_closed(facts: GraphFacts) -> Iterator[Judgement]:
    interfaces, values = openings("interface"), openings("chart")
    led_out = {namespace_of(one) for one in facts.objects.get("Ingress", ()) if not at(one.inputs, *_LOGIN)}
    for pod, container, title in facts.containers:
        variables = dict(container.environment)
        for name, value in variables.items():
            if (row := interfaces.get(name)) and (not row.beside or is_true(variables.get(row.beside))):
                yield _door(title, name, value, row, open_=row.by(value), urn=pod.urn, refused=pod.namespace in led_out)
    for chart in facts.charts:
        for path, value in walk(chart.values):
            where, dotted = f"chart {chart.resource.name}", ".".join(path)
            for row in (row for end, row in values.items() if f".{dotted}".endswith(f".{end}")):
                beside = at(chart.values, *path[:-1])
                limited = text(value) == "LoadBalancer" and (at(beside, "loadBalancerSourceRanges") or at(beside, "annotations"))
                yield _door(where, dotted, text(value), row, open_=row.by(text(value)) and not limited, urn=chart.resource.urn)


def _door(where: str, key: str, value: str, row: Opening, *, open_: bool, urn: str, refused: bool = False) -> Judgement:
    given = text(f"{key}: {value}")
    return Judgement(
        holds=not open_,
        path=(),
        working=(f"{where}: {given}; {row.source}",),
        message=f"{where}: {given}: {row.opens}",
        given=given,
        resource=urn,
        severity="error" if refused else None,
    )
