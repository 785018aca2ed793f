"""What a resource stands on, as the engine orders resources."""

from stackgraph.graph.document import Resource


def needs(resource: Resource) -> frozenset[str]:
    """Returns the URNs that a resource stands on."""
    found = {resource.parent, resource.provider}.union(resource.dependencies, *resource.property_dependencies.values())
    return frozenset(found - {"", resource.urn})
