"""What a caller can add to the views of a graph. A caller passes it in; stackgraph keeps no registry."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from stackgraph.graph.describe import Words
from stackgraph.graph.document import Graph

Form = Literal["text", "strong", "warning", "note", "line", "code", "chip", "warning chip"]


@dataclass(frozen=True)
class Part:
    """Texts in one cell of a page's table, all in the same form. ``urn`` is the resource they link to.

    A ``note`` is small print on a line of its own. Each ``line`` and ``code`` starts a new line. ``chip`` and ``warning chip``
    are labels in a row.
    """

    texts: tuple[str, ...]
    form: Form = "text"
    urn: str = ""


Cell = tuple[Part, ...]


@dataclass(frozen=True)
class Row:
    """Cells of one table row. ``details`` are lists to show below the row, by the name of each list."""

    cells: tuple[str, ...]
    details: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Listing:
    """A table for a terminal: few columns, with long lists below their row. ``style`` is a key of ``views/tree.py``."""

    header: tuple[str, ...]
    rows: Sequence[Row]
    style: str = ""


@dataclass(frozen=True)
class Curve:
    """Points of a plot from left to right, as x and y. ``kind`` is a class of its style: ``run`` or ``published``."""

    label: str
    points: Sequence[tuple[float, float]]
    kind: str = "run"


@dataclass(frozen=True)
class Plot:
    """Curves over a common axis. ``doubles``: the axis is logarithmic and names each x."""

    title: str
    axis: str
    curves: Sequence[Curve]
    doubles: bool = False


@dataclass(frozen=True)
class Section:
    """One section about resources of a kind, laid out for a terminal (``listings``) and for a page (``columns``, ``rows``).

    A section without rows is not shown. ``total`` is a label and an amount to show below the rows; ``plots`` follow on a page.
    """

    title: str
    listings: Sequence[Listing]
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    total: tuple[str, str] = ("", "")
    plots: Sequence[Plot] = ()


@dataclass(frozen=True)
class Bar:
    """One step of a chart, from ``start`` to ``end`` in seconds. ``end`` is None where nobody knows how long it takes.

    ``urn`` is the resource it belongs to. ``decides``: the step is one of those that decide how long everything takes. ``note``
    says in a few words what the length is worth, ``source`` where it comes from.
    """

    title: str
    start: float
    end: float | None
    urn: str = ""
    decides: bool = False
    note: str = ""
    source: str = ""


@dataclass(frozen=True)
class Chart:
    """Steps over time, for a page. ``caveat`` and ``facts`` stand above it, ``ends`` are what has happened after how long."""

    title: str
    bars: Sequence[Bar]
    caveat: str = ""
    facts: Sequence[str] = ()
    ends: Sequence[tuple[str, float]] = ()


@dataclass(frozen=True)
class Domain:
    """What a caller knows about certain resource types. An empty domain adds nothing.

    ``words`` describe a resource on its own line. ``sections`` are shown after the resources. ``chart`` is shown by pages, after
    the components. ``notes`` are lines about the whole graph, which stand above it.
    """

    words: Words = field(default_factory=dict)
    sections: Callable[[Graph], Iterable[Section]] = lambda graph: ()
    chart: Callable[[Graph], Chart | None] = lambda graph: None
    notes: Callable[[Graph], Iterable[str]] = lambda graph: ()


NO_DOMAIN = Domain()
