"""Draws steps over time for a page: bars in rows, by component. A table beside it says the same in words."""

import math
from collections.abc import Iterator, Mapping, Sequence

from stackgraph.domain import Bar, Chart
from stackgraph.graph.values import grouped, joined
from stackgraph.graph.wording import counted, shorten
from stackgraph.presentation.markup import Markup, element
from stackgraph.presentation.svg import length
from stackgraph.views.page_resources import ResourceList


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
_ROW, _BAR = 24, 14
_TOP, _END_LINE = 26, 20
_MOST_LETTERS = 46
_LEAST_SHARE = 0.01
"""Of the whole: shorter bars are left out of the drawing unless they decide."""
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
    height = top + _ROW * sum(len(bars) + bool(name) for name, bars in groups.items()) + 6
    drawn = [*_axis(whole, scale, top, height), *_ends(chart.ends, scale, height)]
    y = float(top)
    for name, bars in groups.items():
        if name:
            drawn.append(element("text", shorten(name, _MOST_LETTERS), class_="group", x=0, y=length(y + 16)))
            y += _ROW
        for bar in bars:
            drawn.append(_row(bar, y, scale, resources))
            y += _ROW
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
