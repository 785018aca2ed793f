"""Renders bad days for a terminal, side by side where something was tried; and their JSON document."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Unpack

from rich.console import RenderableType

from eks_inference_tools.simulate.day.day import Course, Day, Moment
from eks_inference_tools.simulate.day.requests import Load
from eks_inference_tools.timeline.durations import duration
from stackgraph.graph.wording import counted
from stackgraph.presentation.output import Drawing
from stackgraph.presentation.terminal import Columns, Paragraph, drawn, words

SCHEMA = 1
"""Version of the JSON document."""
SHAPE = {
    "days": [
        {
            "tried": str | None,
            "stack": str,
            "lost": [{"kind": str, "what": str, "nodes": [str]}],
            **dict.fromkeys(("lost_at_seconds", "back_after_seconds", "seconds"), float),
            "recovers": bool,
            "servers": [
                {
                    "name": str,
                    "requests": dict.fromkeys(("came", "served", "late", "lost"), int),
                    "rates": [tuple[float, float]],
                    "bad_seconds": float,
                    "recovered": bool,
                    "pods": [tuple[float, int, int, float | None]],
                }
            ],
            "dollars": {"usd": float, "node_hours": float, "unpriced": [str], "notes": [str]},
            "waiting": [{"pod": str, "why": str}],
        }
    ]
}

Days = Mapping[str, Day]
"""By what was tried: ``""`` is the stack as it is."""

_AS_IT_IS = "as it is"


def render_text(days: Days, **drawing: Unpack[Drawing]) -> str:
    blocks = [_block(tried, day) for tried, day in days.items()]
    if len(days) > 1:
        blocks.append(_beside(days))
    return drawn((line for number, block in enumerate(blocks) for line in ([""] * bool(number) + [*block])), **drawing)


def document(days: Days) -> dict[str, Any]:
    """Returns the days as JSON. ``schema`` changes when a key does."""
    return {"schema": SCHEMA, "days": [{"tried": tried or None, **_document(day)} for tried, day in days.items()]}


def _block(tried: str, day: Day) -> Iterator[RenderableType]:
    yield Paragraph(words(f"{day.stack}{f', with {tried}' if tried else ''}: {_losses(day)}"), further="  ")
    for course in day.courses:
        yield from _course(course, day)
    yield ""
    yield f"  nodes: {_dollars(day)}"
    for note in day.dollars.notes:
        yield Paragraph(words(note), first="    ")
    for why in day.blind:
        yield Paragraph(words(why), first="  ")
    for pool in (pool for loss in day.losses for pool in loss.without):
        yield Paragraph(words(f"node group {pool} starts no other node: it has no other zone"), first="  ")
    for pod, why in day.waiting:
        yield Paragraph(words(why), first=f"  {pod} waits: ")


def _losses(day: Day) -> str:
    if not day.losses:
        return "nothing is lost"
    what = [f"{loss.what} ({counted(len(loss.nodes), 'node')})" if loss.nodes else loss.what for loss in day.losses]
    back = [loss.what for loss in day.losses if not loss.nodes]
    lost = f"{_are(what)} lost after {duration(day.lost_at)}"
    return f"{lost}; {_are(back)} back {duration(day.back)} later" if back else lost


def _dollars(day: Day) -> str:
    found = day.dollars
    said = f"${found.usd:.2f} for {found.node_hours:.2f} node hours, ${_an_hour(day)} an hour"
    return f"{said}; without a price: {', '.join(found.unpriced)}" if found.unpriced else said


def _an_hour(day: Day) -> str:
    return f"{3600 * day.dollars.usd / max(day.seconds, 1):.2f}"


def _are(what: Sequence[str]) -> str:
    return f"{' and '.join(what)} {'is' if len(what) == 1 else 'are'}"


def _course(course: Course, day: Day) -> Iterator[RenderableType]:
    load, subject = course.subject.load, course.subject
    yield ""
    tokens = f"{load.input_tokens} + {load.output_tokens} tokens"
    yield f"  {subject.name}: {_rates(load)} requests/s of {tokens} for {duration(day.seconds)}"
    yield f"    {course.came} came = {course.served} served + {course.late} late + {course.lost} lost"
    yield f"    {_end(course, day)}"
    rows = [("time", "requests/s", "metric", "pods", "answer", "")]
    for one, what in _changes(course, day):
        metric = "" if one.metric is None else f"{one.metric:.3g}"
        rows.append((_clock(one.at), f"{rate_at(load, one.at):.3g}", metric, str(one.wanted), str(one.answering), what))
    yield Columns(rows, indent=4, right=range(5), headings=1)
    for phase in subject.untimed:
        yield Paragraph(words(f"no measured time, counted as zero: {phase}"), first="    ")


def _end(course: Course, day: Day) -> str:
    if not course.bad_seconds:
        return "no request was lost or late" + " after the loss" * bool(day.losses)
    if not course.recovered:
        after = "after the loss" if day.losses else "after the beginning"
        return f"not recovered {duration(day.seconds - day.lost_at)} {after}"
    return f"requests were lost or late for {duration(course.bad_seconds)}"


def _changes(course: Course, day: Day) -> Iterator[tuple[Moment, str]]:
    """Yields the first moment, and each in which the number of pods or the rate changes."""
    moments, load = course.moments, course.subject.load
    if moments:
        yield moments[0], ""
    for before, now in pairwise(moments):
        struck = bool(day.losses) and before.at < day.lost_at <= now.at
        more = rate_at(load, now.at) - rate_at(load, before.at)
        if struck or more or (before.wanted, before.answering) != (now.wanted, now.answering):
            yield now, "the loss" if struck else "more requests" if more > 0 else "fewer requests" if more else ""


def rate_at(load: Load, at: float) -> float:
    return next(rate for start, rate in reversed(load.rates) if start <= at)


def _rates(load: Load) -> str:
    few, many = (found(rate for _, rate in load.rates) for found in (min, max))
    return f"{many:.3g}" if few == many else f"{few:.3g} to {many:.3g}"


def _beside(days: Days) -> Iterator[RenderableType]:
    rows = [("", "server", "lost", "late", "recovered after", "$/h")]
    for tried, day in days.items():
        for course in day.courses:
            after = duration(course.bad_seconds) if course.recovered else "not"
            rows.append((tried or _AS_IT_IS, course.subject.name, str(course.lost), str(course.late), after, _an_hour(day)))
    yield Columns(rows, right=range(2, 6), headings=1)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _document(day: Day) -> dict[str, Any]:
    return {
        "stack": day.stack,
        "lost": [{"kind": loss.kind, "what": loss.what, "nodes": sorted(loss.nodes)} for loss in day.losses],
        "lost_at_seconds": day.lost_at,
        "back_after_seconds": day.back,
        "seconds": round(day.seconds, 1),
        "recovers": day.recovers,
        "servers": [
            {
                "name": course.subject.name,
                "requests": {"came": course.came, "served": course.served, "late": course.late, "lost": course.lost},
                "rates": [[start, round(rate, 3)] for start, rate in course.subject.load.rates],
                "bad_seconds": round(course.bad_seconds, 1),
                "recovered": course.recovered,
                "pods": [[round(m.at, 1), m.wanted, m.answering, m.metric] for m, _ in _changes(course, day)],
            }
            for course in day.courses
        ],
        "dollars": {"usd": round(day.dollars.usd, 4), "node_hours": round(day.dollars.node_hours, 3)}
        | {"unpriced": list(day.dollars.unpriced), "notes": list(day.dollars.notes)},
        "waiting": [{"pod": pod, "why": why} for pod, why in day.waiting],
    }
