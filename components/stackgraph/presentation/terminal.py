"""Text for a terminal, drawn by rich: paragraphs, rows in columns, colours. What a program hands over steers no terminal.

Only what is drawn for a person imports this module; rich is not loaded for JSON or ``--help``.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import chain, repeat

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

WIDTH = 110
"""Columns where nobody says how many there are."""

UNBOUND = 10_000
"""For lists with one entry a line, however long, which people search and copy from."""

_UNBROKEN = "\ue000"
_GAP = 2
_INDENT = 4
_LEAST_BODY = 20


def words(value: str, style: str = "") -> Text:
    """A text as it is: its brackets are no markup, its control characters become spaces. Drawn alone it is one line."""
    harmless = value if value.isprintable() else "".join(letter if letter.isprintable() else " " for letter in value)
    return Text().append(harmless, style or None)


def listed(parts: Iterable[str], style: str = "") -> Text:
    """The parts with commas. Lines break between them only."""
    return Text().append(", ".join(words(part).plain.replace(" ", _UNBROKEN) for part in parts), style or None)


@dataclass(frozen=True)
class Paragraph:
    """Words in as many lines as they take, each word whole: names are there to be copied.

    ``first`` stands before the first line, ``further`` before all others; by default they begin below the first word. With
    ``fold`` words that are longer than a line are cut.
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
        lines = body.wrap(console, options.max_width - max(first.cell_len, cell_len(further)))
        for lead, line in zip(chain([first], repeat(further)), lines, strict=False):
            line.rstrip()
            yield Text.assemble(lead, line)


class Columns:
    """Rows in columns: each tuple is a row. Whatever else is among ``items`` stands between them as wide as it likes.

    Columns numbered in ``right`` are set to the right. Where the room is too small, the widest columns give way: their cells
    wrap, except those of the first, which are names and then have a line of their own. ``least`` and ``most`` bound the width of
    the first; ``fold`` cuts names that are longer than a line.
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
    ) -> None:
        self._items = [tuple(_text(cell) for cell in item) if isinstance(item, tuple) else item for item in items]
        self._indent, self._right, self._fold = " " * indent, right, fold
        self._least, self._most = least, most

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths(options.max_width)
        for item in self._items:
            if not isinstance(item, tuple):
                yield item
                continue
            if item[0].cell_len > widths[0]:
                yield Paragraph(item[0], self._indent, fold=True) if self._fold else Text(self._indent).append_text(item[0])
                item = (Text(), *item[1:])
            yield from self._lines(console, item, widths)

    def _widths(self, room: int) -> list[int]:
        rows = [item for item in self._items if isinstance(item, tuple)]
        columns = [[cell.cell_len for cell in cells] for cells in zip(*rows, strict=True)]
        if not columns:
            return []
        first, *others = columns
        widths = [max(self._least, *(width for width in first if width <= self._most), 0), *map(max, others)]
        room -= len(self._indent) + _GAP * (len(widths) - 1)
        while sum(widths) > room and max(widths) > 1:
            widths[widths.index(max(widths))] -= 1
        return widths

    def _lines(self, console: Console, cells: Sequence[Text], widths: Sequence[int]) -> Iterator[Text]:
        wrapped = [
            cell.wrap(console, width, justify="right" if number in self._right else "left", overflow="fold")
            for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        blank = [Text(" " * width) for width in widths]
        for number in range(max(map(len, wrapped))):
            parts = [lines[number] if number < len(lines) else none for lines, none in zip(wrapped, blank, strict=True)]
            yield Text(self._indent).append_text(Text(" " * _GAP).join(parts))


def drawn(parts: Iterable[RenderableType], *, width: int = WIDTH, colour: bool = False) -> str:
    """The parts below each other, an empty string as an empty line. No line ends in spaces."""
    file = StringIO()
    console = Console(
        file=file,
        width=width,
        height=100,  # else rich asks the terminal
        color_system="standard" if colour else None,
        force_terminal=colour,
        no_color=not colour,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ={},  # whether there are colours is decided by the caller
    )
    for part in parts:
        # Only paragraphs and cells wrap.
        console.print(_text(part) if isinstance(part, str) else part, no_wrap=True, overflow="ignore", crop=False)
    return re.sub(r" +(\x1b\[0m)?$", r"\1", file.getvalue().replace(_UNBROKEN, " "), flags=re.MULTILINE)


def _text(value: Text | str) -> Text:
    return words(value) if isinstance(value, str) else value
