"""A timeline as plain data for JSON, where seconds are whole numbers, and as a chart of stackgraph's page. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.catalog.times import Typical
from eks_inference_tools.timeline.durations import answering, dominating, duration, seen, spread, told, total
from eks_inference_tools.timeline.schedule import Step
from eks_inference_tools.timeline.timeline import CAVEAT, Course, End, Timeline, what_ifs
from stackgraph.domain import Bar, Chart, Listing, Part, Row, Section
from stackgraph.strict_json import OrNull

_SPREAD = dict.fromkeys(("low", "p50", "high"), int)
_END = {"atLeast": bool, "seconds": _SPREAD, "path": [str], "untimed": [str]}
_STEP = {
    **dict.fromkeys(("id", "urn", "title"), str),
    "startSeconds": int,
    "endSeconds": int,
    "inUpdate": bool,
    "typical": OrNull({**_SPREAD, "samples?": int, "source?": str, "date?": str}),
}
SHAPE = {
    "caveat": str,
    "up": _END,
    "answers": {"*": _END},
    "destroy": _END,
    "steps": [_STEP],
    "whatIfs": [{"change": str, "server": str, "savesSeconds": int}],
}
"""``timeline`` of `preview`."""


def document(timeline: Timeline) -> dict[str, Any]:
    """Returns the ends with their paths, every step with its start and end (p50), and what would save time."""
    return {
        "caveat": CAVEAT,
        "up": _end(timeline.creation, timeline.update),
        "answers": {end.name: _end(timeline.creation, end) for end in timeline.answers},
        "destroy": _end(timeline.deletion, timeline.destroy),
        "steps": [_step(timeline.creation, step) for step in timeline.creation.steps],
        "whatIfs": [{"change": one.change, "server": one.server, "savesSeconds": round(one.saves)} for one in what_ifs(timeline)],
    }


def _end(course: Course, end: End) -> dict[str, Any]:
    return {
        "atLeast": bool(end.untimed),
        "seconds": {"low": round(end.low), "p50": round(end.p50), "high": round(end.high)},
        "path": [step.id for step in course.path(end)],
        "untimed": [step.id for step in end.untimed],
    }


def _step(course: Course, step: Step) -> Mapping[str, Any]:
    span = course.typical.spans[step.id]
    return {
        "id": step.id,
        "urn": step.urn,
        "title": step.title,
        "startSeconds": round(span.start),
        "endSeconds": round(span.end),
        "inUpdate": step.in_update,
        "typical": _typical(step.time),
    }


def _typical(time: Typical | None) -> dict[str, Any] | None:
    if time is None:
        return None
    seen = {"samples": time.samples, "source": time.source, "date": time.read} if time.samples else {}
    return {"low": round(time.low), "p50": round(time.p50), "high": round(time.high), **seen}


_MOST_SAVINGS = 3


def chart(found: Timeline) -> Chart | None:
    """Returns the steps of a first `pulumi up` and of its pods; None for a program that creates nothing which takes time."""
    spans = found.creation.typical.spans
    last = max((found.update, *found.answers), key=lambda end: end.p50)
    deciding = {step.id for step in found.creation.path(last)}
    bars = [
        Bar(
            step.phase or step.title,
            spans[step.id].start,
            spans[step.id].end if step.time else None,
            step.urn,
            step.id in deciding,
            seen(step),
            step.time.source if step.time else "",
        )
        for step in found.creation.steps
        if step.time is None or step.time.p50
    ]
    if not bars:
        return None
    ends = [("pulumi up is done", found.update.p50), *((servers, end.p50) for servers, end in answering(found))]
    return Chart("Time until the first answer", bars, CAVEAT, tuple(_facts(found)), ends)


def _facts(found: Timeline) -> Iterator[str]:
    yield f"pulumi up is done after {total(found.update)} ({spread(found.update)})."
    for servers, end in answering(found):
        yield f"{servers} after {total(end)} ({spread(end)})."
    yield f"pulumi destroy takes {total(found.destroy)} ({spread(found.destroy)})."
    for what_if in what_ifs(found)[:_MOST_SAVINGS]:
        yield f"Sooner by {duration(what_if.saves)}: {what_if.change}."


_ABOUT = ("typical times", "published by others, no promises; `--timeline` shows every step")


def time_section(timeline: Timeline) -> Section:
    """When `pulumi up` is done, when each server answers first, how long `pulumi destroy` takes, and what takes longest."""
    rows = list(_rows(timeline))
    cells = [[(Part((text,)),) for text in (*row.cells, ", ".join(row.details["mostly"]))] for row in rows]
    listings = [Listing(("UNTIL", "TYPICALLY", "SEEN"), rows)]
    return Section("Time", listings, ("Until", "Typically", "Seen", "Mostly"), cells, _ABOUT if rows else ("", ""))


def _rows(timeline: Timeline) -> Iterator[Row]:
    ends = [("pulumi up is done", timeline.update)]
    ends += [(f"{end.name} answers first", end) for end in timeline.answers]
    for what, end in ends:
        if end.p50:
            yield _row(what, timeline.creation, end)
    if timeline.destroy.p50:
        yield _row("pulumi destroy is done", timeline.deletion, timeline.destroy)


def _row(what: str, course: Course, end: End) -> Row:
    longest = tuple(f"{path_step.step.title} {duration(path_step.seconds)}" for path_step in dominating(told(course, end)))
    return Row((what, total(end), spread(end)), {"mostly": longest})
