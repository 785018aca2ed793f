"""The structure of a graph: which resource is inside which, which needs which, and in which order they can be created."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from stackgraph.graph.document import STACK_TYPE, Graph, Resource, is_read
from stackgraph.graph.values import grouped


class Structure:
    """Relations of the resources that views show: all but the stack itself and default providers.

    It tolerates cycles, which no engine would allow: members of a cycle of parents become roots, and members of a cycle of
    dependencies are ordered by name.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def parent(self) -> Mapping[str, str]:
        """By URN of each shown resource, the URN of its shown parent; ``""`` for a root."""
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
        """Shown resources by the URN of their parent, in the graph's order; the roots are under ``""``."""
        found = grouped((parent, self.graph.by_urn[urn]) for urn, parent in self.parent.items())
        return {urn: tuple(resources) for urn, resources in found.items()}

    def inside(self, urn: str) -> Iterable[Resource]:
        """All descendants of a resource."""
        waiting = list(self.children.get(urn, ()))
        while waiting:
            resource = waiting.pop()
            yield resource
            waiting += self.children.get(resource.urn, ())

    def made_inside(self, urn: str) -> int:
        """The number of descendants that a deployment creates."""
        return sum(not is_read(resource) for resource in self.inside(urn))

    def above(self, urn: str) -> tuple[str, ...]:
        """The URNs of the resource's ancestors and its own, outermost first."""
        chain = []
        while urn:
            chain.append(urn)
            urn = self.parent.get(urn, "")
        return tuple(reversed(chain))

    @cached_property
    def needs(self) -> Mapping[str, frozenset[str]]:
        """By URN of each shown resource, the shown resources it depends on: dependencies, also of properties, and provider."""
        found = {}
        for urn in self.parent:
            resource = self.graph.by_urn[urn]
            needed = {resource.provider}.union(resource.dependencies, *resource.property_dependencies.values())
            found[urn] = frozenset(other for other in needed if other in self.parent and other != urn)
        return found

    @cached_property
    def level(self) -> Mapping[str, int]:
        """By URN, the length of the longest chain of resources that must exist before this one."""
        return _levels(self.needs)

    def ordered(self, parent: str) -> tuple[Resource, ...]:
        """The children of a resource in creation order; ties go by type and name."""
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
    """The length of the longest chain below each key; 0 for all if there is a cycle."""
    try:
        order = tuple(TopologicalSorter(needs).static_order())
    except CycleError:
        return dict.fromkeys(needs, 0)
    levels: dict[str, int] = {}
    for urn in order:
        levels[urn] = max((levels[other] + 1 for other in needs.get(urn, ())), default=0)
    return levels


def needs(resource: Resource) -> frozenset[str]:
    """The URNs that a resource stands on: the engine registers it after them, and deletes it before them.

    Source: pulumi/pulumi, pkg/resource/state.go (``GetAllDependencies``).
    """
    options = resource.options
    others = {resource.parent, resource.provider, options.get("deletedWith", ""), *options.get("replaceWith", ())}
    return frozenset(others.union(resource.dependencies, *resource.property_dependencies.values()) - {"", resource.urn})


def in_order(graph: Graph) -> tuple[str, ...]:
    """The URNs of a graph, each after all that it stands on; otherwise as the graph has them."""
    known = {resource.urn: sorted(needs(resource) & graph.by_urn.keys()) for resource in graph.resources}
    try:
        return tuple(TopologicalSorter(known).static_order())
    except CycleError:
        return tuple(known)
