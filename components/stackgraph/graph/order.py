"""The order in which the engine meets the resources of a program."""

from graphlib import CycleError, TopologicalSorter

from stackgraph.graph.document import Graph


def in_order(graph: Graph) -> tuple[str, ...]:
    """The URNs of a graph, each after all that it stands on; otherwise as the graph has them."""
    needs = {
        resource.urn: sorted(
            ({resource.parent, resource.provider}.union(resource.dependencies, *resource.property_dependencies.values()))
            & graph.by_urn.keys() - {resource.urn}
        )
        for resource in graph.resources
    }
    try:
        return tuple(TopologicalSorter(needs).static_order())
    except CycleError:
        return tuple(needs)
