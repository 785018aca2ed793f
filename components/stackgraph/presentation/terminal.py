"""Draws text for a terminal with rich: paragraphs, columns, colours. Values cannot control the terminal.

Import this module only to draw for people: JSON output and ``--help`` must not load rich.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import chain, count, repeat

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from stackgraph.problems import printable

WIDTH = 110
"""Columns of views that no terminal bounds."""

UNBOUND = 10_000
"""Width for lists with one entry per line, however long, which people search and copy from."""

_UNBROKEN = "\ue000"
_GAP = 2
_INDENT = 4
_LEAST_BODY, _LEAST_NAMES, _LONGEST = 20, 24, 40
_NOTHING = ("", "-")
_LABEL = re.compile(r" *\S+ {2,}| +\w+: ")


def words(value: str, style: str = "") -> Text:
    """A literal text: brackets are not markup, control characters become spaces. On its own it is drawn on one line."""
    return Text().append(printable(value), style or None)


def listed(parts: Iterable[str], style: str = "") -> Text:
    """The parts joined by commas. Lines break only between parts."""
    return Text().append(", ".join(words(part).plain.replace(" ", _UNBROKEN) for part in parts), style or None)


def copied(value: str) -> Text:
    """A literal text on one line, however long: people copy it."""
    return Text(printable(value), no_wrap=True)


@dataclass(frozen=True)
class Paragraph:
    """Text wrapped between words. Words stay whole, so that names can be copied.

    ``first`` precedes the first line, ``further`` all others, which by default align with the first word. With ``fold``, words
    longer than a line are broken.
    """

    body: Text
    first: Text | str = ""
    further: str | None = None
    fold: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        first, body = _text(self.first), self.body.copy()
        further = " " * first.cell_len if self.further is None else self.further
        if first.cell_len > options.max_width - _LEAST_BODY:
            first, body, further = Text(), first.copy().append_text(body), further[:_INDENT]
        body.overflow = "fold" if self.fold else "ignore"
        room = options.max_width - max(first.cell_len, cell_len(further))
        lines = _breakable(body, room).wrap(console, room)
        for lead, line in zip(chain([first], repeat(further)), lines, strict=False):
            line.rstrip()
            yield Text.assemble(lead, line)


class Columns:
    """A table: each tuple in ``items`` is a row. Other items are drawn between rows, at any width.

    ``right`` holds the indexes of columns to right-align. If the table is too wide, the widest columns shrink and their cells
    wrap between words; where words are too long for that, columns of a table with so many ``headings`` stand below each row,
    with what those say of them: first those without any value, which show nothing there, then the widest. Cells of the first
    column are names: one that does not fit gets its own line.
    ``least`` and ``most`` bound the width of the first column; ``fold`` breaks names longer than a line.
    """

    def __init__(
        self,
        items: Iterable[tuple[Text | str, ...] | RenderableType],
        *,
        indent: int = 0,
        right: Collection[int] = (),
        least: int = 0,
        most: int = WIDTH,
        fold: bool = False,
        headings: int = 0,
    ) -> None:
        self._items = [tuple(_text(cell) for cell in item) if isinstance(item, tuple) else item for item in items]
        self._rows = [item for item in self._items if isinstance(item, tuple)]
        self._indent, self._right, self._fold = " " * indent, right, fold
        self._least, self._most, self._headings = least, most, headings

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths, below = self._widths(options.max_width)
        headings = zip(*self._rows[: self._headings], strict=True)
        named = [" ".join(cell.plain for cell in cells if cell.plain) for cells in headings]
        for position, item in enumerate(self._items):
            if not isinstance(item, tuple):
                yield _wrapped(item, options.max_width)
                continue
            if item[0].cell_len > widths[0]:
                line = Text(self._indent).append_text(item[0])
                yield Paragraph(item[0], self._indent, fold=True) if self._fold else _wrapped(line, options.max_width)
                item = (Text(), *item[1:])
            yield from self._lines(console, [cell for number, cell in enumerate(item) if number not in below], widths, below)
            said = [number for number in sorted(below) if item[number].plain not in _NOTHING]
            under = [Text(f"{named[number]}: " if named else "", "dim").append_text(item[number]) for number in said]
            if under and position >= self._headings:
                yield Paragraph(Text(" " * _GAP).join(under), self._indent + " " * _INDENT)

    def _widths(self, room: int) -> tuple[list[int], set[int]]:
        """The widths of columns, and the indexes of those below the rows."""
        columns = [[cell.cell_len for cell in cells] for cells in zip(*self._rows, strict=True)]
        if not columns:
            return [], set()
        first, *others = columns
        widths = [max(self._least, *(width for width in first if width <= self._most), 0), *map(max, others)]
        room += _GAP - len(self._indent)
        texts = (" ".join(cell.plain for cell in cells).replace(_UNBROKEN, " ") for cells in zip(*self._rows, strict=True))
        least = [min(max(map(len, text.split()), default=0), _LONGEST) for text in texts]
        least[0] = min(widths[0], _LEAST_NAMES)
        empty = [all(cell.plain in _NOTHING for cell in cells[self._headings :]) for cells in zip(*self._rows, strict=True)]
        beside, below = list(range(len(widths))), set[int]()
        while self._headings and len(beside) > 2 and sum(least[n] + _GAP for n in beside) > room:
            below.add(widest := max(beside[1:], key=lambda n: (empty[n], least[n], n)))
            beside.remove(widest)
        while sum(widths[n] + _GAP for n in beside) > room and any(widths[n] > 1 for n in beside):
            widths[max(beside, key=lambda n: (widths[n] > least[n], widths[n]))] -= 1
        return [widths[n] for n in beside], below

    def _lines(self, console: Console, cells: Sequence[Text], widths: Sequence[int], below: Collection[int]) -> Iterator[Text]:
        numbers = (number for number in count() if number not in below)
        wrapped = [
            _breakable(cell, width).wrap(console, width, justify="right" if number in self._right else "left", overflow="fold")
            for number, cell, width in zip(numbers, cells, widths, strict=False)
        ]
        blank = [Text(" " * width) for width in widths]
        for number in range(max(map(len, wrapped))):
            parts = [lines[number] if number < len(lines) else none for lines, none in zip(wrapped, blank, strict=True)]
            yield Text(self._indent).append_text(Text(" " * _GAP).join(parts))


def drawn(parts: Iterable[RenderableType], *, width: int = WIDTH, colour: bool = False) -> str:
    """The parts, each on new lines; an empty string is an empty line. No line ends in spaces."""
    file = StringIO()
    console = Console(
        file=file,
        width=width,
        height=100,  # otherwise rich asks the terminal
        color_system="standard" if colour else None,
        force_terminal=colour,
        no_color=not colour,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ={},  # the caller decides about colours
    )
    for part in parts:
        console.print(_wrapped(part, width), no_wrap=True, overflow="ignore", crop=False)
    return re.sub(r" +(\x1b\[0m)?$", r"\1", file.getvalue().replace(_UNBROKEN, " "), flags=re.MULTILINE)


def _breakable(body: Text, width: int) -> Text:
    """The text, whose parts may break between their words where they are longer than a line."""
    if any(len(part) > width for part in body.plain.split()):
        body = body.copy()
        body.plain = " ".join(part.replace(_UNBROKEN, " ") if len(part) > width else part for part in body.plain.split(" "))
    return body


def _wrapped(part: RenderableType, width: int) -> RenderableType:
    """A line that is too long as a paragraph, unless it must not wrap."""
    line = _text(part) if isinstance(part, str) else part
    if not isinstance(line, Text) or line.no_wrap or line.cell_len <= width:
        return line
    if label := _LABEL.match(line.plain):
        return Paragraph(line[label.end() :], line[: label.end()])
    margin = len(line.plain) - len(line.plain.lstrip())
    return Paragraph(line[margin:], " " * margin, " " * (margin + 2))


def _text(value: Text | str) -> Text:
    return words(value) if isinstance(value, str) else value
