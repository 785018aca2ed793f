"""Times in words."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eks_inference_tools.timeline.schedule import Step
from eks_inference_tools.timeline.timeline import Course, End, Timeline
from stackgraph.graph.values import grouped

_MOST_LINES, _MOST_NAMES = 5, 10
"""The most servers in words and in the chart."""


def duration(seconds: float) -> str:
    """``45 s``, ``9 min 20 s``, ``1 h 2 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min{f' {whole % 60} s' if whole % 60 else ''}"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h{f' {minutes % 60} min' if minutes % 60 else ''}"


def total(end: End) -> str:
    """When something has happened: a lower bound where steps have no typical time."""
    return f"{'at least ' if end.untimed else ''}{duration(end.p50)}"


def spread(end: End) -> str:
    """From the least to the most that was seen; no upper bound where steps have no typical time."""
    return f"{duration(end.low)} to {duration(end.high)}{' or more' if end.untimed else ''}"


def by_kind(steps: Iterable[Step]) -> Iterator[str]:
    """The steps by the first word of their titles, those of pods first: the title of a single one, else how many there are."""
    found = grouped((("" if "#" in step.id else step.title.partition(" ")[0]), step.title) for step in steps)
    yield from found.pop("", ())
    for kind, titles in sorted(found.items(), key=lambda item: (len(item[1]), item[0])):
        yield titles[0] if len(titles) == 1 else f"{len(titles)} x {kind}"


def seen(step: Step) -> str:
    """How often the time of a step was seen."""
    if step.time is None:
        return "no typical time"
    return "" if not step.time.samples else "single sample" if step.time.samples == 1 else f"{step.time.samples} samples"


@dataclass(frozen=True)
class PathStep:
    """A step of a path with its start and its share of the whole, from 0 to 1."""

    step: Step
    start: float
    seconds: float
    share: float


def told(course: Course, end: End) -> tuple[PathStep, ...]:
    """Returns the steps of a path that a reader needs: those that take time, and those without a typical time."""
    spans = course.typical.spans
    return tuple(
        PathStep(step, spans[step.id].start, spans[step.id].seconds, spans[step.id].seconds / end.p50 if end.p50 else 0)
        for step in course.path(end)
        if step.time is None or spans[step.id].seconds
    )


def dominating(path: Iterable[PathStep], most: int = 3) -> tuple[PathStep, ...]:
    """Returns the steps with the largest shares."""
    return tuple(sorted((path_step for path_step in path if path_step.seconds), key=lambda path_step: -path_step.seconds)[:most])


def answering(timeline: Timeline) -> Iterator[tuple[str, End]]:
    """Yields which servers answer at the same time, the last ones first, with one of their ends: few of many."""
    together = grouped(((total(end), spread(end)), end) for end in timeline.answers)
    for ends in list(together.values())[:_MOST_LINES]:
        others = f" and {len(ends) - _MOST_NAMES} more" if len(ends) > _MOST_NAMES else ""
        names = f"{', '.join(end.name for end in ends[:_MOST_NAMES])}{others}"
        yield f"{names} {'answers' if len(ends) == 1 else 'answer'} first", ends[0]
    if untold := [end for ends in list(together.values())[_MOST_LINES:] for end in ends]:
        yield f"{untold[0].name}, the next of {len(untold)} more, answers first", untold[0]


def summary(timeline: Timeline) -> Iterator[str]:
    """Yields when servers answer first, the last ones first; without servers, when `pulumi up` is done."""
    for servers, end in answering(timeline):
        when = f"after {total(end)} ({spread(end)}), by typical times" if end.p50 else "after a time that is not known"
        yield f"{servers} {when}"
    if not timeline.answers and timeline.update.p50:
        yield f"`pulumi up` is done after {total(timeline.update)} ({spread(timeline.update)}), by typical times"
