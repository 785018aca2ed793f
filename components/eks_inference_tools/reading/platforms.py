"""What each ``InferencePlatform`` of a program recorded about itself."""

from collections.abc import Iterator

from eks_inference.rules import NotJudged
from stackgraph.graph.document import Graph
from stackgraph.graph.values import items, table, text

PLATFORM = "eks-inference:index:InferencePlatform"


def not_judged(graph: Graph) -> Iterator[NotJudged]:
    """Yields what platforms could not judge of their servers, with their URN."""
    for platform in graph.of_type(PLATFORM):
        for each in map(table, items(platform.inputs.get("notJudged"))):
            path = tuple(int(key) if isinstance(key, float) else key for key in items(each.get("path")))
            what = tuple(map(text, items(each.get("what"))))
            yield NotJudged(path, what, text(each.get("of")), text(each.get("why")), text(each.get("fix")), platform.urn)
