"""How the resources of a graph hang together: what is inside what, what is made before what, which component needs which."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from stackgraph.graph.document import STACK_TYPE, Graph, Resource


class Structure:
    """Views of one graph that several renderings need. Also of graphs no engine would make: a circle of parents or dependencies
    leaves its members at the root, or in the order of their names.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def parent(self) -> Mapping[str, str]:
        """By URN of a shown resource, the URN of the shown resource it is inside of; ``""`` at the root.

        Not shown are the stack itself and default providers.
        """
        shown = {r.urn: r.parent for r in self.graph.resources if r.type != STACK_TYPE and not r.is_default_provider}
        parents = {urn: parent if parent in shown else "" for urn, parent in shown.items()}
        for urn in parents:
            passed = {urn}
            above = parents[urn]
            while above and above not in passed:
                passed.add(above)
                above = parents[above]
            if above:
                parents[urn] = ""
        return parents

    @cached_property
    def children(self) -> Mapping[str, tuple[Resource, ...]]:
        """Shown resources by the URN of the one they are inside of, in the graph's order; ``""`` holds the roots."""
        found: dict[str, list[Resource]] = {}
        for urn, parent in self.parent.items():
            found.setdefault(parent, []).append(self.graph.by_urn[urn])
        return {urn: tuple(resources) for urn, resources in found.items()}

    def inside(self, urn: str) -> Iterable[Resource]:
        """Everything below a resource, at any depth, without itself."""
        waiting = list(self.children.get(urn, ()))
        while waiting:
            resource = waiting.pop()
            yield resource
            waiting += self.children.get(resource.urn, ())

    def above(self, urn: str) -> tuple[str, ...]:
        """The resource itself and what it is inside of, outermost first."""
        chain = []
        while urn:
            chain.append(urn)
            urn = self.parent.get(urn, "")
        return tuple(reversed(chain))

    @cached_property
    def needs(self) -> Mapping[str, frozenset[str]]:
        """By URN of a shown resource, the shown resources it refers to, waits for, or is made through."""
        return {
            urn: frozenset(
                other
                for other in (
                    *self.graph.by_urn[urn].dependencies,
                    *(other for urns in self.graph.by_urn[urn].property_dependencies.values() for other in urns),
                    self.graph.by_urn[urn].provider,
                )
                if other in self.parent and other != urn
            )
            for urn in self.parent
        }

    @cached_property
    def level(self) -> Mapping[str, int]:
        """How many resources, one after the other, must exist before this one."""
        return _levels(self.needs)

    def ordered(self, parent: str) -> tuple[Resource, ...]:
        """The children of a resource in the order in which they can be made; equal ones by type and name."""
        children = self.children.get(parent, ())
        depth = len(self.above(parent))
        within = {child.urn for child in children}
        needs: dict[str, set[str]] = {urn: set() for urn in within}
        for child in children:
            for resource in (child, *self.inside(child.urn)):
                for other in self.needs[resource.urn]:
                    chain = self.above(other)
                    if len(chain) > depth and chain[depth] in within and chain[depth] != child.urn:
                        needs[child.urn].add(chain[depth])
        levels = _levels(needs)
        return tuple(sorted(children, key=lambda r: (levels[r.urn], self.level[r.urn], r.type, r.name, r.urn)))


def _levels(needs: Mapping[str, Iterable[str]]) -> Mapping[str, int]:
    """The length of the longest chain below each; all the same when there is a circle."""
    try:
        order = tuple(TopologicalSorter(needs).static_order())
    except CycleError:
        return dict.fromkeys(needs, 0)
    levels: dict[str, int] = {}
    for urn in order:
        levels[urn] = max((levels[other] + 1 for other in needs.get(urn, ())), default=0)
    return levels
