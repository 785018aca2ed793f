"""The order in which the engine meets the resources of a program."""

from graphlib import CycleError, TopologicalSorter

from stackgraph.graph.document import Graph, Resource


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
