"""A timeline as plain data, for JSON. Seconds are whole numbers."""

from collections.abc import Mapping
from typing import Any

from eks_inference.catalog.times import Typical
from eks_inference_tools.timeline.planner import Step
from eks_inference_tools.timeline.timeline import CAVEAT, Course, End, Timeline, what_ifs
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
    if time is None or not time.samples:
        return None if time is None else {"low": 0, "p50": 0, "high": 0}
    return {
        "low": round(time.low),
        "p50": round(time.p50),
        "high": round(time.high),
        "samples": time.samples,
        "source": time.source,
        "date": time.read,
    }
