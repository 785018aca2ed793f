"""Where two programs give a property another text, and a deployment finds, or may find, the value that it has."""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from stackgraph.diff.comparing import ABSENT, PropertyChange, identical
from stackgraph.diff.moves import Pairing
from stackgraph.graph.document import Graph
from stackgraph.graph.values import REFERENCE, UNKNOWN, leaves, references


def stays(change: PropertyChange, head: Graph, pairs: Pairing) -> bool:
    """Whether both values of a changed property are the id of one resource, however they are written.

    A provider that takes no resources gets their ids (pulumi/pulumi, sdk/go/common/resource/plugin/rpc.go, ``KeepResources``).
    """
    return identical(_by_id(change.before, head, pairs), _by_id(change.after, head, pairs))


def _by_id(value: Any, head: Graph, pairs: Pairing) -> Any:
    if isinstance(value, list):
        return [_by_id(item, head, pairs) for item in value]
    if isinstance(value, Mapping) and value.keys() == {"resource"}:
        found = head.by_urn.get(pairs.urn(str(value["resource"])))
        return f"<{found.name}.id>" if found else value
    if isinstance(value, str) and REFERENCE.fullmatch(value):
        name, _, output = value[1:-1].rpartition(".")
        types = {resource.type for resource in head.resources if resource.name == name}
        return f"<{name}.id>" if types and types.issubset(_ids().get(output, ())) else value
    return value


@cache
def _ids() -> Mapping[str, Any]:
    return tomllib.loads(files("stackgraph.diff").joinpath("ids.toml").read_text(encoding="utf-8"))


def may_stay(change: PropertyChange, base: Graph, head: Graph) -> bool:
    """Whether a changed property's values may be equal once deployed: unknown values, results of functions, two outputs of one
    resource, or an existing resource's output and a text. Another resource's output is another value, and so is
    another text around the same outputs.
    """
    if ABSENT in (change.before, change.after):
        return False
    before, after = ({*_owners(value, (base, head))} for value in (change.before, change.after))
    known = {resource.name for resource in base.resources}
    if UNKNOWN in before | after or not (before | after) <= known | {resource.name for resource in head.resources}:
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
            yield from (graph.by_urn[leaf].name for graph in graphs if leaf in graph.by_urn)
            names = {resource.name for graph in graphs for resource in graph.resources} if "<" in leaf else set()
            for reference in references(leaf):
                steps = reference.split(".")
                starts = [".".join(steps[:end]) for end in range(len(steps) - 1, 0, -1)]
                yield next((start for start in starts if start in names), starts[-1])
