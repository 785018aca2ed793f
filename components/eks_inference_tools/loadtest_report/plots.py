"""Plots as SVG, drawn here: a page shows them without a library, a script or a network.

Each says in words what it shows; the figures behind it stand in tables of the page. Colours are classes of the style sheet.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eks_inference_tools.loadtest_report.figures import cut, figure
from eks_inference_tools.loadtest_report.record import STATISTICS, Spread
from stackgraph.presentation.markup import Markup, element, together

_WIDTH = 760
_LABELS = 240  # room for the names on the left
_VALUES = 70  # room for a figure behind the longest bar
_ROW = 28
_AXIS = 30
_LETTERS = 30
_LETTERS_BEHIND = 24
_LINE = 15
_LEAST = 1e-9  # less than this is drawn as nothing
_HEIGHT = 300


_SHAPES = (
    "M-4,0 a4,4 0 1,0 8,0 a4,4 0 1,0 -8,0 z",
    "M-4,-4 h8 v8 h-8 z",
    "M0,-5 L5,4 L-5,4 z",
    "M0,-5 L5,0 L0,5 L-5,0 z",
)
"""Of the points of series, which differ in more than colour."""


@dataclass(frozen=True)
class Mark:
    """One thing in a plot. ``kind`` is a class of the style sheet: ``run`` or ``published``; ``aside`` is never cut."""

    label: str
    kind: str
    spread: Spread
    aside: str = ""


@dataclass(frozen=True)
class Curve:
    """Values by number of users."""

    label: str
    kind: str
    points: Sequence[tuple[int, float]]


def ranges(name: str, title: str, marks: Sequence[Mark]) -> Markup:
    """A line from the smallest to the largest, a bar between quartiles, a stroke at the median, a dot at the mean."""
    scale = _Scale(max((value for mark in marks for key, value in mark.spread.items() if key != "stddev"), default=0))
    drawn = [scale.grid(len(marks) * _ROW)]
    for number, mark in enumerate(marks):
        spread, middle = mark.spread, number * _ROW + _ROW / 2
        shown = ", ".join(f"{key} {figure(spread[key])}" for key in STATISTICS if key in spread)
        parts: list[Markup] = [element("title", f"{mark.label}: {shown}"), _name(mark.label, middle, mark.aside)]
        known = [value for key, value in spread.items() if key != "stddev"]
        if known:
            parts.append(_line("whisker", scale.x(min(known)), middle, scale.x(max(known)), middle))
        if "p25" in spread and "p75" in spread:
            left, right = scale.x(spread["p25"]), scale.x(spread["p75"])
            parts.append(_rect("quartiles", left, middle - 6, max(right - left, 1), 12))
        if "p50" in spread:
            parts.append(_line("median", scale.x(spread["p50"]), middle - 9, scale.x(spread["p50"]), middle + 9))
        if "mean" in spread:
            parts.append(element("circle", class_="mean", cx=_number(scale.x(spread["mean"])), cy=_number(middle), r=3))
        drawn.append(element("g", *parts, class_=mark.kind))
    of_each = "; ".join(f"{mark.label}: median {figure(mark.spread.get('p50'))}" for mark in marks)
    return _svg(name, title, of_each, len(marks) * _ROW + _AXIS, drawn)


def bars(name: str, title: str, values: Sequence[tuple[str, str, float]]) -> Markup:
    """A bar for each label, class and value."""
    scale = _Scale(max((value for _, _, value in values), default=0))
    drawn = [scale.grid(len(values) * _ROW)]
    for number, (label, kind, value) in enumerate(values):
        middle, end = number * _ROW + _ROW / 2, scale.x(value)
        drawn.append(
            element(
                "g",
                element("title", f"{label}: {figure(value)}"),
                _name(label, middle),
                _rect("bar", _LABELS, middle - 8, max(end - _LABELS, 1), 16),
                element("text", figure(value), class_="value", x=_number(end + 6), y=_number(middle + 4)),
                class_=kind,
            )
        )
    in_words = "; ".join(f"{label}: {figure(value)}" for label, _, value in values)
    return _svg(name, title, in_words, len(values) * _ROW + _AXIS, drawn)


def curves(name: str, title: str, series: Sequence[Curve]) -> Markup:
    """Values over users at once, which double from one step of the axis to the next; each series ends in its name."""
    users = sorted({point[0] for curve in series for point in curve.points})
    low, high = math.log2(users[0]), math.log2(users[-1])
    top = _steps(max((value for curve in series for _, value in curve.points), default=0))[-1]
    left, right, bottom = 60.0, _WIDTH - 190.0, _HEIGHT - 34.0

    def x(count: int) -> float:
        return left + (right - left) * ((math.log2(count) - low) / (high - low) if high > low else 0.5)

    def y(value: float) -> float:
        return bottom - (bottom - 12) * (value / top if top else 0)

    drawn: list[Markup] = []
    for step in _steps(top):
        drawn.append(_line("grid", left, y(step), right, y(step)))
        drawn.append(element("text", _short(step), class_="tick left", x=_number(left - 8), y=_number(y(step) + 4)))
    for count in users:
        drawn.append(element("text", str(count), class_="tick", x=_number(x(count)), y=_number(bottom + 18)))
    drawn.append(element("text", "users at once", class_="tick", x=_number((left + right) / 2), y=_number(_HEIGHT - 2)))
    ends = _apart([y(max(curve.points)[1]) for curve in series])
    for number, curve in enumerate(series):
        points = sorted(curve.points)
        path = "M" + " L".join(f"{_number(x(count))},{_number(y(value))}" for count, value in points)
        dots = [_dot(number, x(count), y(value), f"{curve.label}, {count} users: {figure(value)}") for count, value in points]
        end = element("text", cut(curve.label, _LETTERS_BEHIND), class_="end", x=_number(right + 12), y=_number(ends[number] + 4))
        drawn.append(
            element(
                "g", element("path", class_="curve", d=path), *dots, end, class_=f"{curve.kind} series-{number % len(_SHAPES)}"
            )
        )
    in_words = "; ".join(
        f"{curve.label}: {', '.join(f'{figure(value)} at {count}' for count, value in sorted(curve.points))}" for curve in series
    )
    return _svg(name, title, in_words, _HEIGHT, drawn)


class _Scale:
    """From 0 to a round number at or above the largest value, left to right."""

    def __init__(self, largest: float) -> None:
        self._steps = _steps(largest)

    def x(self, value: float) -> float:
        return _LABELS + (_WIDTH - _LABELS - _VALUES) * (value / self._steps[-1])

    def grid(self, height: float) -> Markup:
        lines = [_line("grid", self.x(step), 0, self.x(step), height) for step in self._steps]
        texts = [
            element("text", _short(step), class_="tick", x=_number(self.x(step)), y=_number(height + 18)) for step in self._steps
        ]
        return together(*lines, *texts)


def _steps(largest: float) -> list[float]:
    """Round numbers from 0 to one at or above the largest, three to six of them."""
    if largest < _LEAST:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(largest / 4))
    step = next(step for step in (power * factor for factor in (1, 2, 2.5, 5, 10)) if largest / step <= 5)
    return [number * step for number in range(math.ceil(round(largest / step, 9)) + 1)]


def _svg(name: str, title: str, in_words: str, height: float, drawn: Sequence[Markup]) -> Markup:
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", f"{in_words}.", id=f"{name}-words"),
        *drawn,
        class_="plot",
        viewBox=f"0 0 {_WIDTH} {_number(height)}",
        width=_WIDTH,
        height=_number(height),
        role="img",
        aria_labelledby=f"{name}-title {name}-words",
    )


def _apart(heights: Sequence[float]) -> list[float]:
    """The heights of names, moved so that none stands on another or below the plot."""
    found = list(heights)
    order = sorted(range(len(heights)), key=lambda number: heights[number])
    above = -math.inf
    for number in order:
        found[number] = above = max(heights[number], above + _LINE)
    below = _HEIGHT - _LINE / 2
    for number in reversed(order):
        found[number] = min(found[number], below)
        below = found[number] - _LINE
    return found


def _dot(number: int, x: float, y: float, title: str) -> Markup:
    return element(
        "path",
        element("title", title),
        class_="point",
        d=_SHAPES[number % len(_SHAPES)],
        transform=f"translate({_number(x)} {_number(y)})",
    )


def _name(label: str, middle: float, aside: str = "") -> Markup:
    return element("text", cut(label, _LETTERS - len(aside)) + aside, class_="name", x=_LABELS - 12, y=_number(middle + 4))


def _line(class_: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return element("line", class_=class_, x1=_number(x1), y1=_number(y1), x2=_number(x2), y2=_number(y2))


def _rect(class_: str, x: float, y: float, width: float, height: float) -> Markup:
    return element("rect", class_=class_, x=_number(x), y=_number(y), width=_number(width), height=_number(height))


def _short(value: float) -> str:
    return f"{value:g}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
