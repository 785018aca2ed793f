"""Finds the top-level components of a graph and arranges them in layers by their dependencies."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stackgraph.graph.document import Resource, is_component
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import grouped

Edge = tuple[str, str]
"""The URN of what must exist first, and that of what depends on it."""


@dataclass(frozen=True)
class Layers:
    """URNs by layer, each depending on something in the layer before, and the edges that no others imply.

    An edge that is part of a cycle may lead to the same layer or an earlier one.
    """

    layers: tuple[tuple[str, ...], ...]
    edges: frozenset[Edge]


def division(structure: Structure) -> str:
    """The URN of the outermost resource that does not consist of a single component; ``""`` for the root."""
    parent = ""
    while len(within := leaves_and_branches(structure, parent)[1]) == 1:
        parent = within[0].urn
    return parent


def leaves_and_branches(structure: Structure, parent: str) -> tuple[list[Resource], list[Resource]]:
    """The children of a resource in creation order: first those with nothing inside, then components and other parents."""
    found: tuple[list[Resource], list[Resource]] = ([], [])
    for resource in structure.ordered(parent):
        found[is_component(resource) or bool(structure.children.get(resource.urn))].append(resource)
    return found


def layers(structure: Structure, parent: str) -> Layers:
    """The layers of the components inside ``parent``. A component depends on what any resource inside it depends on."""
    order = [resource.urn for resource in leaves_and_branches(structure, parent)[1]]
    owner = {inner.urn: urn for urn in order for inner in structure.inside(urn)} | {urn: urn for urn in order}
    all_edges = {(owner[other], owner[urn]) for urn in owner for other in structure.needs[urn] if other in owner}
    edges = without_shortcuts(edge for edge in all_edges if edge[0] != edge[1])
    depth: dict[str, int] = {}
    for urn in order:
        depth[urn] = max((depth[first] + 1 for first, second in edges if second == urn and first in depth), default=0)
    found = grouped((layer, urn) for urn, layer in depth.items())
    return Layers(tuple(tuple(found[layer]) for layer in sorted(found)), frozenset(edges))


def without_shortcuts(edges: Iterable[Edge]) -> set[Edge]:
    """The edges that no path over others implies. All edges of a cycle stay."""
    edges = set(edges)
    after = grouped(edges)
    reach = {key: _reachable(key, after) for key in {key for edge in edges for key in edge}}

    def cyclic(one: str, other: str) -> bool:
        return one in reach[other] and other in reach[one]

    def implied(first: str, second: str) -> bool:
        between = (key for key in reach[first] if key not in (first, second) and second in reach[key])
        return not cyclic(first, second) and any(not cyclic(first, key) and not cyclic(key, second) for key in between)

    return {edge for edge in edges if not implied(*edge)}


def _reachable(start: str, after: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = set(after.get(waiting.pop(), ())) - found
        found |= fresh
        waiting += fresh
    return found
