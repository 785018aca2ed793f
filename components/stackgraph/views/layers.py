"""The components a graph consists of at its first division, and in which layers they stand on each other."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stackgraph.graph.document import Resource, is_component
from stackgraph.graph.structure import Structure

Edge = tuple[str, str]
"""What must exist first, and what stands on it."""


@dataclass(frozen=True)
class Layers:
    """URNs, layer by layer, each standing on something in the layer before. ``edges`` leave out what others imply.

    An edge that is part of a circle may lead to the same layer or one before.
    """

    layers: tuple[tuple[str, ...], ...]
    edges: frozenset[Edge]


def division(structure: Structure) -> str:
    """The outermost resource with more than one component inside; a component around everything is no division."""
    parent = ""
    while len(within := branches(structure, parent)) == 1:
        parent = within[0].urn
    return parent


def branches(structure: Structure, parent: str) -> list[Resource]:
    """Components and other resources with something inside, in the order in which they can be made."""
    return [r for r in structure.ordered(parent) if is_component(r) or structure.children.get(r.urn)]


def layers(structure: Structure, parent: str) -> Layers:
    """Components inside ``parent``: what their resources refer to or wait for decides who stands on whom."""
    order = [resource.urn for resource in branches(structure, parent)]
    owner = {inner.urn: urn for urn in order for inner in structure.inside(urn)} | {urn: urn for urn in order}
    all_edges = {(owner[other], owner[urn]) for urn in owner for other in structure.needs[urn] if other in owner}
    edges = without_shortcuts(edge for edge in all_edges if edge[0] != edge[1])
    depth: dict[str, int] = {}
    for urn in order:
        depth[urn] = max((depth[first] + 1 for first, second in edges if second == urn and first in depth), default=0)
    found: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for urn, layer in depth.items():
        found[layer].append(urn)
    return Layers(tuple(map(tuple, found)), frozenset(edges))


def without_shortcuts(edges: Iterable[Edge]) -> set[Edge]:
    """The edges without those that a way through others implies. Edges within a circle all stay."""
    edges = set(edges)
    after: dict[str, set[str]] = {}
    for first, second in edges:
        after.setdefault(first, set()).add(second)
    reach = {key: _reachable(key, after) for key in {key for edge in edges for key in edge}}

    def circle(one: str, other: str) -> bool:
        return one in reach[other] and other in reach[one]

    def implied(first: str, second: str) -> bool:
        ways = (way for way in reach[first] if way not in (first, second) and second in reach[way])
        return not circle(first, second) and any(not circle(first, way) and not circle(way, second) for way in ways)

    return {edge for edge in edges if not implied(*edge)}


def _reachable(start: str, after: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = set(after.get(waiting.pop(), ())) - found
        found |= fresh
        waiting += fresh
    return found
