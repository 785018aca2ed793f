"""Rules K8S… about web interfaces that anybody could enter."""

from collections.abc import Iterator

from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts, walk
from stackgraph.graph.values import at, text

_OPEN_VARIABLES = {"GF_AUTH_ANONYMOUS_ENABLED": "true", "WEBUI_AUTH": "false"}
"""Environment variables that turn a login off, with the value that does."""

_OPEN_VALUES = {"auth.anonymous.enabled": "true"}
"""Chart values likewise, by the end of their path."""


@rule(
    "K8S017",
    "Web interfaces ask for a login, and charts open none to the internet.",
    severity="warning",
    fix="leave the setting out; reach the interface with kubectl port-forward, or put a login in front",
    source="Open WebUI, environment variables (WEBUI_AUTH); Grafana, Configure anonymous access; Kubernetes, Service type "
    "LoadBalancer: public unless annotations or loadBalancerSourceRanges limit it",
)
def doors_are_closed(facts: GraphFacts) -> Iterator[Judgement]:
    for pod, container, title in facts.containers:
        for name, value in container.environment:
            if name in _OPEN_VARIABLES:
                yield _door(title, name, value, open_=value.lower() == _OPEN_VARIABLES[name], urn=pod.urn)
    for chart in facts.charts:
        for path, value in walk(chart.values):
            where, end = f"chart {chart.resource.name}", ".".join(path[-2:])
            if end in _OPEN_VALUES:
                yield _door(where, ".".join(path), text(value), open_=text(value) == _OPEN_VALUES[end], urn=chart.resource.urn)
            elif end == "service.type":
                service = at(chart.values, *path[:-1])
                limited = at(service, "loadBalancerSourceRanges") or at(service, "annotations")
                public = text(value) == "LoadBalancer" and not limited
                yield _door(where, ".".join(path), text(value), open_=public, urn=chart.resource.urn)


def _door(where: str, key: str, value: str, *, open_: bool, urn: str) -> Judgement:
    given = text(f"{key}: {value}")
    return Judgement(
        holds=not open_,
        path=(),
        working=(f"{where}: {given}",),
        message=f"{where}: {given} lets in whoever reaches it",
        given=given,
        resource=urn,
    )
