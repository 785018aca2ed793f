"""Rows of a list as a table for people, and as JSON. A column is typed once, with its cell."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

from rich.console import RenderableType

from eks_inference.catalog.tables import Row
from stackgraph.graph.wording import counted
from stackgraph.presentation.terminal import UNBOUND, Columns, Paragraph, drawn, words

SCHEMA = 1
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


@dataclass(frozen=True)
class Listing(Generic[T]):
    """One list: all rows in the order of the catalog, what excludes some, and how to show the others."""

    one: str
    """What a row is."""
    every: Sequence[T]
    columns: Sequence[Column[T]]
    tells: Callable[[T], Iterable[str]]
    """Texts that a search looks through."""
    filters: Mapping[str, Callable[[T, Any], bool]]
    """Whether a row is what somebody wants, by the name of the option that says it."""
    notes: Callable[[Sequence[T], int], Iterable[str]]
    """What to know about these rows, and about so many that do not ``stay``."""
    record: Callable[[T], Mapping[str, Any]]
    """A row as JSON."""
    stays: Callable[[T], bool] = lambda _: True
    orders: Mapping[str, Callable[[T], Any]] = field(default_factory=dict)
    """Rows that are equal keep the order of the catalog, which other names stand for."""
    below: Callable[[T], Iterable[str]] = lambda _: ()
    """Lines under a row."""
    about: str = ""
    """The end of the heading."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What holds for all rows."""

    def taken(self, texts: Iterable[str] = (), wanted: Mapping[str, Any] | None = None, order: str | None = None) -> "Taken[T]":
        """The rows that have each of the texts somewhere, whose case does not count, and that each filter takes."""
        taken = [
            row
            for row in self.every
            if all(any(text.casefold() in told.casefold() for told in self.tells(row)) for text in texts)
            and all(self.filters[name](row, value) for name, value in (wanted or {}).items())
        ]
        rows = sorted(filter(self.stays, taken), key=self.orders.get(order or "", lambda _: 0))
        return Taken(tuple(rows), len(taken) - len(rows))

    def document(self, name: str, taken: "Taken[T]") -> dict[str, Any]:
        """The list as JSON."""
        return {"schema": SCHEMA, **self.facts, name: [self.record(row) for row in taken.rows]}

    def text(self, taken: "Taken[T]", width: int = UNBOUND, colour: bool = False) -> str:
        """The table, at most ``width`` columns wide: elsewhere than on a terminal each row is one line, for a pipe."""
        rows, every = taken.rows, counted(len(self.every), self.one)
        head = words((every if len(rows) == len(self.every) else f"{len(rows)} of {every}") + self.about)
        shown = _shown(self.columns, rows, width)
        items: list[tuple[str, ...] | RenderableType] = []
        if rows:
            items = [tuple(column.name for column in shown), tuple(column.unit for column in shown)]
        for row in rows:
            items.append(tuple(column.cell(row) or NONE for column in shown))
            items += [Paragraph(words(line), "    ") for line in self.below(row)]
        right = [number for number, one in enumerate(shown) if one.right]
        parts: list[RenderableType] = [head, "", Columns(items, right=right, headings=2)] if rows else [head]
        hidden = [column.name for column in self.columns if column not in shown]
        notes = [*([f"no room here for: {', '.join(hidden)}."] if hidden else []), *self.notes(rows, taken.left_out)]
        told = [Paragraph(words(note)) for note in notes]
        return drawn([*parts, *(["", *told] if told else [])], width=width, colour=colour)


class Taken(NamedTuple, Generic[T]):
    """Rows of a list, and how many others are left out only because they do not ``stay``."""

    rows: tuple[T, ...]
    left_out: int


def _shown(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> Sequence[Column[T]]:
    """The columns that fit. Only cells with lists wrap, between their items."""
    cells = {column: (column.name, column.unit, *map(column.cell, rows)) for column in columns}
    first = max(map(len, cells[columns[0]]))
    least = {one: max(len(part) + 1 for text in texts for part in text.split(", ")) for one, texts in cells.items()}
    # `Columns` shrinks the widest, so names stay whole only if no list has to be shorter than them.
    least = {one: max(first, least[one]) if any(", " in text for text in cells[one]) else least[one] - 1 for one in columns}
    shown = list(columns)
    while sum(least[column] for column in shown) + _GAP * (len(shown) - 1) > width and any(column.spare for column in shown):
        shown.remove(max(shown, key=lambda column: column.spare))
    return shown


def shape_of(row: type, **more: Any) -> dict[str, Any]:
    """The shape of ``columns_of`` a row of that class, with ``more`` beside or instead."""
    types = get_type_hints(row)
    return {one.name: types[one.name] for one in fields(row)} | more


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
