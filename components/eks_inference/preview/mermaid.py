"""The graph's components and which stands on which, as a Mermaid flowchart for documents and pull requests."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from eks_inference.preview.composition import Composition, is_component, is_opaque, is_read
from eks_inference.preview.describe import CHART_TYPE, short_component_type, short_type
from eks_inference.preview.graph import Graph, Resource
from eks_inference.preview.values import shorten, text

_MOST_NODES = 60
_MOST_LABEL = 40


def render_mermaid(graph: Graph) -> str:
    """A ``flowchart``: one node a component, boxes around components inside others, dashed nodes for charts and remote components.

    An arrow leads from what must exist first to what stands on it; arrows that follow from others are left out. Resources outside
    every component are one node for each provider package. Deep graphs of more than 60 nodes show outer components only.
    """
    composition = Composition(graph)
    deepest = max((len(composition.above(urn)) for urn in composition.parent), default=1)
    diagram = _diagram(composition, deepest)
    while len(diagram.nodes) > _MOST_NODES and deepest > 1:
        deepest -= 1
        diagram = _diagram(composition, deepest)
    ids = _ids(diagram)
    lines = ["flowchart TB", *_boxes(diagram, "", ids, "  ")]
    lines += [f"  {ids[first]} --> {ids[second]}" for first, second in sorted(diagram.edges, key=lambda e: (ids[e[0]], ids[e[1]]))]
    lines += [
        f"  {ids[node.key]} -.- {ids[node.owner]}" for node in diagram.nodes.values() if node.dashed and node.owner in ids
    ]
    if any(node.dashed for node in diagram.nodes.values()):
        lines.append("  classDef opaque stroke-dasharray: 5 5")
    return "\n".join(lines) + "\n"
