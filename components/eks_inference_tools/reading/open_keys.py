"""Keys that a stack file leaves open and that resolve otherwise in another revision."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference_tools.reading.platforms import PLATFORM
from stackgraph.diff.domain import Danger
from stackgraph.diff.graphs import StackDiff
from stackgraph.graph.document import Graph
from stackgraph.graph.values import table, text


def resolved_otherwise(diff: StackDiff) -> Iterator[Danger]:
    """Yields each open key whose value changes, with the row or rule that decides now."""
    if diff.base is None or diff.head is None:
        return
    before = dict(_resolved(diff.base))
    for urn, after in _resolved(diff.head):
        for path, now in after.items():
            was = table(before.get(urn, {})).get(path)
            if was is not None and table(was).get("value") != table(now).get("value"):
                values = " instead of ".join(json.dumps(table(one).get("value"), ensure_ascii=False) for one in (now, was))
                what = f"the stack file leaves {path} open: it resolves to {values} ({text(table(now).get('why'))})"
                yield Danger("resolved-otherwise", what, urn)


def _resolved(graph: Graph) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What the platforms of a program resolved, by URN."""
    for resource in graph.of_type(PLATFORM):
        yield resource.urn, table(resource.inputs.get("resolved"))
