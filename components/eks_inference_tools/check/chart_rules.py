"""Rules HEL… about Helm charts."""

import re
from collections.abc import Iterator

from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts, walk
from eks_inference_tools.reading.scalars import whole
from stackgraph.graph.values import is_token, text

# Semantic Versioning 2.0.0. Charts may add a leading v.
_EXACT = re.compile(r"v?\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?")


@rule(
    "HEL001",
    "Charts are pinned to one version.",
    fix="set version to an exact x.y.z",
    source="Helm, chart version ranges: without an exact version, Helm installs the newest chart",
)
def charts_pinned(facts: GraphFacts) -> Iterator[Judgement]:
    for chart in facts.charts:
        version = chart.version
        local = chart.reference.startswith((".", "/")) or chart.reference.endswith(".tgz")
        if is_token(version) or is_token(chart.reference) or local:
            continue
        yield Judgement(
            holds=_EXACT.fullmatch(version) is not None,
            path=(),
            working=(f"chart {chart.resource.name}: {chart.reference}, version {version or 'not given'}",),
            message=f"chart {chart.resource.name} ({chart.reference}) has no exact version",
            given=version or "no version",
            allowed="x.y.z",
            resource=chart.resource.urn,
        )


@rule(
    "HEL002",
    "Charts and add-ons have at least one pod of what they install.",
    fix="leave the number of replicas out, or remove the chart",
    source="charts of controllers: without a pod nothing acts on the objects that name them, and nothing says so",
)
def charts_have_pods(facts: GraphFacts) -> Iterator[Judgement]:
    installed = [(f"chart {chart.resource.name}", chart.resource, chart.values) for chart in facts.charts]
    installed += [(f"add-on {addon.name}", addon.resource, addon.configuration) for addon in facts.addons]
    for title, resource, values in installed:
        counts = {".".join(path): whole(value) for path, value in walk(values) if path[-1:] in (("replicas",), ("replicaCount",))}
        none = [path for path, count in counts.items() if count == 0]
        if counts:
            yield Judgement(
                holds=not none,
                path=(),
                working=(f"{title}: {', '.join(f'{path} {count}' for path, count in counts.items())}",),
                message=f"{title} runs no pod of what {text(', '.join(none))} counts",
                given=text(", ".join(f"{path}: 0" for path in none)),
                allowed="at least 1",
                # A part of a chart may be dispensable; its controller is not.
                severity=None if _CONTROLLERS & {*none} else "warning",
                resource=resource.urn,
            )


_CONTROLLERS = {"replicas", "replicaCount", "operator.replicaCount", "controller.replicaCount"}
"""Where charts and add-ons count the pods without which the rest does nothing."""
