"""Draws plots as SVG, so that a page needs no library, script or network.

Each plot has a description in words; tables of the page contain its figures. The style sheet sets colours by class.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from eks_inference_tools.loadtest_report.figures import figure
from eks_inference_tools.loadtest_report.record import STATISTICS, Spread
from stackgraph.graph.wording import shorten
from stackgraph.presentation import markup
from stackgraph.presentation.markup import Markup, element, together

_WIDTH = 760
_LABEL_WIDTH = 240  # width of the names on the left
_VALUE_WIDTH = 70  # space for a figure after the longest bar
_ROW_HEIGHT = 28
_AXIS_HEIGHT = 30
_LABEL_LETTERS = 30


@dataclass(frozen=True)
class Mark:
    """One row of a plot. ``kind`` is a CSS class: ``run`` or ``published``. ``aside`` follows the label and is never cut."""

    label: str
    kind: str
    spread: Spread
    aside: str = ""


def ranges(name: str, title: str, marks: Sequence[Mark]) -> Markup:
    """Draws a line from smallest to largest value, a bar between quartiles, a stroke at the median, a dot at the mean."""
    scale = _Scale(max((value for mark in marks for key, value in mark.spread.items() if key != "stddev"), default=0))
    drawn = [scale.grid(len(marks) * _ROW_HEIGHT)]
    for number, mark in enumerate(marks):
        spread, middle = mark.spread, number * _ROW_HEIGHT + _ROW_HEIGHT / 2
        shown = ", ".join(f"{key} {figure(spread[key])}" for key in STATISTICS if key in spread)
        parts: list[Markup] = [element("title", f"{mark.label}: {shown}"), _name(mark.label, middle, mark.aside)]
        known = [value for key, value in spread.items() if key != "stddev"]
        if known:
            parts.append(markup.line("whisker", scale.x(min(known)), middle, scale.x(max(known)), middle))
        if "p25" in spread and "p75" in spread:
            left, right = scale.x(spread["p25"]), scale.x(spread["p75"])
            parts.append(markup.rect("quartiles", left, middle - 6, max(right - left, 1), 12))
        if "p50" in spread:
            parts.append(markup.line("median", scale.x(spread["p50"]), middle - 9, scale.x(spread["p50"]), middle + 9))
        if "mean" in spread:
            parts.append(
                element("circle", class_="mean", cx=markup.length(scale.x(spread["mean"])), cy=markup.length(middle), r=3)
            )
        drawn.append(element("g", *parts, class_=mark.kind))
    of_each = "; ".join(f"{mark.label}: median {figure(mark.spread.get('p50'))}" for mark in marks)
    return _plot(name, title, of_each, len(marks) * _ROW_HEIGHT + _AXIS_HEIGHT, drawn)


def bars(name: str, title: str, values: Sequence[tuple[str, str, float]]) -> Markup:
    """Draws a bar for each (label, class, value)."""
    scale = _Scale(max((value for _, _, value in values), default=0))
    drawn = [scale.grid(len(values) * _ROW_HEIGHT)]
    for number, (label, kind, value) in enumerate(values):
        middle, end = number * _ROW_HEIGHT + _ROW_HEIGHT / 2, scale.x(value)
        drawn.append(
            element(
                "g",
                element("title", f"{label}: {figure(value)}"),
                _name(label, middle),
                markup.rect("bar", _LABEL_WIDTH, middle - 8, max(end - _LABEL_WIDTH, 1), 16),
                markup.label("value", end + 6, middle + 4, figure(value)),
                class_=kind,
            )
        )
    in_words = "; ".join(f"{label}: {figure(value)}" for label, _, value in values)
    return _plot(name, title, in_words, len(values) * _ROW_HEIGHT + _AXIS_HEIGHT, drawn)


class _Scale:
    """A horizontal scale from 0 to a round number at or above the largest value."""

    def __init__(self, largest: float) -> None:
        self._steps = markup.round_steps(largest)

    def x(self, value: float) -> float:
        return _LABEL_WIDTH + (_WIDTH - _LABEL_WIDTH - _VALUE_WIDTH) * (value / self._steps[-1])

    def grid(self, height: float) -> Markup:
        lines = [markup.line("grid", self.x(step), 0, self.x(step), height) for step in self._steps]
        texts = [markup.label("tick", self.x(step), height + 18, f"{step:g}") for step in self._steps]
        return together(*lines, *texts)


def _plot(name: str, title: str, in_words: str, height: float, drawn: Sequence[Markup]) -> Markup:
    return markup.picture(name, title, in_words, (_WIDTH, height), drawn, class_="plot")


def _name(label: str, middle: float, aside: str = "") -> Markup:
    return markup.label("name", _LABEL_WIDTH - 12, middle + 4, shorten(label, _LABEL_LETTERS - len(aside)) + aside)
