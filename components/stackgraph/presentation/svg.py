"""Building blocks of SVG plots and diagrams: lengths, lines, paths, axis steps, and pictures with a description."""

import math
from collections.abc import Iterable, Sequence

from stackgraph.presentation.markup import Markup, element

_LEAST = 1e-9  # smaller values count as 0


def length(value: float) -> str:
    """A length in pixels, to one decimal place."""
    return f"{round(value, 1) + 0:.1f}".removesuffix(".0")


def line(class_: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return element("line", class_=class_, x1=length(x1), y1=length(y1), x2=length(x2), y2=length(y2))


def rect(class_: str, x: float, y: float, width: float, height: float) -> Markup:
    return element("rect", class_=class_, x=length(x), y=length(y), width=length(width), height=length(height))


def label(class_: str, x: float, y: float, text: str) -> Markup:
    return element("text", text, class_=class_ or None, x=length(x), y=length(y))


def path(class_: str, points: Iterable[tuple[float, float | None]]) -> Markup:
    """A line through the points, with a gap where a value is missing. Empty if all are."""
    drawn, pen = [], "M"
    for x, y in points:
        if y is None or not math.isfinite(y):
            pen = "M"
        else:
            drawn.append(f"{pen}{length(x)},{length(y)}")
            pen = "L"
    return element("path", class_=class_, d=" ".join(drawn)) if drawn else Markup()


def round_steps(largest: float) -> list[float]:
    """Three to six round numbers, from 0 to the first one at or above ``largest``."""
    if largest < _LEAST:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(largest / 4))
    step = next(step for step in (power * factor for factor in (1, 2, 2.5, 5, 10)) if largest / step <= 5)
    return [number * step for number in range(math.ceil(round(largest / step, 9)) + 1)]


def picture(
    name: str, title: str, in_words: str, size: tuple[float, float], drawn: Sequence[Markup], **attributes: str | None
) -> Markup:
    """An ``svg`` with a title and a description. ``name`` prefixes its ids; ``size`` is width and height in pixels."""
    width, height = map(length, size)
    prefix = f"{name}-" if name else ""
    return element(
        "svg",
        element("title", title, id=f"{prefix}title"),
        element("desc", f"{in_words}.", id=f"{prefix}words"),
        *drawn,
        **attributes,
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        aria_labelledby=f"{prefix}title {prefix}words",
    )
