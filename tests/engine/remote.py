"""What the echo providers make inside remote components."""

from dataclasses import dataclass, replace

from stackgraph.graph.document import PROVIDER_PREFIX, Graph, Resource


@dataclass(frozen=True)
class Inside:
    """Two resources: one that is an output of the component, and a provider of ``package`` that stands on it."""

    type: str
    output: str
    package: str
    suffix: str


# Source: pulumi-eks v4.3.0, nodejs/eks/cluster/cluster.ts, for a cluster without access entries.
COMPONENTS = {"eks:index:Cluster": Inside("aws:eks/cluster:Cluster", "eksCluster", "kubernetes", "eks-k8s")}


def main_resource(component: Resource) -> Resource:
    """The resource inside that takes the time."""
    inside = COMPONENTS[component.type]
    return _child(component, inside.type, inside.output)


def with_inside(graph: Graph) -> Graph:
    """The graph as the engine has it: what depends on a remote component depends on what is inside, too.

    Source: pulumi/pulumi v3.260, pkg/resource/graph/dependency_graph.go (``DependenciesOf``).
    """
    inside: dict[str, tuple[Resource, Resource]] = {}
    for component in graph.resources:
        if kind := COMPONENTS.get(component.type):
            main = main_resource(component)
            provider = _child(component, PROVIDER_PREFIX + kind.package, kind.suffix)
            inside[component.urn] = main, replace(provider, dependencies=(main.urn,))
    outside = [
        replace(one, dependencies=(*one.dependencies, *(new.urn for urn in one.dependencies for new in inside.get(urn, ()))))
        for one in graph.resources
    ]
    return replace(graph, resources=(*outside, *(resource for found in inside.values() for resource in found)))


def _child(component: Resource, type_: str, suffix: str) -> Resource:
    name = f"{component.name}-{suffix}"
    return Resource(f"{component.urn.rpartition('::')[0]}${type_}::{name}", type_, name, parent=component.urn)
