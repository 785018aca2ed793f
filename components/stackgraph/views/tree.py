"""The graph as a person reads it: what is inside what, then what matters about it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from stackgraph.domain import NO_DOMAIN, Domain, Section
from stackgraph.graph.describe import (
    Words,
    describe,
    identity,
    is_kubernetes_object,
    protection,
    short_component_type,
    short_type,
    tells_all,
)
from stackgraph.graph.document import Graph, Resource, is_component, is_opaque, is_read
from stackgraph.graph.structure import Structure
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import joined, plain, text, unique
from stackgraph.graph.wording import ELLIPSIS, counted, shorten
from stackgraph.presentation.terminal import Paragraph, drawn, words
from stackgraph.views.layers import branches, division
from stackgraph.views.lines import (
    GAP,
    INDENT,
    LEAST_WIDTH,
    Line,
    Row,
    Span,
    abridged,
    braced,
    fitted,
    flowing,
    listing,
)
from stackgraph.views.summary import by_path, counts, not_seen, opaque, opaque_kind


def render_tree(graph: Graph, domain: Domain = NO_DOMAIN, *, colour: bool = False, width: int = 100) -> str:
    """The graph as text: a headline, components with their resources, and the sections of the domain.

    No line is longer than ``width`` (at least 40 are taken); ``colour`` adds ANSI colours.
    """
    width = max(width, LEAST_WIDTH)
    structure = Structure(graph)
    titled = {section.title: _section(section, width) for section in domain.sections(graph)}
    titled |= {
        "Outputs": _outputs(graph, width),
        "Not seen inside": _opaque(graph, domain.words, width),
        "Warnings": _warnings(graph, width),
    }
    sections = [list(_headline(graph, structure, width)), list(_Tree(structure, domain.words, width).inside("", ""))]
    sections += [[fitted([Span(title, "section")], width), *found] for title, lines in titled.items() if (found := list(lines))]
    first, *others = [section for section in sections if section]
    shown = drawn([*first, *(line for section in others for line in ("", *section))], width=width, colour=colour)
    legend = _legend(shown)
    return shown + (drawn(["", fitted([Span(legend, "dim")], width)], width=width, colour=colour) if legend else "")


# -- headline --------------------------------------------------------------------------------------------------------------------


def _headline(graph: Graph, structure: Structure, width: int) -> Iterator[Line]:
    yield fitted([Span(text(graph.stack), "bold"), Span(f"{GAP}project {text(graph.project)}", "dim")], width)
    found = counts(structure)
    parts = [f"{number} {words}" for number, words in found.families.values()]
    head = f"would create {counted(found.made, 'resource')}"
    yield flowing(parts, f"{head}: " if parts else head, "bold")
    if found.asides:
        yield fitted([Span("; ".join(found.asides), "dim")], width)


# -- tree ------------------------------------------------------------------------------------------------------------------------

_LABEL_WIDTH = 34


@dataclass(frozen=True)
class _Tree:
    structure: Structure
    words: Words
    width: int

    @cached_property
    def spacious(self) -> str:
        """Where blank lines set components apart."""
        return division(self.structure)

    def inside(self, parent: str, prefix: str) -> Iterator[Line]:
        """Lines for everything inside a resource."""
        leaves, branches = _rows(self.structure, parent)
        column = min(max((len(_label(members)) for members in leaves), default=0), _LABEL_WIDTH)
        rows = [*leaves, *((branch,) for branch in branches)]
        owner = self.structure.graph.by_urn[parent].name if parent else ""
        for number, members in enumerate(rows):
            final = number == len(rows) - 1
            if number and parent == self.spacious and number >= len(leaves):
                yield fitted([Span(f"{prefix}│" if parent else "", "dim")], self.width)
            lead = Span(prefix + ("" if not parent else "└─ " if final else "├─ "), "dim")
            below = prefix + ("" if not parent else "   " if final else "│  ")
            if number < len(leaves):
                yield from self._leaf(lead, below, members, [_within(member, owner) for member in members], column)
                continue
            yield self._branch(lead, members[0])
            yield from self.inside(members[0].urn, below)

    def _branch(self, lead: Span, resource: Resource) -> Line:
        count = sum(not is_read(below) for below in self.structure.inside(resource.urn))
        kind = short_component_type(resource.type) if is_component(resource) else short_type(resource.type)
        facts = "" if is_component(resource) else describe(resource, self.words)
        spans = [lead, Span(text(resource.name), "bold"), Span(GAP + kind, "type"), Span(f"{GAP}{facts}" if facts else "")]
        spans.append(Span(_marks(resource), "opaque", whole=True))
        return fitted(spans, self.width, right=counted(count, "resource"))

    def _leaf(self, lead: Span, under: str, members: Sequence[Resource], names: Sequence[str], column: int) -> Iterator[Line]:
        """A resource, or those of one type with what tells them apart: facts in up to two lines, or else names in one."""
        title = Span(f"{shorten(_label(members), column):{column}}", "type")
        one = members[0]
        if len(members) == 1:
            facts = describe(one, self.words)
            ending = Span(_marks(one), "opaque", whole=True)
            yield fitted([lead, title, Span(GAP + names[0]), Span(GAP + facts if facts else ""), ending], self.width)
            return
        marks = _parenthesis(_common(protection(member) for member in members))
        room = self.width - len(lead.text) - column - len(GAP) - len(marks)
        facts = [describe(member, self.words) for member in members]
        if not tells_all(one):
            facts = [joined(name, fact) for name, fact in zip(names, facts, strict=True)] if all(facts) else []
        if is_kubernetes_object(one) or not all(facts) or not facts:
            shown = braced(names, room)
            yield fitted([lead, title, Span(GAP + shown), Span(marks, "opaque", whole=True)], self.width)
            return
        facts = unique(facts)
        begin = next((n for n in range(len(facts), 0, -1) if len(", ".join(facts[:n])) < room), 1)
        more = facts[begin:]
        shown = ", ".join(facts[:begin]) + ("," if more else "")
        yield fitted([lead, title, Span(GAP + shown), Span(marks, "opaque", whole=True)], self.width)
        if more:
            start = f"{under}{' ' * (column + len(GAP))}"
            yield fitted([Span(start, "dim"), Span(abridged(more, self.width - len(start)))], self.width)


def _rows(structure: Structure, parent: str) -> tuple[list[tuple[Resource, ...]], list[Resource]]:
    """Resources with nothing inside, those of a type together, then components and other resources with something inside."""
    leaves: dict[str, list[Resource]] = {}
    below = branches(structure, parent)
    urns = {resource.urn for resource in below}
    for resource in structure.ordered(parent):
        if resource.urn not in urns:
            alone = is_opaque(resource) or is_read(resource) or resource.is_provider
            leaves.setdefault(resource.urn if alone else resource.type, []).append(resource)
    return [tuple(members) for members in leaves.values()], below


def _label(members: Sequence[Resource]) -> str:
    name = short_type(members[0].type)
    return name if len(members) == 1 else f"{len(members)} × {name}"


def _within(resource: Resource, owner: str) -> str:
    """The resource's identity; what only repeats the name of the component it is in is left out: ``…vpc`` in ``net``."""
    name = identity(resource)
    repeated = bool(owner) and name == text(resource.name) and name.startswith(f"{text(owner)}-")
    return ELLIPSIS + name.removeprefix(f"{text(owner)}-") if repeated else name


def _marks(resource: Resource) -> str:
    words = [*protection(resource)]
    if is_opaque(resource):
        words.insert(0, f"{opaque_kind(resource)}, not seen inside")
    return _parenthesis(words)


def _parenthesis(words: Sequence[str]) -> str:
    return f" ({', '.join(words)})" if words else ""


def _common(groups: Iterable[tuple[str, ...]]) -> list[str]:
    """Words of all groups, each with how many have it unless all do."""
    every = list(groups)
    counts = Counter(word for group in every for word in group)
    return [word if count == len(every) else f"{count} {word}" for word, count in counts.items()]


# -- sections --------------------------------------------------------------------------------------------------------------------


def _section(section: Section, width: int) -> Iterator[Line]:
    for found in section.listings:
        yield from listing(found.header, found.rows, found.style)
    words, amount = section.total
    if amount:
        yield fitted([Span(f"{INDENT}{words}: {amount}", "bold")], width)


def _outputs(graph: Graph, width: int) -> Iterator[Line]:
    """Values beside their names where they fit, else below: people copy commands from here."""
    short: list[Row] = []
    found = list(by_path(plain(graph.outputs)))
    column = max((len(key) for key, _ in found), default=0)
    for key, values in found:
        if len(values) == 1 and len(INDENT) + column + len(GAP) + len(values[0]) <= width:
            short.append(Row((key, values[0])))
            continue
        yield from listing((), short, column=column)
        short = []
        yield fitted([Span(INDENT + key)], width)
        yield from (Paragraph(words(value), INDENT * 3, fold=True) for value in values)
    yield from listing((), short, column=column)


def _opaque(graph: Graph, words: Words, width: int) -> Iterator[Line]:
    found = opaque(graph, words)
    if not found:
        return
    yield fitted([Span(f"{INDENT}{not_seen(found)}", "opaque")], width)
    yield from listing((), [Row((item.name, item.type, item.detail)) for item in found])


def _warnings(graph: Graph, width: int) -> Iterator[Line]:
    for warning in graph.warnings:
        yield Paragraph(words(text(warning), "yellow"), words(f"{INDENT}! ", "yellow"), fold=True)


def _legend(shown: str) -> str:
    """What the marks in the text stand for, where it has any."""
    marks = []
    if any(is_token(word.strip(",:;()")) and "<" in word for word in shown.split()):
        marks.append("<a.b> is known when a is deployed")
    if "[secret]" in shown:
        marks.append("[secret] is never shown")
    return "; ".join(marks)
