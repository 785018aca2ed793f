"""Renders the graph as text: the tree of resources, then the sections of a domain, with spans shortened to fit, tables with
details, and lists that say how many items they leave out.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from stackgraph.domain import NO_DOMAIN, Domain, Row, Section
from stackgraph.graph.describe import (
    Words,
    describe,
    is_kubernetes_object,
    kind,
    name_within,
    protection,
    short_type,
    tells_all,
)
from stackgraph.graph.document import Graph, Resource, is_component, is_opaque, is_read
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import grouped, is_token, joined, plain, text, unique
from stackgraph.graph.wording import ELLIPSIS, GAP, counted, shorten
from stackgraph.presentation.terminal import WIDTH, Columns, Paragraph, copied, drawn, listed, words
from stackgraph.views.summary import (
    ANSWERS,
    arguments,
    by_path,
    counts,
    division,
    leaves_and_branches,
    marks,
    opaque,
    opaque_counts,
)

LEAST_WIDTH = 40
INDENT = "  "

_LEAST_CELL = 8
_STYLES = {
    "": "",
    "bold": "bold",
    "dim": "dim",
    "type": "cyan",
    "opaque": "yellow",
    "warning": "yellow",
    "section": "bold underline",
}


Line = RenderableType


@dataclass(frozen=True)
class Span:
    text: str
    style: str = ""
    whole: bool = False
    """Shortened only if shortening all other spans is not enough."""


def listing(header: tuple[str, ...], rows: Sequence[Row], style: str = "", column: int = 0) -> Iterator[Line]:
    """Rows in columns, with their details below. ``column`` is the minimum width of the first column."""
    if not rows:
        return
    items: list[Line | tuple[Text, ...]] = [tuple(words(cell, "dim") for cell in header)] if header else []
    for row in rows:
        items.append(tuple(listed(cell.split(", "), _STYLES[style]) for cell in row.cells))
        for name, parts in row.details.items():
            if parts := unique(parts):
                items.append(flowing(parts, INDENT * 3 + (f"{name} " if name else ""), "dim"))
    yield Columns(items, indent=len(INDENT), least=column, fold=True, headings=int(bool(header)))


def flowing(parts: Sequence[str], first: str, style: str) -> Paragraph:
    """The parts joined by commas, on as many lines as needed."""
    return Paragraph(listed(parts, _STYLES[style]), words(first, _STYLES[style]), fold=True)


def fitted(spans: Sequence[Span], width: int, right: str = "") -> Text:
    """The spans on one line, the longest ones shortened to fit, with a text at the right end."""
    room = width - (cell_len(right) + len(GAP) if right else 0)
    cut = list(spans)
    while (excess := sum(cell_len(span.text) for span in cut) - room) > 0:
        longest = max(range(len(cut)), key=lambda n: (not cut[n].whole and len(cut[n].text) > _LEAST_CELL, len(cut[n].text)))
        length = len(cut[longest].text)
        cut[longest] = replace(cut[longest], text=shorten(cut[longest].text, max(length - excess, length // 2)))
    if right:
        # On a wider line eyes would lose the row across the gap.
        gap = min(width, WIDTH) - cell_len(right) - sum(cell_len(span.text) for span in cut)
        cut.append(Span(" " * max(gap, len(GAP)) + right, "dim"))
    line = Text()
    for span in cut:
        line.append_text(words(span.text, _STYLES[span.style]))
    return line


def abridged(parts: Sequence[str], room: int, before: str = "", after: str = "") -> str:
    """As many parts as fit, and the number of further ones."""
    for number in range(len(parts), 0, -1):
        more = f", {ELLIPSIS} {len(parts) - number} more" if number < len(parts) else ""
        line = f"{before}{', '.join(parts[:number])}{more}{after}"
        if len(line) <= room:
            return line
    return shorten(f"{before}{', '.join(parts)}{after}", max(room, 0))


def braced(names: Sequence[str], room: int) -> str:
    """Names with their common parts written once: ``net-{public, private}-routes``."""
    first = _shared(names)
    last = _shared([name[len(first) :][::-1] for name in names])[::-1]
    middles = [name[len(first) : len(name) - len(last)] for name in names]
    if len(names) < 2 or not all(middles) or (len(first) + len(last) < 4 and first != ELLIPSIS):
        return abridged(names, room)
    return abridged(middles, room, f"{first}{{", f"}}{last}")


def _shared(names: Sequence[str]) -> str:
    """The prefix that all names share, up to a whole word."""
    low, high = min(names), max(names)
    start = low[: next((n for n, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), len(low))]
    return start[: max(start.rfind(mark) for mark in ("-", "/", ".", ELLIPSIS)) + 1]


def render_tree(graph: Graph, domain: Domain = NO_DOMAIN, *, colour: bool = False, width: int = WIDTH) -> str:
    """The graph as text: a headline, components with their resources, and the sections of the domain.

    Lines have at most ``width`` columns (40 or more); ``colour`` adds ANSI colours.
    """
    width = max(width, LEAST_WIDTH)
    structure = Structure(graph)
    titled = {section.title: _section(section) for section in domain.sections(graph)}
    titled |= {
        "Outputs": _outputs(graph, width),
        "Opaque resources": _opaque(graph, domain.words),
        "Provider functions": _functions(graph),
        "Warnings": _warnings(graph, width),
    }
    sections = [list(_headline(graph, structure, domain, width)), list(_Tree(structure, domain.words, width).inside("", ""))]
    sections += [[fitted([Span(title, "section")], width), *found] for title, lines in titled.items() if (found := list(lines))]
    first, *others = [section for section in sections if section]
    shown = drawn([*first, *(line for section in others for line in ("", *section))], width=width, colour=colour)
    legend = _legend(shown)
    return shown + (drawn(["", words(legend, "dim")], width=width, colour=colour) if legend else "")


# -- headline --------------------------------------------------------------------------------------------------------------------


def _headline(graph: Graph, structure: Structure, domain: Domain, width: int) -> Iterator[Line]:
    yield fitted([Span(text(graph.stack), "bold"), Span(f"{GAP}project {text(graph.project)}", "dim")], width)
    found = counts(structure)
    parts = [f"{number} {words}" for number, words in found.families.values()]
    head = f"would create {counted(found.made, 'resource')}"
    yield flowing(parts, f"{head}: " if parts else head, "bold")
    if found.asides:
        yield words("; ".join(found.asides), "dim")
    yield from (Paragraph(words(note), INDENT, fold=True) for note in domain.notes(graph))


# -- tree ------------------------------------------------------------------------------------------------------------------------

_LABEL_WIDTH = 34


@dataclass(frozen=True)
class _Tree:
    structure: Structure
    words: Words
    width: int

    @cached_property
    def spacious(self) -> str:
        """The URN of the resource whose components blank lines separate."""
        return division(self.structure)

    def inside(self, parent: str, prefix: str) -> Iterator[Line]:
        """Lines for everything inside a resource. Leaves of one type share a row, unless they deserve their own."""
        found, branches = leaves_and_branches(self.structure, parent)
        alone = {leaf.urn for leaf in found if is_opaque(leaf) or is_read(leaf) or leaf.is_provider}
        leaves = grouped((leaf.urn if leaf.urn in alone else leaf.type, leaf) for leaf in found).values()
        column = min(max((len(_label(members)) for members in leaves), default=0), _LABEL_WIDTH)
        rows = [*leaves, *([branch] for branch in branches)]
        owner = self.structure.graph.by_urn.get(parent)
        for number, members in enumerate(rows):
            final = number == len(rows) - 1
            if number and parent == self.spacious and number >= len(leaves):
                yield fitted([Span(f"{prefix}│" if parent else "", "dim")], self.width)
            lead = Span(prefix + ("" if not parent else "└─ " if final else "├─ "), "dim")
            below = prefix + ("" if not parent else "   " if final else "│  ")
            if number < len(leaves):
                names = [name_within(member, owner, ELLIPSIS) for member in members]
                yield from self._leaf(lead, below, members, names, column)
                continue
            yield self._branch(lead, members[0])
            yield from self.inside(members[0].urn, below)

    def _branch(self, lead: Span, resource: Resource) -> Line:
        facts = "" if is_component(resource) else describe(resource, self.words)
        spans = [lead, Span(text(resource.name), "bold"), Span(GAP + kind(resource), "type"), Span(GAP + facts if facts else "")]
        spans.append(_remarks(marks(resource)))
        return fitted(spans, self.width, right=counted(self.structure.made_inside(resource.urn), "resource"))

    def _leaf(self, lead: Span, under: str, members: Sequence[Resource], names: Sequence[str], column: int) -> Iterator[Line]:
        """One resource, or several of one type with what distinguishes them: facts on up to two lines, or else names on one."""
        title = Span(f"{shorten(_label(members), column):{column}}", "type")
        one = members[0]
        facts = [describe(member, self.words) for member in members]
        if len(members) == 1:
            spans = [lead, title, Span(GAP + names[0]), Span(GAP + facts[0] if facts[0] else ""), _remarks(marks(one))]
            over = sum(len(span.text) for span in spans) > self.width and len(spans[4].text) > 0
            yield fitted(spans[: 3 if over else 5], self.width)
            if over:
                yield fitted([Span(f"{under}{' ' * column}", "dim"), *spans[3:]], self.width)
            return
        remarks = _remarks(_common(protection(member) for member in members))
        room = self.width - len(lead.text) - column - len(GAP) - len(remarks.text)
        if not tells_all(one):
            facts = [joined(name, fact) for name, fact in zip(names, facts, strict=True)] if all(facts) else []
        if is_kubernetes_object(one) or not all(facts) or not facts:
            yield fitted([lead, title, Span(GAP + braced(names, room)), remarks], self.width)
            return
        facts = unique(facts)
        begin = next((n for n in range(len(facts), 0, -1) if len(", ".join(facts[:n])) < room), 1)
        more = facts[begin:]
        shown = ", ".join(facts[:begin]) + ("," if more else "")
        yield fitted([lead, title, Span(GAP + shown), remarks], self.width)
        if more:
            start = f"{under}{' ' * (column + len(GAP))}"
            yield fitted([Span(start, "dim"), Span(abridged(more, self.width - len(start)))], self.width)


def _label(members: Sequence[Resource]) -> str:
    name = short_type(members[0].type)
    return name if len(members) == 1 else f"{len(members)} × {name}"


def _remarks(words: Sequence[str]) -> Span:
    return Span(f" ({', '.join(words)})" if words else "", "opaque", whole=True)


def _common(groups: Iterable[tuple[str, ...]]) -> list[str]:
    """The words of all groups, each with the number of groups that have it unless all do."""
    every = list(groups)
    counts = Counter(word for group in every for word in group)
    return [word if count == len(every) else f"{count} {word}" for word, count in counts.items()]


# -- sections --------------------------------------------------------------------------------------------------------------------


def _section(section: Section) -> Iterator[Line]:
    for found in section.listings:
        yield from listing(found.header, found.rows, found.style)
    what, amount = section.total
    if amount:
        yield words(f"{INDENT}{what}: {amount}", "bold")


def _outputs(graph: Graph, width: int) -> Iterator[Line]:
    """Values beside their names if they fit, otherwise below and unbroken: people copy commands from here."""
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
        yield from (copied(INDENT * 3 + value) for value in values)
    yield from listing((), short, column=column)


def _opaque(graph: Graph, known: Words) -> Iterator[Line]:
    found = opaque(graph, known)
    if not found:
        return
    yield words(f"{INDENT}{opaque_counts(graph)}", "yellow")
    yield from listing((), [Row((item.name, item.type, item.detail)) for item in found])


def _functions(graph: Graph) -> Iterator[Line]:
    rows = [
        Row((text(called.token), ANSWERS[called.answer], text(called.source)), {"": arguments(called)})
        for called in graph.functions
    ]
    yield from listing(("FUNCTION", "RESULT", "CALLED AT"), rows)


def _warnings(graph: Graph, width: int) -> Iterator[Line]:
    for warning in graph.warnings:
        yield Paragraph(words(text(warning), "yellow"), words(f"{INDENT}! ", "yellow"), fold=True)


def _legend(shown: str) -> str:
    """An explanation of the placeholders in the text."""
    marks = []
    if any(is_token(word.strip(",:;()")) and "<" in word for word in shown.split()):
        marks.append("<a.b> is known when a is deployed")
    if "[secret]" in shown:
        marks.append("[secret] is never shown")
    return "; ".join(marks)
