"""Draws for a page: layers of boxes with curves between them, and steps over time."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise

from stackgraph.domain import Bar, Chart
from stackgraph.graph.values import grouped, joined
from stackgraph.graph.wording import counted, shorten
from stackgraph.presentation.markup import Markup, element, length, together
from stackgraph.views.page_resources import ResourceList
from stackgraph.views.summary import Edge, Layers

_HEIGHT = 46
_ROW = 88
_GAP = 18
_MARGIN = 2
_SWEEPS = 12
# Average width of a letter in pixels, with a margin: system fonts differ.
_NAME_LETTER, _KIND_LETTER = 7.9, 6.4

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """The two lines of a box, and the address that it links to."""

    name: str
    kind: str
    href: str

    @property
    def width(self) -> float:
        return max(96.0, len(self.name) * _NAME_LETTER + 26, len(self.kind) * _KIND_LETTER + 26)


def render_diagram(layers: Layers, boxes: Mapping[str, Box], title: str) -> Markup:
    """An ``svg`` with a linked box for each URN. Arrows point downwards, except those that close a cycle."""
    layout = _Layout(layers, {urn: box.width for urn, box in boxes.items()})
    names = {urn: f"box-{number}" for number, urn in enumerate(urn for layer in layers.layers for urn in layer)}
    curves = [
        element("path", class_="edge", d=path, data_from=names[first], data_to=names[second], marker_end="url(#arrow)")
        for (first, second), path in layout.curves()
    ]
    drawn = [_box(boxes[urn], names[urn], *layout.corner(urn)) for urn in names]
    arrow = element(
        "marker",
        element("path", d="M0,0 L8,4 L0,8 z"),
        id="arrow",
        viewBox="0 0 8 8",
        refX=7,
        refY=4,
        markerWidth=7,
        markerHeight=7,
        orient="auto",
    )
    width, height = round(layout.width + 2 * _MARGIN), len(layout.rows) * _ROW - (_ROW - _HEIGHT) + 2 * _MARGIN
    return element(
        "svg",
        element("defs", arrow),
        together(*curves),
        together(*drawn),
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="group",
        aria_label=title,
    )


def _box(box: Box, name: str, x: float, y: float) -> Markup:
    middle = length(x + box.width / 2)
    return element(
        "a",
        element("rect", x=length(x), y=length(y), width=length(box.width), height=_HEIGHT, rx=6),
        element("text", box.name, class_="name", x=middle, y=length(y + 20)),
        element("text", box.kind, class_="kind", x=middle, y=length(y + 36)),
        href=box.href,
        class_="box",
        data_box=name,
    )


class _Layout:
    """The positions of boxes, and of the points where an edge passes a layer: few edges cross and most are straight."""

    def __init__(self, layers: Layers, widths: Mapping[str, float]) -> None:
        self._row_of = {urn: number for number, layer in enumerate(layers.layers) for urn in layer}
        self.rows: list[list[str]] = [list(layer) for layer in layers.layers]
        self._widths = dict(widths)
        self._ways: list[tuple[Edge, list[str]]] = []
        for first, second in sorted(layers.edges, key=lambda edge: [(self._row_of[urn], urn) for urn in edge]):
            self._ways.append(((first, second), [first, *self._passing(first, second), second]))
        self._above: dict[str, list[str]] = {}
        self._below: dict[str, list[str]] = {}
        for _, way in self._ways:
            for upper, lower in pairwise(way):
                if self._row_of[upper] < self._row_of[lower]:
                    self._above.setdefault(lower, []).append(upper)
                    self._below.setdefault(upper, []).append(lower)
        self._order()
        self._centre = self._centres()
        left = min((self._centre[key] - self._widths[key] / 2 for row in self.rows for key in row), default=0.0)
        for key in self._centre:
            self._centre[key] += _MARGIN - left
        self.width = max((self._centre[key] + self._widths[key] / 2 - _MARGIN for row in self.rows for key in row), default=0.0)

    def _passing(self, first: str, second: str) -> list[str]:
        """New points for an edge in the layers between its ends."""
        points = []
        for row in range(self._row_of[first] + 1, self._row_of[second]):
            point = f"{first}\n{second}\n{row}"
            self.rows[row].append(point)
            self._row_of[point], self._widths[point] = row, 0.0
            points.append(point)
        return points

    def _order(self) -> None:
        """Sorts rows by the mean position of neighbours, alternately down and up. Keeps the order with fewest crossings."""
        best, fewest = [list(row) for row in self.rows], self._crossings()
        for sweep in range(_SWEEPS):
            beside, rows = (self._above, self.rows) if sweep % 2 == 0 else (self._below, self.rows[::-1])
            place = {key: number for row in self.rows for number, key in enumerate(row)}
            for row in rows:
                row.sort(key=lambda key: _mean([place[other] for other in beside.get(key, [key])]))
                place.update({key: number for number, key in enumerate(row)})
            if (crossings := self._crossings()) < fewest:
                best, fewest = [list(row) for row in self.rows], crossings
        self.rows = best

    def _crossings(self) -> int:
        found = 0
        for upper, lower in pairwise(self.rows):
            place = {key: number for row in (upper, lower) for number, key in enumerate(row)}
            ends = [(place[key], place[other]) for key in upper for other in self._below.get(key, ())]
            found += sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(ends, 2))
        return found

    def _centres(self) -> dict[str, float]:
        centre: dict[str, float] = {}
        for row in self.rows:
            centre.update(zip(row, self._apart(row, [0.0] * len(row)), strict=True))
        for sweep in range(_SWEEPS * 2):
            beside, rows = (self._above, self.rows) if sweep % 2 == 0 else (self._below, self.rows[::-1])
            for row in rows:
                wanted = [_mean([centre[other] for other in beside.get(key, [key])]) for key in row]
                centre.update(zip(row, self._apart(row, wanted), strict=True))
        return centre

    def _apart(self, row: Sequence[str], wanted: Sequence[float]) -> list[float]:
        """The positions nearest to the wanted ones, by least squares, without overlap."""
        shifts = list(accumulate((self._step(one, other) for one, other in pairwise(row)), initial=0.0))
        # Less their minimum distances, positions must not decrease: those that would are pooled and take their mean.
        groups: list[list[float]] = []
        for place, shift in zip(wanted, shifts, strict=False):
            groups.append([place - shift])
            while len(groups) > 1 and _mean(groups[-2]) > _mean(groups[-1]):
                groups[-2:] = [groups[-2] + groups[-1]]
        return [_mean(group) + shift for group, shift in zip((g for g in groups for _ in g), shifts, strict=False)]

    def _step(self, one: str, other: str) -> float:
        return (self._widths[one] + self._widths[other]) / 2 + _GAP

    def corner(self, urn: str) -> Point:
        return self._centre[urn] - self._widths[urn] / 2, self._row_of[urn] * _ROW + _MARGIN

    def curves(self) -> list[tuple[Edge, str]]:
        return [(edge, self._curve(way)) for edge, way in self._ways]

    def _curve(self, way: Sequence[str]) -> str:
        tops = [(self._centre[key], self._row_of[key] * _ROW + _MARGIN) for key in way]
        # The curve enters at the top of each box or point and leaves at the bottom.
        points = [(x, y) for x, top in tops for y in (top, top + _HEIGHT)][1:-1]
        path = [f"M{length(points[0][0])},{length(points[0][1])}"]
        for (x, y), (to_x, to_y) in pairwise(points):
            bend = max(abs(to_y - y) / 2, 12)
            if x == to_x:
                path.append(f"V{length(to_y)}")
            else:
                path.append(f"C{length(x)},{length(y + bend)} {length(to_x)},{length(to_y - bend)} {length(to_x)},{length(to_y)}")
        return " ".join(path)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Markup]:
    """A table. Each cell carries the label of its column, for screens too narrow for columns."""
    if not rows:
        return
    head = element("tr", *(element("th", cell, scope="col") for cell in header))
    lines = []
    for first, *others in rows:
        cells = [element("td", cell, data_label=label) for label, cell in zip(header[1:], others, strict=True)]
        lines.append(element("tr", element("th", first, scope="row"), *cells))
    yield element("table", element("thead", head), element("tbody", *lines))


_WIDTH, _LABELS, _RIGHT = 1040, 350, 76
_BAR_ROW, _BAR = 24, 14
_TOP, _END_LINE = 26, 20
_MOST_LETTERS = 46
_LEAST_SHARE = 0.01
"""Share of the whole. Shorter bars are left out of the drawing unless they decide."""
_LEAST_WIDTH = 2
_TICK_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 240)
_MOST_TICKS = 10


def render_bars(chart: Chart, owner: Mapping[str, str], resources: ResourceList) -> Iterator[Markup]:
    """Yields the facts, the drawing and the table. ``owner`` has the name of the component of each resource by URN."""
    if chart.caveat:
        yield element("p", chart.caveat)
    if chart.facts:
        yield element("ul", *(element("li", fact) for fact in chart.facts))
    whole = max((_end(bar) for bar in chart.bars), default=0)
    shown = [bar for bar in chart.bars if bar.decides or _takes(bar) >= max(whole * _LEAST_SHARE, 1)]
    groups = grouped((owner.get(bar.urn, ""), bar) for bar in sorted(shown, key=_order))
    if not whole or not shown:
        return
    left_out = len(chart.bars) - len(shown)
    caption = (
        "Full bars decide when everything has ended; each begins when the one before it ends. ? stands for an unknown time. "
    )
    if left_out:
        caption += f"The table has {counted(left_out, 'shorter step')} more."
    drawing = element("div", _drawing(chart, groups, whole, resources), class_="wide")
    yield element("figure", drawing, element("figcaption", caption, class_="quiet"))
    heading = element("summary", "The steps as a table")
    yield element("details", heading, *_table(chart.bars, owner, resources), class_="steps")


def _drawing(chart: Chart, groups: Mapping[str, Sequence[Bar]], whole: float, resources: ResourceList) -> Markup:
    scale = (_WIDTH - _LABELS - _RIGHT) / whole
    top = _TOP + _END_LINE * len(chart.ends)
    height = top + _BAR_ROW * sum(len(bars) + bool(name) for name, bars in groups.items()) + 6
    drawn = [*_axis(whole, scale, top, height), *_ends(chart.ends, scale, height)]
    y = float(top)
    for name, bars in groups.items():
        if name:
            drawn.append(element("text", shorten(name, _MOST_LETTERS), class_="group", x=0, y=length(y + 16)))
            y += _BAR_ROW
        for bar in bars:
            drawn.append(_row(bar, y, scale, resources))
            y += _BAR_ROW
    return element(
        "svg",
        *drawn,
        class_="bars",
        viewBox=f"0 0 {_WIDTH} {height}",
        width=_WIDTH,
        height=height,
        role="group",
        aria_label=chart.title,
    )


def _axis(whole: float, scale: float, top: float, height: float) -> Iterator[Markup]:
    minutes = next((step for step in _TICK_MINUTES if whole / 60 / step <= _MOST_TICKS), math.ceil(whole / 60 / _MOST_TICKS))
    for number in range(int(whole / 60 / minutes) + 1):
        x = length(_LABELS + number * minutes * 60 * scale)
        yield element("path", class_="tick", d=f"M{x},{length(top - 6)}V{length(height)}")
        yield element("text", f"{number * minutes} min", class_="kind", x=x, y=12)


def _ends(ends: Sequence[tuple[str, float]], scale: float, height: float) -> Iterator[Markup]:
    for number, (words, seconds) in enumerate(ends):
        x, y = length(_LABELS + seconds * scale), _TOP + _END_LINE * number
        yield element("path", class_="end", d=f"M{x},{y - 6}V{length(height)}")
        yield element("text", shorten(words, _MOST_LETTERS), class_="end", x=x, y=y + 6)


def _row(bar: Bar, y: float, scale: float, resources: ResourceList) -> Markup:
    """A bar with its title, as a link to its resource: Tab goes from bar to bar in the order of time within a component."""
    x, width = _LABELS + bar.start * scale, max(_takes(bar) * scale, _LEAST_WIDTH)
    takes = _length(bar)
    said = f"{bar.title}: from {_clock(bar.start)}, {takes}{f', {bar.note}' if bar.note else ''}"
    target = resources.ids.get(bar.urn)
    return element(
        "a",
        element("title", said),
        element("text", shorten(bar.title, _MOST_LETTERS), class_="name", x=14, y=length(y + 15)),
        element("rect", x=length(x), y=length(y + 4), width=length(width), height=_BAR, rx=3),
        element("text", takes, class_="takes", x=length(x + width + 5), y=length(y + 15)),
        href=f"#{target}" if target else "#chart",
        class_="decides" if bar.decides else None,
        aria_label=said,
    )


def _table(bars: Sequence[Bar], owner: Mapping[str, str], resources: ResourceList) -> Iterator[Markup]:
    rows = [
        (
            resources.link(bar.urn, bar.title),
            owner.get(bar.urn, ""),
            _clock(bar.start),
            _length(bar),
            joined("decides" if bar.decides else "", bar.note, bar.source, by="; "),
        )
        for bar in sorted(bars, key=_order)
    ]
    yield from render_table(("Step", "In", "From", "Takes", "Seen"), rows)


def _end(bar: Bar) -> float:
    return bar.start if bar.end is None else bar.end


def _takes(bar: Bar) -> float:
    return _end(bar) - bar.start


def _order(bar: Bar) -> tuple[float, float, str]:
    return bar.start, _end(bar), bar.title


def _length(bar: Bar) -> str:
    return "?" if bar.end is None else _clock(_takes(bar))


def _clock(seconds: float) -> str:
    """``45 s`` or ``9:20 min``."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02} min"
