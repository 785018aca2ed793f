"""Draws layers of boxes with curves between them, as SVG. The layout is computed here, so a page needs no library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise

from stackgraph.presentation.markup import Markup, element, together
from stackgraph.presentation.svg import length
from stackgraph.views.layers import Edge, Layers

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
