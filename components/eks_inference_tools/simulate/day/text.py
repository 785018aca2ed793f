"""Renders bad days for a terminal, side by side where something was tried; and their JSON document."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rich.console import RenderableType

from eks_inference_tools.simulate.day.day import Course, Day, Moment
from eks_inference_tools.timeline.wording import duration
from stackgraph.graph.wording import counted
from stackgraph.presentation.terminal import Columns, Paragraph, drawn, words

SCHEMA = 1
"""Version of the JSON document."""
SHAPE = {
    "days": [
        {
            "tried": str | None,
            "stack": str,
            "lost": {"kind": str, "what": str, "nodes": [str], "at_seconds": float},
            "seconds": float,
            "recovers": bool,
            "servers": [
                {
                    "name": str,
                    "requests": dict.fromkeys(("came", "served", "late", "lost"), int),
                    "rate": float,
                    "bad_seconds": float,
                    "recovered": bool,
                    "pods": [tuple[float, int, int]],
                }
            ],
            "waiting": [{"pod": str, "why": str}],
        }
    ]
}

Days = Mapping[str, Day]
"""By what was tried: ``""`` is the stack as it is."""

_AS_IT_IS = "as it is"


def render_text(days: Days) -> str:
    blocks = [_block(tried, day) for tried, day in days.items()]
    if len(days) > 1:
        blocks.append(_beside(days))
    return drawn(line for number, block in enumerate(blocks) for line in ([""] * bool(number) + [*block]))


def document(days: Days) -> dict[str, Any]:
    """Returns the days as JSON. ``schema`` changes when a key does."""
    return {"schema": SCHEMA, "days": [{"tried": tried or None, **_document(day)} for tried, day in days.items()]}


def _block(tried: str, day: Day) -> Iterator[RenderableType]:
    loss = day.loss
    what = f"{loss.kind} {loss.what} is lost after {duration(day.lost_at)} ({counted(len(loss.nodes), 'node')})"
    yield f"{day.stack}{f', with {tried}' if tried else ''}: {what}"
    for course in day.courses:
        yield from _course(course, day)
    for pool in loss.without:
        yield Paragraph(words(f"node group {pool} starts no other node: it has no other zone"), first="  ")
    for pod, why in day.waiting:
        yield Paragraph(words(why), first=f"  {pod} waits: ")


def _course(course: Course, day: Day) -> Iterator[RenderableType]:
    load, subject = course.subject.load, course.subject
    yield ""
    tokens = f"{load.input_tokens} + {load.output_tokens} tokens"
    yield f"  {subject.name}: {load.rate:.3g} requests/s of {tokens} for {duration(day.seconds)}"
    yield f"    {course.came} came = {course.served} served + {course.late} late + {course.lost} lost"
    yield f"    {_end(course, day)}"
    rows = [("time", "pods", "answer", "")]
    rows += [(_clock(one.at), str(one.wanted), str(one.answering), what) for one, what in _changes(course.moments, day.lost_at)]
    yield Columns(rows, indent=4, right=range(3))
    for phase in subject.untimed:
        yield Paragraph(words(f"nobody measured how long it takes that {phase}: it counts nothing here"), first="    ")


def _end(course: Course, day: Day) -> str:
    if not course.bad_seconds:
        return "no request was lost or late after the loss"
    if not course.recovered:
        return f"not recovered {duration(day.seconds - day.lost_at)} after the loss"
    return f"requests were lost or late for {duration(course.bad_seconds)}"


def _changes(moments: Sequence[Moment], lost_at: float) -> Iterator[tuple[Moment, str]]:
    """Yields the first moment, and each in which the number of pods changes."""
    if moments:
        yield moments[0], ""
    for before, now in pairwise(moments):
        struck = before.at < lost_at <= now.at
        if struck or (before.wanted, before.answering) != (now.wanted, now.answering):
            yield now, "the loss" if struck else ""


def _beside(days: Days) -> Iterator[RenderableType]:
    rows = [("", "server", "lost", "late", "recovered after")]
    for tried, day in days.items():
        for course in day.courses:
            after = duration(course.bad_seconds) if course.recovered else "not"
            rows.append((tried or _AS_IT_IS, course.subject.name, str(course.lost), str(course.late), after))
    yield Columns(rows, right=range(2, 5))


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _document(day: Day) -> dict[str, Any]:
    return {
        "stack": day.stack,
        "lost": {"kind": day.loss.kind, "what": day.loss.what, "nodes": sorted(day.loss.nodes), "at_seconds": day.lost_at},
        "seconds": round(day.seconds, 1),
        "recovers": day.recovers,
        "servers": [
            {
                "name": one.subject.name,
                "requests": {"came": one.came, "served": one.served, "late": one.late, "lost": one.lost},
                "rate": round(one.subject.load.rate, 3),
                "bad_seconds": round(one.bad_seconds, 1),
                "recovered": one.recovered,
                "pods": [[round(m.at, 1), m.wanted, m.answering] for m, _ in _changes(one.moments, day.lost_at)],
            }
            for one in day.courses
        ],
        "waiting": [{"pod": pod, "why": why} for pod, why in day.waiting],
    }
