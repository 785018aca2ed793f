"""The graph's components and which stands on which, as a Mermaid flowchart for documents and pull requests."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from stackgraph.graph.describe import describe, short_component_type, short_type
from stackgraph.graph.document import CHART_TYPE, Graph, is_component, is_opaque, is_read
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import text
from stackgraph.graph.wording import shorten
from stackgraph.views.layers import without_shortcuts

_MOST_NODES = 60
_MOST_LABEL = 40


def render_mermaid(graph: Graph) -> str:
    """A ``flowchart``: a node for each component, boxes around components inside others, dashed nodes for charts and remote ones.

    An arrow leads from what must exist first to what stands on it; arrows that follow from others are left out. Resources outside
    of every component are one node for each provider package. Nested graphs of more than 60 nodes show outer components only.
    """
    structure = Structure(graph)
    depth = max((len(structure.above(urn)) for urn in structure.parent), default=1)
    diagram = _Diagram(structure, depth)
    while len(diagram.labels) > _MOST_NODES and depth > 1:
        depth -= 1
        diagram = _Diagram(structure, depth)
    return diagram.render()


class _Diagram:
    """Components down to ``depth`` as nodes and boxes. Nodes have the key of what they show: a URN, or that of a box with the
    package of the resources that lie loose in it.
    """

    def __init__(self, structure: Structure, depth: int) -> None:
        self._composition = structure
        self._depth = depth
        by_urn = structure.graph.by_urn
        self._components = {urn: self._components_above(urn) for urn in structure.parent}
        self._boxes = {chain[number] for chain in self._components.values() for number in range(len(chain) - 1)} | {""}
        self.labels: dict[str, str] = {}
        self._box_of: dict[str, str] = {}
        self._opaque_owner: dict[str, str] = {}
        loose: Counter[tuple[str, str]] = Counter()
        self._order = tuple(self._in_order(""))
        for urn in self._order:
            chain = self._components[urn]
            if is_component(by_urn[urn]) and chain[-1:] == (urn,):
                if urn not in self._boxes:
                    self._add(urn, chain[-2] if len(chain) > 1 else "", self._component_label(urn))
            elif is_opaque(by_urn[urn]):
                owner = chain[-1] if chain else ""
                box = owner if owner in self._boxes else self._components[owner][-2] if len(self._components[owner]) > 1 else ""
                self._add(urn, box, self._opaque_label(urn))
                self._opaque_owner[urn] = owner
            elif self._home(urn) not in by_urn:
                loose[(chain[-1] if chain else "", _package(by_urn[urn].type))] += 1
        for (box, package), count in loose.items():
            one, many = _LOOSE.get(package, (f"{package} resource", f"{package} resources"))
            self._add(f"{box}|{package}", box, _label(f"{count} {one if count == 1 else many}"))
        edges = {(self._home(other), self._home(urn)) for urn, others in structure.needs.items() for other in others}
        self.edges = without_shortcuts(edge for edge in edges if not self._around(*edge) and not self._around(*reversed(edge)))

    def render(self) -> str:
        ids = _ids({**{box: self._name(box) for box in self._boxes if box}, **{key: self._name(key) for key in self.labels}})
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
            chain = self._components[inner]
            if inner in self._boxes and (chain[-2] if len(chain) > 1 else "") == box:
                yield f'{indent}subgraph {ids[inner]}["{_label(self._name(inner), self._type(inner))}"]'
                yield from self._box(inner, ids, indent + "  ")
                yield f"{indent}end"

    def _add(self, key: str, box: str, label: str) -> None:
        self.labels[key] = label
        self._box_of[key] = box

    def _components_above(self, urn: str) -> tuple[str, ...]:
        """The shown components that a resource is in, itself included, outermost first."""
        by_urn = self._composition.graph.by_urn
        return tuple(above for above in self._composition.above(urn) if is_component(by_urn[above]))[: self._depth]

    def _home(self, urn: str) -> str:
        """The node or box that shows a resource."""
        chain = self._components[urn]
        owner = chain[-1] if chain else ""
        if owner not in self._boxes or owner == urn:
            return owner
        by_urn = self._composition.graph.by_urn
        opaque = next((above for above in self._composition.above(urn) if is_opaque(by_urn[above])), "")
        return opaque or f"{owner}|{_package(by_urn[urn].type)}"

    def _around(self, one: str, other: str) -> bool:
        """Whether they are the same, or the first is a box around the second: between such, Mermaid draws nothing."""
        while other and other != one:
            chain = self._components.get(other, ())
            other = self._box_of[other] if other in self._box_of else chain[-2] if len(chain) > 1 else ""
        return other == one

    def _in_order(self, parent: str) -> Iterator[str]:
        """Everything inside, what can be made first first."""
        for resource in self._composition.ordered(parent):
            yield resource.urn
            yield from self._in_order(resource.urn)

    def _component_label(self, urn: str) -> str:
        count = sum(not is_read(below) for below in self._composition.inside(urn))
        return _label(self._name(urn), self._type(urn), f"{count} resource{'' if count == 1 else 's'}")

    def _opaque_label(self, urn: str) -> str:
        resource = self._composition.graph.by_urn[urn]
        if resource.type == CHART_TYPE:
            return _label(resource.name, "chart", describe(resource, {}))
        return _label(resource.name, short_type(resource.type), "remote component")

    def _type(self, urn: str) -> str:
        return short_component_type(self._composition.graph.by_urn[urn].type)

    def _name(self, key: str) -> str:
        by_urn = self._composition.graph.by_urn
        if key in by_urn:
            return by_urn[key].name
        box, _, package = key.rpartition("|")
        return f"{by_urn[box].name if box else 'stack'} {package}"


_LOOSE = {
    "aws": ("AWS resource", "AWS resources"),
    "kubernetes": ("Kubernetes object", "Kubernetes objects"),
    "pulumi": ("provider", "providers"),
}


def _package(type_: str) -> str:
    return text(type_).partition(":")[0]


def _ids(names: Mapping[str, str]) -> dict[str, str]:
    """Identifiers by key: letters, digits and underscores, none of them a word of Mermaid's."""
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for key in sorted(names, key=lambda key: (names[key], key)):
        plain = "n_" + re.sub(r"[^A-Za-z0-9]+", "_", names[key]).strip("_")
        found, number = plain, 2
        while found in taken:
            found, number = f"{plain}_{number}", number + 1
        taken.add(found)
        ids[key] = found
    return ids


def _label(*lines: str) -> str:
    """The lines as text of a quoted label, in which nothing is markup."""
    return "<br/>".join(_escaped(shorten(text(line), _MOST_LABEL)) for line in lines if line)


def _escaped(line: str) -> str:
    return re.sub(r"[^\w .,:/()+×→…-]", lambda found: f"#{ord(found[0])};", line)
