"""Draws curves as SVG, so that a page needs no library, script or network. The style sheet sets colours by class."""

import math
from collections.abc import Callable, Sequence

from stackgraph.domain import Plot
from stackgraph.graph.wording import shorten
from stackgraph.presentation import markup
from stackgraph.presentation.markup import Markup, element

_WIDTH, _HEIGHT = 760, 300
_END_LETTERS = 24
_LINE_HEIGHT = 15
_SHAPES = (
    "M-4,0 a4,4 0 1,0 8,0 a4,4 0 1,0 -8,0 z",
    "M-4,-4 h8 v8 h-8 z",
    "M0,-5 L5,4 L-5,4 z",
    "M0,-5 L5,0 L0,5 L-5,0 z",
)
"""Point markers, so that series differ in more than colour."""


def render_plot(name: str, plot: Plot, figure: Callable[[float], str] = "{:.3g}".format) -> Markup:
    """Draws the curves, with a label at the end of each and a description in words. ``name`` prefixes ids."""
    across = sorted({x for curve in plot.curves for x, _ in curve.points})
    ticks = across if plot.doubles else markup.round_steps(across[-1])
    scale = math.log2 if plot.doubles else float
    low, high = scale(ticks[0]), scale(ticks[-1])
    steps = markup.round_steps(max((y for curve in plot.curves for _, y in curve.points), default=0))
    left, right, bottom = 60.0, _WIDTH - 190.0, _HEIGHT - 34.0

    def at(x: float) -> float:
        return left + (right - left) * ((scale(x) - low) / (high - low) if high > low else 0.5)

    def height(y: float) -> float:
        return bottom - (bottom - 12) * y / steps[-1]

    drawn: list[Markup] = []
    for step in steps:
        drawn.append(markup.line("grid", left, height(step), right, height(step)))
        drawn.append(markup.label("tick left", left - 8, height(step) + 4, f"{step:g}"))
    drawn += [markup.label("tick", at(tick), bottom + 18, f"{tick:g}") for tick in ticks]
    drawn.append(markup.label("tick", (left + right) / 2, _HEIGHT - 2, plot.axis))
    ends = _spaced([height(curve.points[-1][1]) for curve in plot.curves])
    for number, curve in enumerate(plot.curves):
        path = markup.path("curve", ((at(x), height(y)) for x, y in curve.points))
        dots = [_dot(number, at(x), height(y), f"{curve.label}, {x:g} {plot.axis}: {figure(y)}") for x, y in curve.points]
        end = markup.label("end", right + 12, ends[number] + 4, shorten(curve.label, _END_LETTERS))
        drawn.append(element("g", path, *dots, end, class_=f"{curve.kind} series-{number % len(_SHAPES)}"))
    told = (f"{curve.label}: {', '.join(f'{figure(y)} at {x:g}' for x, y in curve.points)}" for curve in plot.curves)
    return markup.picture(name, plot.title, "; ".join(told), (_WIDTH, _HEIGHT), drawn, class_="plot")


def _spaced(heights: Sequence[float]) -> list[float]:
    """Moves the heights of labels so that none overlaps another or leaves the plot at the bottom."""
    found = list(heights)
    order = sorted(range(len(heights)), key=lambda number: heights[number])
    above = -math.inf
    for number in order:
        found[number] = above = max(heights[number], above + _LINE_HEIGHT)
    below = _HEIGHT - _LINE_HEIGHT / 2
    for number in reversed(order):
        found[number] = min(found[number], below)
        below = found[number] - _LINE_HEIGHT
    return found


def _dot(number: int, x: float, y: float, title: str) -> Markup:
    return element(
        "path",
        element("title", title),
        class_="point",
        d=_SHAPES[number % len(_SHAPES)],
        transform=f"translate({markup.length(x)} {markup.length(y)})",
    )
