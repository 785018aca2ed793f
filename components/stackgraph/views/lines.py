"""Lines of the tree: spans shortened to fit, tables with details, lists that say how many items they leave out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from stackgraph.domain import Row
from stackgraph.graph.values import unique
from stackgraph.graph.wording import ELLIPSIS, GAP, shorten
from stackgraph.presentation.terminal import WIDTH, Columns, Paragraph, listed, words

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
