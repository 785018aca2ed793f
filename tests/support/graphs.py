"""Questions to a recorded graph, in words."""

from stackgraph.graph.document import Graph, Resource


def stands_on(graph: Graph, upper: Resource, lower: Resource) -> bool:
    """Whether ``upper`` is made after ``lower`` and deleted before it: by dependencies or through its provider."""
    return lower.urn in foundations(graph, upper.urn)


def foundations(graph: Graph, urn: str) -> set[str]:
    """All that a resource stands on, however indirectly."""
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
    """Every Kubernetes object and chart."""
    return [resource for resource in graph.resources if resource.custom and resource.package == "kubernetes"]


def kind(resource: Resource) -> str:
    return resource.type.rpartition(":")[2]


def of_kind(graph: Graph, wanted: str) -> list[Resource]:
    found = [resource for resource in kubernetes(graph) if kind(resource) == wanted]
    assert found, f"no {wanted} in stack {graph.stack}"
    return found


def children_of(graph: Graph, component: str) -> list[Resource]:
    """Resources whose parent chain goes through a component of that class, e.g. ``Karpenter``."""
    return [r for r in graph.resources if f"eks-inference:index:{component}$" in r.urn]
