"""What tree, page and diagrams share: counts, marks, resources with unknown inputs, and the layers of components by their
dependencies.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from stackgraph.graph.values import grouped, joined, text
from stackgraph.graph.wording import counted, shorten

Edge = tuple[str, str]
"""The URN of what must exist first, and that of what depends on it."""


@dataclass(frozen=True)
class Layers:
    """URNs by layer, each depending on something in the layer before, and the edges that no others imply.

    An edge that is part of a cycle may lead to the same layer or an earlier one.
    """

    layers: tuple[tuple[str, ...], ...]
    edges: frozenset[Edge]


def division(structure: Structure) -> str:
    """The URN of the outermost resource that does not consist of a single component; ``""`` for the root."""
    parent = ""
    while len(within := leaves_and_branches(structure, parent)[1]) == 1:
        parent = within[0].urn
    return parent


def leaves_and_branches(structure: Structure, parent: str) -> tuple[list[Resource], list[Resource]]:
    """The children of a resource in creation order: first those with nothing inside, then components and other parents."""
    found: tuple[list[Resource], list[Resource]] = ([], [])
    for resource in structure.ordered(parent):
        found[is_component(resource) or bool(structure.children.get(resource.urn))].append(resource)
    return found


def layers(structure: Structure, parent: str) -> Layers:
    """The layers of the components inside ``parent``. A component depends on what any resource inside it depends on."""
    order = [resource.urn for resource in leaves_and_branches(structure, parent)[1]]
    owner = {inner.urn: urn for urn in order for inner in structure.inside(urn)} | {urn: urn for urn in order}
    all_edges = {(owner[other], owner[urn]) for urn in owner for other in structure.needs[urn] if other in owner}
    edges = without_shortcuts(edge for edge in all_edges if edge[0] != edge[1])
    depth: dict[str, int] = {}
    for urn in order:
        depth[urn] = max((depth[first] + 1 for first, second in edges if second == urn and first in depth), default=0)
    found = grouped((layer, urn) for urn, layer in depth.items())
    return Layers(tuple(tuple(found[layer]) for layer in sorted(found)), frozenset(edges))


def without_shortcuts(edges: Iterable[Edge]) -> set[Edge]:
    """The edges that no path over others implies. All edges of a cycle stay."""
    edges = set(edges)
    after = grouped(edges)
    reach = {key: _reachable(key, after) for key in {key for edge in edges for key in edge}}

    def cyclic(one: str, other: str) -> bool:
        return one in reach[other] and other in reach[one]

    def implied(first: str, second: str) -> bool:
        between = (key for key in reach[first] if key not in (first, second) and second in reach[key])
        return not cyclic(first, second) and any(not cyclic(first, key) and not cyclic(key, second) for key in between)

    return {edge for edge in edges if not implied(*edge)}


def _reachable(start: str, after: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = set(after.get(waiting.pop(), ())) - found
        found |= fresh
        waiting += fresh
    return found


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
