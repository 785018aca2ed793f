"""Renders a timeline for a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Unpack

from rich.console import RenderableType
from rich.text import Text

from eks_inference_tools.timeline.durations import by_kind, dominating, duration, seen, spread, told, total
from eks_inference_tools.timeline.schedule import Step
from eks_inference_tools.timeline.timeline import CAVEAT, Course, End, Timeline, what_ifs
from stackgraph.graph.values import joined
from stackgraph.presentation.output import Drawing
from stackgraph.presentation.terminal import Columns, Paragraph, drawn, listed, words

_INDENT = 2
_WORTH_SHOWING = 0.05
"""Share of the time to the end of `pulumi up` that no path of a server shows, from which on that path is shown too."""


def render_text(timeline: Timeline, **drawing: Unpack[Drawing]) -> str:
    """Returns when things are done, the paths that decide, and what would save time."""
    return drawn(_lines(timeline), **drawing)


def _lines(timeline: Timeline) -> Iterator[RenderableType]:
    yield words(f"{timeline.graph.stack}: a first `pulumi up`, the first answers, and `pulumi destroy`", "bold")
    yield Paragraph(words(CAVEAT, "yellow"))
    yield ""
    yield _ends(timeline)
    for shown in _deciding(timeline):
        yield from _path(timeline.creation, shown.end, f"What decides when {shown.words}")
    yield from _path(timeline.deletion, timeline.destroy, "What decides how long `pulumi destroy` takes")
    yield from _savings(timeline)
    yield from _untimed(timeline.creation.steps)


def _ends(timeline: Timeline) -> Columns:
    rows: list[tuple[Text | str, ...]] = [tuple(words(cell, "dim") for cell in ("", "TYPICAL", "RANGE", "UNTIMED STEPS"))]
    for end in (timeline.update, *timeline.answers, timeline.destroy):
        happens = f"{end.name} answers first" if end in timeline.answers else f"`{end.name}` is done"
        rows.append((happens, total(end), spread(end), str(len(end.untimed) or "none")))
    return Columns(rows, indent=_INDENT, headings=1)


@dataclass(frozen=True)
class _Shown:
    """An end whose path is shown. ``words`` name it, and the servers with the same path but for their own steps."""

    end: End
    words: str


def _deciding(timeline: Timeline) -> Iterator[_Shown]:
    """Yields the ends whose paths tell something new."""
    alike: dict[tuple[str, ...], list[End]] = {}
    for end in timeline.answers:
        path = timeline.creation.path(end)
        alike.setdefault(tuple(step.id for step in path if step.urn not in timeline.servers), []).append(end)
    for ends in alike.values():
        yield _Shown(ends[0], joined(*(end.name for end in ends), by=", ") + (" answer first" if ends[1:] else " answers first"))
    known = {path_step.step.id for ends in alike.values() for path_step in told(timeline.creation, ends[0])}
    news = sum(path_step.share for path_step in told(timeline.creation, timeline.update) if path_step.step.id not in known)
    if not alike or news >= _WORTH_SHOWING:
        yield _Shown(timeline.update, "`pulumi up` is done")


def _path(course: Course, end: End, heading: str) -> Iterator[RenderableType]:
    path = told(course, end)
    if not path:
        return
    yield ""
    yield words(heading, "bold underline")
    rows: list[tuple[Text | str, ...]] = [tuple(words(cell, "dim") for cell in ("FROM", "TAKES", "SHARE", "STEP", "SEEN"))]
    for one in path:
        takes, share = (duration(one.seconds), f"{one.share:.0%}") if one.step.time else ("?", "")
        rows.append((duration(one.start), takes, share, one.step.title, words(seen(one.step), "" if one.step.time else "yellow")))
    yield Columns(rows, indent=_INDENT, right=(0, 1, 2), headings=1)
    yield Paragraph(listed(f"{one.share:.0%} {one.step.title}" for one in dominating(path)), words("  Most of it: "))


def _savings(timeline: Timeline) -> Iterator[RenderableType]:
    found = what_ifs(timeline)
    if not found:
        return
    yield ""
    yield words("What would bring the first answer forward", "bold underline")
    several = len(timeline.answers) > 1
    rows = [(f"saves {duration(one.saves)}", one.change + (f", for {one.server}" if several else "")) for one in found]
    yield Columns(rows, indent=_INDENT)


def _untimed(steps: Sequence[Step]) -> Iterator[RenderableType]:
    if found := [step for step in steps if step.time is None]:
        yield ""
        yield words("Created without a typical time, counted as zero", "bold underline")
        yield Paragraph(listed(by_kind(found)), "  ")
