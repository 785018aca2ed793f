"""A graph in a few words: what the tree and the page say in the same way."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stackgraph.graph.describe import Words, describe, short_type
from stackgraph.graph.document import CHART_TYPE, Graph, Resource, is_component, is_opaque, is_read
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import joined, text
from stackgraph.graph.wording import counted

# -- headline --------------------------------------------------------------------------------------------------------------------

_FAMILIES = {
    "aws": ("AWS", "AWS"),
    "kubernetes": ("Kubernetes", "Kubernetes"),
    "other": ("other", "other"),
    "provider": ("provider", "providers"),
    "component": ("component", "components"),
    "opaque": ("chart or remote component (not seen inside)", "charts and remote components (not seen inside)"),
}


@dataclass(frozen=True)
class Counts:
    """How many resources a deployment creates: all, and by family with the words for that many; ``asides`` tell of all others."""

    made: int
    families: Mapping[str, tuple[int, str]]
    asides: tuple[str, ...]


def counts(structure: Structure) -> Counts:
    resources = structure.graph.resources
    shown = [structure.graph.by_urn[urn] for urn in structure.parent]
    made = [resource for resource in shown if not is_read(resource)]
    kinds = Counter(family(resource) for resource in made)
    asides = []
    if len(shown) > len(made):
        asides.append(f"reads {counted(len(shown) - len(made), 'existing resource')}")
    if hidden := sum(resource.is_default_provider for resource in resources):
        asides.append(f"{counted(hidden, 'default provider')} not listed")
    families = {name: (kinds[name], words[kinds[name] != 1]) for name, words in _FAMILIES.items() if kinds[name]}
    return Counts(len(made), families, tuple(asides))


def family(resource: Resource) -> str:
    """``aws``, ``kubernetes``, ``other``, ``provider``, ``component``, or ``opaque``."""
    if is_opaque(resource):
        return "opaque"
    if is_component(resource):
        return "component"
    if resource.is_provider:
        return "provider"
    return resource.package if resource.package in ("aws", "kubernetes") else "other"


# -- what is not seen ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opaque:
    """A chart or remote component: how many objects it makes, only a plugin or a cluster knows."""

    urn: str
    kind: str
    type: str
    """``chart``, or the type of the remote component."""
    name: str
    detail: str = ""


def opaque_kind(resource: Resource) -> str:
    """``chart`` or ``remote component``."""
    return "chart" if resource.type == CHART_TYPE else "remote component"


def opaque(graph: Graph, words: Words) -> tuple[Opaque, ...]:
    """What is known of each resource whose inside is not."""
    found = []
    for resource in graph.opaque:
        kind, detail = opaque_kind(resource), describe(resource, words)
        if kind == "chart":
            namespace = text(resource.inputs.get("namespace"))
            detail = joined(detail, f"in {namespace}" if namespace else "")
        shown = kind if kind == "chart" else short_type(resource.type)
        found.append(Opaque(resource.urn, kind, shown, text(resource.name), detail))
    return tuple(found)


def not_seen(found: Sequence[Opaque]) -> str:
    """``2 charts and 1 remote component: what they make is known when they are deployed``."""
    kinds = Counter(item.kind for item in found)
    numbers = [counted(number, kind) for kind, number in sorted(kinds.items())]
    return f"{' and '.join(numbers)}: what they make is known when they are deployed"


# -- outputs ---------------------------------------------------------------------------------------------------------------------


def by_path(value: Any, path: str = "") -> Iterator[tuple[str, Sequence[str]]]:
    """The values of stack outputs by path; lists of texts stay together."""
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            yield from by_path(value[key], f"{path}.{text(key)}" if path else text(key))
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for number, item in enumerate(value):
            yield from by_path(item, f"{path}[{number}]")
    elif path:
        yield path, [text(item) for item in value] if isinstance(value, list) and value else [text(value)]
