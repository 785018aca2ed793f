"""The rule K8S019: what the API server takes of Kubernetes objects (``kubernetes_bounds.json``)."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from eks_inference.faults import format_path
from eks_inference.rules import Judgement, rule
from eks_inference_tools.check.bounds import faults
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.objects import title_of
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.tokens import redacted
from stackgraph.graph.values import text

_LONGEST = 60


@cache
def bounds() -> Mapping[str, Any]:
    """By API version and kind (``apps/v1/Deployment``): the ``schema`` of its objects, and where that comes from (``source``)."""
    references = []

    def note(found: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in found:
            references.append(found)
        return found

    document = files("eks_inference_tools.check").joinpath("kubernetes_bounds.json").read_text("utf-8")
    read = json.loads(document, object_hook=note)
    for one in references:
        one.update(read["types"][one.pop("$ref")])
    return read["kinds"]


@rule(
    "K8S019",
    "Objects have only fields and values that the API server takes, of the kinds that stacks of this library have.",
    fix="change the value, or the key of the stack file that gives it",
    source="OpenAPI and validation of kube-apiserver 1.35; definitions of custom resources (docs/bounds-kubernetes.md)",
)
def objects_are_taken(facts: GraphFacts) -> Iterator[Judgement]:
    for resource in facts.graph.resources:
        kind = bounds().get(resource.type.removeprefix("kubernetes:").removeprefix("core/").replace(":", "/"))
        if kind is None or not is_kubernetes_object(resource):
            continue
        found = list(faults(redacted(resource.type, resource.inputs), kind["schema"]))
        for path, given, allowed in found:
            yield Judgement(
                holds=False,
                path=(),
                working=(f"{title_of(resource)}: {format_path(path)}: {_short(given)}; the API server takes {allowed}",),
                message=f"{title_of(resource)}: the API server does not take this {format_path(path)}",
                given=_short(given),
                allowed=f"{allowed} ({kind['source']})",
                resource=resource.urn,
            )
        if not found:
            yield Judgement(holds=True, path=(), working=(f"{title_of(resource)}: {kind['source']}",), resource=resource.urn)


def _short(given: Any) -> str:
    if given is None:
        return "nothing"
    shown = text(given) if isinstance(given, str | int | float) else json.dumps(given, default=str)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."
