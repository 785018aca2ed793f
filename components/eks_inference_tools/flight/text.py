"""A course and a report in words."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from eks_inference_tools.cost.words import money
from eks_inference_tools.flight.meter import Caps
from eks_inference_tools.flight.planner import Leg, reach
from eks_inference_tools.flight.report import VERDICTS, Judged
from eks_inference_tools.timeline.wording import duration, spread
from stackgraph.graph.values import text
from stackgraph.graph.wording import shorten
from stackgraph.presentation.terminal import WIDTH, Columns, Paragraph, drawn, words

CAVEAT = (
    "Typical times that others published, and list prices: no promises. Traffic, logs and contents of stores come on top, and so "
    "do the rests of hours that AWS bills as whole ones, as of NAT gateways. Nothing of this was ever run on AWS."
)

_LONGEST_SOURCE = 80
"""Of a source in text. JSON has all of it."""

_STYLES = {"confirmed": "green", "contradicted": "red", "new": "yellow"}


def render_course(stack: str, legs: Sequence[Leg], caps: Caps, *, colour: bool = False, width: int = WIDTH) -> str:
    """Returns the rungs with what they take, one a line: time, price, and the sum up to here with the way back."""
    return drawn(_course(stack, legs, caps), width=width, colour=colour)


def _course(stack: str, legs: Sequence[Leg], caps: Caps) -> Iterator[RenderableType]:
    yield words(f"{stack}: the first flight", "bold")
    yield Paragraph(words(CAVEAT, "yellow"))
    yield ""
    heads = ("", "RUNG", "", "TYPICALLY", "RANGE", "USD/H", "SO FAR", "AND BACK")
    rows: list[tuple[Text | str, ...]] = [tuple(words(cell, "dim") for cell in heads)]
    usd = 0.0
    for number, leg in enumerate(legs, start=1):
        usd += leg.usd
        with_descent = usd + leg.usd_per_hour * leg.descent.p50 / 3600
        figures = ("", "", "", "", "")
        if leg.deployments:
            least = "at least " if leg.climb.untimed else ""
            known = leg.climb.p50 >= 1
            times = (f"{least}{duration(leg.climb.p50)}", spread(leg.climb)) if known else ("unknown", "")
            figures = (*times, f"{leg.usd_per_hour:.2f}", money(usd), money(with_descent))
        rows.append((str(number), leg.name, leg.rung.title, *figures))
    yield Columns(rows, indent=2, right=(0, 5, 6, 7))
    yield ""
    back = legs[-1].descent
    yield Paragraph(words(f"  Tearing everything down takes {duration(back.p50)} ({spread(back)})."))
    if unpriced := [name for leg in legs for name in leg.unpriced]:
        yield Paragraph(words(f"{'; '.join(dict.fromkeys(unpriced))}", "yellow"), "  Not in these amounts: ")
    if caps.both:
        last = reach(legs, caps)
        far = f"by these times it reaches rung {last.name}" if last else "it reaches no rung"
        yield words(f"  Caps: {money(caps.usd or 0)} and {caps.minutes:g} minutes, the way back included: {far}.")


def render_report(bundle: Mapping[str, Any], found: Sequence[Judged], *, colour: bool = False, width: int = WIDTH) -> str:
    """Returns the facts of a bundle by verdict."""
    return drawn(_report(bundle, found), width=width, colour=colour)


def _report(bundle: Mapping[str, Any], found: Sequence[Judged]) -> Iterator[RenderableType]:
    numbers = ", ".join(f"{sum(one.verdict == verdict for one in found)} {verdict}" for verdict in VERDICTS)
    yield words(f"A first flight of {text(bundle.get('date'))} in {text(bundle.get('region'))}: {numbers}", "bold")
    yield Paragraph(words("One flight is one sample: look at its source before a row goes into the catalog.", "yellow"))
    for verdict, members in groupby(found, key=lambda one: one.verdict):
        yield ""
        yield words(verdict.capitalize(), f"bold underline {_STYLES[verdict]}")
        rows = [(one.kind, text(one.what), text(one.measured), _known(one)) for one in members]
        yield Columns(rows, indent=2)


def _known(one: Judged) -> str:
    return shorten(": ".join(filter(None, (one.known, one.source))), _LONGEST_SOURCE)
