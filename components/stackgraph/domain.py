"""What a caller who knows what resources are for adds to the views of a graph. It is passed in; nothing is registered."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from stackgraph.graph.describe import Words
from stackgraph.graph.document import Graph

Form = Literal["text", "strong", "warning", "note", "line", "code", "chip", "warning chip"]


@dataclass(frozen=True)
class Part:
    """Texts of one cell of a page, each in the same form. ``urn`` is the resource that they lead to.

    A ``note`` stands in small letters below; ``line`` and ``code`` begin a line each; ``chip`` and ``warning chip`` are labels in
    a row.
    """

    texts: tuple[str, ...]
    form: Form = "text"
    urn: str = ""


Cell = tuple[Part, ...]


@dataclass(frozen=True)
class Row:
    """Cells of a table, and below them lists with what they are lists of."""

    cells: tuple[str, ...]
    details: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Listing:
    """Rows for a terminal: few columns, and what is long in lists below its row. ``style`` is one of ``lines``."""

    header: tuple[str, ...]
    rows: Sequence[Row]
    style: str = ""


@dataclass(frozen=True)
class Section:
    """Resources of one sort, in the layout of a terminal (``listings``) and in that of a page (``columns`` and ``rows``).

    A section without rows is left out. ``total`` is a sum below the rows, and before it the words that say of what.
    """

    title: str
    listings: Sequence[Listing]
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    total: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Domain:
    """What is known of some types of resources, and of what they are for. An empty one adds nothing.

    ``words`` describe a resource in its line. ``sections`` are what somebody looks for in a graph beside its resources.
    """

    words: Words = field(default_factory=dict)
    sections: Callable[[Graph], Iterable[Section]] = lambda graph: ()


NO_DOMAIN = Domain()
