"""Text for a terminal: lines of styled spans that keep within a width, lists that say how much they leave out, tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stackgraph.graph.values import unique
from stackgraph.graph.wording import ELLIPSIS, shorten

LEAST_WIDTH = 40
GAP = "  "
INDENT = "  "

_LEAST_CELL = 8
_STYLES = {"bold": "1", "dim": "2", "type": "36", "opaque": "33", "warning": "33", "section": "1;4"}


@dataclass(frozen=True)
class Span:
    text: str
    style: str = ""
    whole: bool = False
    """Shortened only where shortening all others is not enough."""


Line = tuple[Span, ...]


@dataclass(frozen=True)
class Row:
    """Cells of a table, and below them lists with what they are lists of."""

    cells: tuple[str, ...]
    details: Mapping[str, Sequence[str]] = field(default_factory=dict)


def listing(header: tuple[str, ...], rows: Sequence[Row], width: int, style: str = "", column: int = 0) -> Iterator[Line]:
    """Rows in columns. A list in the last column takes as many lines as it needs. ``column`` is the least width of the first."""
    if not rows:
        return
    table = [header, *(row.cells for row in rows)] if header else [row.cells for row in rows]
    widths = _column_widths(table, width - len(INDENT), column)
    if header:
        yield (Span(INDENT + _cells(header, widths), "dim"),)
    for row in rows:
        first = INDENT + "".join(f"{shorten(cell, room):{room}}{GAP}" for cell, room in zip(row.cells, widths[:-1], strict=False))
        yield from wrapped(row.cells[-1].split(", "), width, first=first, style=style)
        for name, parts in row.details.items():
            if parts := unique(parts):
                yield from wrapped(parts, width, first=INDENT * 3 + (f"{name} " if name else ""), style="dim")


def _column_widths(table: Sequence[Sequence[str]], width: int, column: int) -> list[int]:
    """What the cells need; where that is too much, the widest columns give way first."""
    room = width - len(GAP) * (len(table[0]) - 1)
    widths = [min(max(len(cells[number]) for cells in table), room) for number in range(len(table[0]))]
    widths[0] = min(max(widths[0], column), room)
    while sum(widths) > room:
        widths[widths.index(max(widths))] -= 1
    return widths


def _cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(f"{shorten(cell, room):{room}}" for cell, room in zip(cells, widths, strict=True)).rstrip()


def wrapped(parts: Sequence[str], width: int, *, first: str, by: str = ", ", style: str = "") -> Iterator[Line]:
    """The parts one after the other, in as many lines as it takes; further lines begin where the parts began."""
    indent = " " * min(len(first), width - LEAST_WIDTH // 2)
    line, begun = first, False
    for number, part in enumerate(parts):
        part = shorten(part, width - len(by) - len(indent if begun else first))
        piece = part + (by if number < len(parts) - 1 else "")
        if begun and len(line) + len(piece.rstrip()) > width:
            yield (Span(line.rstrip(), style),)
            line = indent
        line += piece
        begun = True
    if begun or first.strip():
        yield (Span(shorten(line.rstrip(), width), style),)


def fitted(spans: Sequence[Span], width: int, right: str = "") -> Line:
    """The spans in one line, the longest ones shortened until they fit, with a text at the line's right end."""
    room = width - (len(right) + len(GAP) if right else 0)
    cut = list(spans)
    while (excess := sum(len(span.text) for span in cut) - room) > 0:
        longest = max(range(len(cut)), key=lambda n: (not cut[n].whole and len(cut[n].text) > _LEAST_CELL, len(cut[n].text)))
        length = len(cut[longest].text)
        cut[longest] = replace(cut[longest], text=shorten(cut[longest].text, max(length - excess, length // 2)))
    if right:
        gap = width - len(right) - sum(len(span.text) for span in cut)
        cut.append(Span(" " * gap + right, "dim"))
    return tuple(cut)


def painted(line: Line, colour: bool) -> str:
    if not colour:
        return "".join(span.text for span in line).rstrip()
    return "".join(f"\x1b[{_STYLES[span.style]}m{span.text}\x1b[0m" if span.style and span.text else span.text for span in line)


def listed(parts: Sequence[str], room: int, before: str = "", after: str = "") -> str:
    """As many of the parts as fit, and how many more there are."""
    for number in range(len(parts), 0, -1):
        more = f", {ELLIPSIS} {len(parts) - number} more" if number < len(parts) else ""
        line = f"{before}{', '.join(parts[:number])}{more}{after}"
        if len(line) <= room:
            return line
    return shorten(f"{before}{', '.join(parts)}{after}", max(room, 0))


def braced(names: Sequence[str], room: int) -> str:
    """Names with what they share written once: ``net-{public, private}-routes``."""
    first = _shared(names)
    last = _shared([name[len(first) :][::-1] for name in names])[::-1]
    middles = [name[len(first) : len(name) - len(last)] for name in names]
    if len(names) < 2 or not all(middles) or (len(first) + len(last) < 4 and first != ELLIPSIS):
        return listed(names, room)
    return listed(middles, room, f"{first}{{", f"}}{last}")


def _shared(names: Sequence[str]) -> str:
    """The whole words that all names begin with."""
    low, high = min(names), max(names)
    start = low[: next((n for n, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), len(low))]
    return start[: max(start.rfind(mark) for mark in ("-", "/", ".", ELLIPSIS)) + 1]
