"""Where two programs give a property another text, and a deployment may find the value that it has."""

from collections.abc import Collection, Iterator
from typing import Any

from stackgraph.diff.comparing import ABSENT, PropertyChange
from stackgraph.graph.document import Graph
from stackgraph.graph.values import UNKNOWN, leaves, references


def may_stay(change: PropertyChange, base: Graph, head: Graph) -> bool:
    """Whether a changed property's values may be equal once deployed: unknown values, results of functions, two outputs of one
    resource, or an existing resource's output and a text. Another resource's output is another value, and so is
    another text around the same outputs.
    """
    if ABSENT in (change.before, change.after):
        return False
    before, after = ({*_owners(value, (base, head))} for value in (change.before, change.after))
    known = {one.name for one in base.resources}
    if UNKNOWN in before | after or not (before | after) <= known | {one.name for one in head.resources}:
        return True
    inside = [[one for leaf in leaves(value) for one in references(str(leaf))] for value in (change.before, change.after)]
    if inside[0] and inside[0] == inside[1]:
        return False
    return bool(before | after) and after <= known and (before == after or not before or not after)


def _owners(value: Any, graphs: Collection[Graph]) -> Iterator[str]:
    """The names of resources and functions whose outputs are in a value."""
    for leaf in leaves(value):
        if leaf == UNKNOWN:
            yield UNKNOWN
        elif isinstance(leaf, str):
            yield from (one.by_urn[leaf].name for one in graphs if leaf in one.by_urn)
            names = {resource.name for one in graphs for resource in one.resources} if "<" in leaf else set()
            for reference in references(leaf):
                steps = reference.split(".")
                starts = [".".join(steps[:end]) for end in range(len(steps) - 1, 0, -1)]
                yield next((start for start in starts if start in names), starts[-1])
