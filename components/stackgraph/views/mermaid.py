"""Renders components and their dependencies as a Mermaid flowchart, for documents and pull requests."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from stackgraph.graph.describe import describe, kind, short_type
from stackgraph.graph.document import CHART_TYPE, Graph, is_component, is_opaque
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import text
from stackgraph.graph.wording import counted, numbered, shorten
from stackgraph.views.summary import without_shortcuts

_MOST_NODES = 60
_MOST_LABEL = 40


def render_mermaid(graph: Graph) -> str:
    """A ``flowchart``: a node for each component, boxes around nested components, dashed nodes for charts and remote components.

    Arrows point from what must exist first to what depends on it. Arrows implied by others are left out. Loose resources are one
    node for each package. If a nested graph has more than 60 nodes, only outer components are shown.
    """
    structure = Structure(graph)
    depth = max((len(structure.above(urn)) for urn in structure.parent), default=1)
    diagram = _Diagram(structure, depth)
    while len(diagram.labels) > _MOST_NODES and depth > 1:
        depth -= 1
        diagram = _Diagram(structure, depth)
    return diagram.render()


class _Diagram:
    """Components down to ``depth`` as nodes and boxes.

    The key of a node is the URN that it shows. Loose resources are those directly inside a box, or outside of every component.
    They have one node for each package, whose key is the URN of the box, empty for none, and the package.
    """

    def __init__(self, structure: Structure, depth: int) -> None:
        self._structure = structure
        self._by_urn = structure.graph.by_urn
        self._components = {urn: self._components_around(urn, depth) for urn in structure.parent}
        self._boxes = {urn for chain in self._components.values() for urn in chain[:-1]} | {""}
        self.labels: dict[str, str] = {}
        self._box_of: dict[str, str] = {}
        self._opaque_owner: dict[str, str] = {}
        loose: Counter[tuple[str, str]] = Counter()
        self._order = tuple(self._in_order(""))
        for urn in self._order:
            owner = self._owner(urn)
            if is_component(self._by_urn[urn]) and owner == urn:
                if urn not in self._boxes:
                    self._add(urn, self._owner(urn, 2), self._component_label(urn))
            elif is_opaque(self._by_urn[urn]):
                self._add(urn, owner if owner in self._boxes else self._owner(owner, 2), self._opaque_label(urn))
                self._opaque_owner[urn] = owner
            elif self._node(urn) not in self._by_urn:
                loose[owner, _package(self._by_urn[urn].type)] += 1
        for (box, package), count in loose.items():
            self._add(f"{box}|{package}", box, _label(counted(count, *_LOOSE.get(package, (f"{package} resource",)))))
        edges = {(self._node(other), self._node(urn)) for urn, others in structure.needs.items() for other in others}
        self.edges = without_shortcuts(edge for edge in edges if not self._around(*edge) and not self._around(*reversed(edge)))

    def render(self) -> str:
        ids = _ids({key: self._name(key) for key in (*self._boxes, *self.labels) if key})
        lines = ["flowchart TB", *self._box("", ids, "  ")]
        lines += sorted(f"  {ids[first]} --> {ids[second]}" for first, second in self.edges)
        lines += sorted(f"  {ids[owner]} -.- {ids[key]}" for key, owner in self._opaque_owner.items() if owner in self.labels)
        if self._opaque_owner:
            lines.append("  classDef opaque stroke-dasharray: 5 5")
        return "\n".join(lines) + "\n"

    def _box(self, box: str, ids: Mapping[str, str], indent: str) -> Iterator[str]:
        for key, around in self._box_of.items():
            if around == box:
                opaque = ":::opaque" if key in self._opaque_owner else ""
                yield f'{indent}{ids[key]}["{self.labels[key]}"]{opaque}'
        for inner in self._order:
            if inner in self._boxes and self._owner(inner, 2) == box:
                yield f'{indent}subgraph {ids[inner]}["{_label(self._name(inner), kind(self._by_urn[inner]))}"]'
                yield from self._box(inner, ids, indent + "  ")
                yield f"{indent}end"

    def _add(self, key: str, box: str, label: str) -> None:
        self.labels[key] = label
        self._box_of[key] = box

    def _components_around(self, urn: str, depth: int) -> tuple[str, ...]:
        """The components around a resource and the resource itself if it is one, outermost first, down to ``depth``."""
        return tuple(above for above in self._structure.above(urn) if is_component(self._by_urn[above]))[:depth]

    def _owner(self, urn: str, level: int = 1) -> str:
        """The innermost shown component around a resource, or the one at a further level outwards; ``""`` if there is none."""
        chain = self._components.get(urn, ())
        return chain[-level] if len(chain) >= level else ""

    def _node(self, urn: str) -> str:
        """The key of the node or box that shows a resource."""
        owner = self._owner(urn)
        if owner not in self._boxes or owner == urn:
            return owner
        opaque = next((above for above in self._structure.above(urn) if is_opaque(self._by_urn[above])), "")
        return opaque or f"{owner}|{_package(self._by_urn[urn].type)}"

    def _around(self, one: str, other: str) -> bool:
        """Whether ``one`` is ``other`` or a box around it. Mermaid draws no arrow between such."""
        while other and other != one:
            other = self._box_of[other] if other in self._box_of else self._owner(other, 2)
        return other == one

    def _in_order(self, parent: str) -> Iterator[str]:
        """All descendants in creation order."""
        for resource in self._structure.ordered(parent):
            yield resource.urn
            yield from self._in_order(resource.urn)

    def _component_label(self, urn: str) -> str:
        resource = self._by_urn[urn]
        return _label(resource.name, kind(resource), counted(self._structure.made_inside(urn), "resource"))

    def _opaque_label(self, urn: str) -> str:
        resource = self._by_urn[urn]
        if resource.type == CHART_TYPE:
            return _label(resource.name, "chart", describe(resource, {}))
        return _label(resource.name, short_type(resource.type), "remote component")

    def _name(self, key: str) -> str:
        if key in self._by_urn:
            return self._by_urn[key].name
        box, _, package = key.rpartition("|")
        return f"{self._by_urn[box].name if box else 'stack'} {package}"


_LOOSE = {
    "aws": ("AWS resource",),
    "kubernetes": ("Kubernetes object",),
    "pulumi": ("provider",),
}


def _package(type_: str) -> str:
    return text(type_).partition(":")[0]


def _ids(names: Mapping[str, str]) -> dict[str, str]:
    """Identifiers by key: letters, digits and underscores, none of them a Mermaid keyword."""
    order = sorted(names, key=lambda key: (names[key], key))
    return numbered(((key, "n_" + re.sub(r"[^A-Za-z0-9]+", "_", names[key]).strip("_")) for key in order), by="_")


def _label(*lines: str) -> str:
    """The lines as the text of a quoted label, without markup."""
    return "<br/>".join(_escaped(shorten(text(line), _MOST_LABEL)) for line in lines if line)


def _escaped(line: str) -> str:
    return re.sub(r"[^\w .,:/()+×→…-]", lambda found: f"#{ord(found[0])};", line)
