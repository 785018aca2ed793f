"""Finds what a program computes from outputs: a hash, another case, the branch that an ``apply`` takes.

A preview gives an ``apply`` a placeholder, and such a result looks like any text of the program, which differs from what was
deployed. A recording in which outputs are unknown tells it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.tokens import SECRET, UNKNOWN, references
from stackgraph.graph.values import leaves


def without_computed(graph: Graph, strict: Graph) -> Graph:
    """The graph with what is computed as unknown. ``strict`` is a recording of the same program with outputs unknown.

    A text with a whole output inside stays: the state knows that output.
    """
    names = {one.name for one in graph.resources}

    def known(value: Any, other: Any) -> Any:
        if other == UNKNOWN:
            return value if any(leaf == SECRET or _refers(leaf, names) for leaf in leaves(value)) else UNKNOWN
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            # Of a placeholder, none may come out, of which a recording has no trace.
            none = {key: UNKNOWN for key, item in other.items() if item == UNKNOWN and value.get(key) is None}
            return {**{key: known(item, other.get(key)) for key, item in value.items()}, **none}
        if isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
            return [known(*pair) for pair in zip(value, other, strict=True)]
        return value

    found = ((one, strict.by_urn.get(one.urn)) for one in graph.resources)
    resources = tuple(_with(one, known(one.inputs, other.inputs), other) if other else one for one, other in found)
    return replace(graph, resources=resources, outputs=known(graph.outputs, strict.outputs))


def _with(resource: Resource, inputs: Mapping[str, Any], strict: Resource) -> Resource:
    return replace(
        resource, inputs=inputs, property_dependencies={**strict.property_dependencies, **resource.property_dependencies}
    )


def _refers(leaf: Any, names: set[str]) -> bool:
    """Whether a text has an output of a resource inside."""
    return isinstance(leaf, str) and any(name in names for one in references(leaf) for name in _prefixes(one))


def _prefixes(reference: str) -> Iterator[str]:
    """What may be the name of the resource: names may hold dots."""
    steps = reference.split(".")
    return (".".join(steps[:end]) for end in range(1, len(steps)))
