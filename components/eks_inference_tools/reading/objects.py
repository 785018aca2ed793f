"""Kinds and names of the Kubernetes objects of a graph. Pure."""

from stackgraph.graph.document import Resource
from stackgraph.graph.values import at, joined, text


def group_kind(resource: Resource) -> tuple[str, str]:
    """API group and kind: ``("apps", "Deployment")`` for ``kubernetes:apps/v1:Deployment``."""
    _, _, rest = resource.type.partition(":")
    module, _, kind = rest.rpartition(":")
    return module.partition("/")[0], kind


def name_of(resource: Resource) -> str:
    """The object's name, or the logical name of the resource where the program leaves the name to Pulumi."""
    return text(at(resource.inputs, "metadata", "name")) or text(resource.name)


def namespace_of(resource: Resource) -> str:
    """The object's namespace. Empty where the program leaves it out."""
    return text(at(resource.inputs, "metadata", "namespace"))


def title(kind: str, namespace: str, name: str, part: str = "") -> str:
    """``Deployment demo/server`` or ``RayService demo/llama (head)``."""
    return joined(kind, joined(namespace, name, by="/"), f"({part})" if part else "")


def title_of(resource: Resource) -> str:
    """The title of a resource: ``Service demo/server``."""
    return title(group_kind(resource)[1], namespace_of(resource), name_of(resource))
