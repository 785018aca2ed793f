"""Rows of a list as a table for people, and as JSON. A column is typed once, with its cell."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

from rich.console import RenderableType

from eks_inference.catalog.tables import Row
from stackgraph.presentation.terminal import Columns, Paragraph, drawn, words

T = TypeVar("T")
_GAP = 2
NONE = "-"
"""What a cell shows where there is nothing, or nobody knows."""


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column: two lines of a heading, the second with the unit, and the text of a cell."""

    name: str
    unit: str
    cell: Callable[[T], str]
    right: bool = False
    spare: int = 0
    """Columns with the highest number are left out first where the room does not do; 0 stays."""


def table(
    head: str,
    columns: Sequence[Column[T]],
    rows: Sequence[T],
    *,
    width: int,
    below: Callable[[T], Iterable[str]] = lambda _: (),
    notes: Iterable[str] = (),
) -> str:
    """Returns the table, at most ``width`` columns wide. ``below`` are lines under each row."""
    shown = _shown(columns, rows, width)
    items: list[tuple[str, ...] | RenderableType] = []
    if rows:
        items = [tuple(one.name for one in shown), tuple(one.unit for one in shown)]
    for row in rows:
        items.append(tuple(one.cell(row) or NONE for one in shown))
        items += [Paragraph(words(line), "    ") for line in below(row)]
    right = [number for number, one in enumerate(shown) if one.right]
    parts: list[RenderableType] = [words(head), "", Columns(items, right=right)] if rows else [words(head)]
    hidden = [one.name for one in columns if one not in shown]
    told = [Paragraph(words(note)) for note in (*([f"no room here for: {', '.join(hidden)}."] if hidden else []), *notes)]
    return drawn([*parts, *(["", *told] if told else [])], width=width)


def _shown(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> Sequence[Column[T]]:
    """The columns that fit. Only cells with lists wrap, between their items."""
    cells = {one: (one.name, one.unit, *map(one.cell, rows)) for one in columns}
    first = max(map(len, cells[columns[0]]))
    least = {one: max(len(part) + 1 for text in texts for part in text.split(", ")) for one, texts in cells.items()}
    # `Columns` shrinks the widest, so names stay whole only if no list has to be shorter than them.
    least = {one: max(first, least[one]) if any(", " in text for text in cells[one]) else least[one] - 1 for one in columns}
    shown = list(columns)
    while sum(least[one] for one in shown) + _GAP * (len(shown) - 1) > width and any(one.spare for one in shown):
        shown.remove(max(shown, key=lambda one: one.spare))
    return shown


def columns_of(row: Row) -> dict[str, Any]:
    """Every column of a row of the catalog as plain data."""
    return plain(asdict(row))


def plain(value: Any) -> Any:
    """The value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [plain(one) for one in value]
    return float(value) if isinstance(value, Fraction) else value
