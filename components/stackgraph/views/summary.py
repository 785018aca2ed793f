"""Summaries of a graph that the tree and the page share: counts, marks, resources with unknown contents, outputs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stackgraph.graph.describe import Words, describe, protection, short_type
from stackgraph.graph.document import (
    CHART_TYPE,
    RENDERED_TYPES,
    Answer,
    FunctionCall,
    Graph,
    Resource,
    is_component,
    is_opaque,
    is_read,
)
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import joined, text
from stackgraph.graph.wording import counted, shorten

# -- headline --------------------------------------------------------------------------------------------------------------------

_FAMILIES = {
    "aws": ("AWS", "AWS"),
    "kubernetes": ("Kubernetes", "Kubernetes"),
    "other": ("other", "other"),
    "provider": ("provider", "providers"),
    "component": ("component", "components"),
    "opaque": ("chart or remote component (opaque)", "charts and remote components (opaque)"),
}


@dataclass(frozen=True)
class Counts:
    """The number of resources that a deployment creates, and by family, with the word for it. ``asides`` mention all others."""

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


# -- charts and remote components ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opaque:
    """A chart or remote component. ``type`` is ``chart`` or the type of the remote component."""

    urn: str
    type: str
    name: str
    detail: str = ""


def _opaque_kind(resource: Resource) -> str:
    if resource.type in (CHART_TYPE, *RENDERED_TYPES):
        return "kustomization" if resource.type.endswith("Directory") else "chart"
    return "remote component"


def opaque(graph: Graph, words: Words) -> tuple[Opaque, ...]:
    """What is known about each chart and remote component."""
    found = []
    for resource in graph.opaque:
        type_, detail = short_type(resource.type), describe(resource, words)
        if resource.type == CHART_TYPE:
            namespace = text(resource.inputs.get("namespace"))
            type_, detail = "chart", joined(detail, f"in {namespace}" if namespace else "")
        found.append(Opaque(resource.urn, type_, text(resource.name), detail))
    return tuple(found)


def opaque_counts(graph: Graph) -> str:
    """``2 charts and 1 remote component: their contents are known only after deployment``."""
    kinds = Counter(map(_opaque_kind, graph.opaque))
    numbers = [counted(number, kind) for kind, number in sorted(kinds.items())]
    return f"{' and '.join(numbers)}: their contents are known only after deployment"


def marks(resource: Resource) -> tuple[str, ...]:
    """Remarks on a resource: whether its contents are unknown, and its protection."""
    opaque = (f"{_opaque_kind(resource)}, opaque",) if is_opaque(resource) else ()
    return (*opaque, *protection(resource))


# -- functions of providers ------------------------------------------------------------------------------------------------------

ANSWERS: Mapping[Answer, str] = {
    "file": "from the answers file",
    "computed": "computed",
    "placeholder": "placeholder",
    "unknown": "unknown",
}


def arguments(function: FunctionCall) -> tuple[str, ...]:
    """The arguments of a call: ``mostRecent: true``."""
    return tuple(shorten(f"{text(key)}: {text(value)}", 80) for key, value in sorted(function.args.items()))


# -- outputs ---------------------------------------------------------------------------------------------------------------------


def by_path(value: Any, path: str = "") -> Iterator[tuple[str, Sequence[str]]]:
    """The values of stack outputs by path. A list of scalars is one value."""
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            yield from by_path(value[key], f"{path}.{text(key)}" if path else text(key))
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for number, item in enumerate(value):
            yield from by_path(item, f"{path}[{number}]")
    elif path:
        yield path, [text(item) for item in value] if isinstance(value, list) and value else [text(value)]
