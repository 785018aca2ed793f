"""What every Helm chart of a graph must keep to. Numbers HEL…"""

import re
from collections.abc import Iterator

from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts
from stackgraph.graph.tokens import is_token

# Semantic Versioning 2.0.0; charts may have a leading v.
_EXACT = re.compile(r"v?\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?")


@rule(
    "HEL001",
    "Charts are pinned to one version.",
    fix="give version as x.y.z",
    source="Helm, chart version ranges: without an exact version the newest chart of the day is installed",
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
