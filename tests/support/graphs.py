"""Queries on recorded graphs."""

from stackgraph.graph.document import Graph, Resource


def stands_on(graph: Graph, upper: Resource, lower: Resource) -> bool:
    """Returns whether ``upper`` is created after ``lower`` and deleted before it, through dependencies or its provider."""
    return lower.urn in foundations(graph, upper.urn)


def foundations(graph: Graph, urn: str) -> set[str]:
    """Returns the URNs of everything that a resource depends on, directly or indirectly."""
    found: set[str] = set()
    waiting = [urn]
    while waiting:
        resource = graph.by_urn.get(waiting.pop())
        if resource is not None:
            below = {*resource.dependencies, *([resource.provider] if resource.provider else [])} - found
            found |= below
            waiting += below
    return found


def kubernetes(graph: Graph) -> list[Resource]:
    """Returns every Kubernetes object and chart."""
    return [resource for resource in graph.resources if resource.custom and resource.package == "kubernetes"]


def kind(resource: Resource) -> str:
    return resource.type.rpartition(":")[2]


def of_kind(graph: Graph, wanted: str) -> list[Resource]:
    found = [resource for resource in kubernetes(graph) if kind(resource) == wanted]
    assert found, f"no {wanted} in stack {graph.stack}"
    return found


def children_of(graph: Graph, component: str) -> list[Resource]:
    """Returns the resources below components of a class, e.g. ``Karpenter``."""
    return [r for r in graph.resources if f"eks-inference:index:{component}$" in r.urn]
