"""Rules HEL… about Helm charts."""

import re
from collections.abc import Iterator

from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts
from stackgraph.graph.tokens import is_token

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
