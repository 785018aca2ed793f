"""Compares the timelines of two graphs, each of a first `pulumi up`: what comes later or sooner, and because of what. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eks_inference_tools.timeline.timeline import Course, End, Timeline, timeline
from eks_inference_tools.timeline.wording import duration, told, total
from stackgraph.graph.document import Graph
from stackgraph.graph.values import joined

_LEAST_S = 1
"""Differences below this are not told."""

_MOST_REASONS = 3


@dataclass(frozen=True)
class Shift:
    """How an end moves. ``before`` and ``after`` are None for a server that only one of the graphs has.

    ``reasons`` are the steps on the paths that changed, those with the largest difference first.
    """

    what: str
    before: End | None
    after: End | None
    reasons: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """By how much the end comes later (p50); negative: sooner."""
        return self.after.p50 - self.before.p50 if self.before and self.after else 0

    @property
    def words(self) -> str:
        """``+2 min 10 s to the first answer of llama, because …``."""
        if self.before is None or self.after is None:
            end = self.after or self.before
            found = f"{'at least ' if end and end.untimed else ''}{duration(end.p50) if end else ''}"
            return f"{'new: ' if self.after else 'gone: '}{found} {self.what}"
        sign = "+" if self.seconds > 0 else "-"
        because = f", because {joined(*self.reasons, by='; ')}" if self.reasons else ""
        return f"{sign}{duration(abs(self.seconds))} {self.what}{because}"


def change(before: Graph | None, after: Graph | None) -> str:
    """Returns in a line what moves; the times themselves of a stack that only one side has; empty if nothing moves."""
    if before and after:
        return "; ".join(shift.words for shift in compared(before, after))
    only = before or after
    if only is None:
        return ""
    found = timeline(only)
    return "; ".join(f"{total(end)} to the first answer of {end.name}" for end in found.answers)


def compared(before: Graph, after: Graph) -> tuple[Shift, ...]:
    """Returns what moves by a second or more: the end of `pulumi up`, and the first answer of each server."""
    return tuple(_compared(timeline(before), timeline(after)))


def _compared(before: Timeline, after: Timeline) -> Iterator[Shift]:
    # A server is the same if its name is: URNs change with a stack's name.
    old, new = ({end.name: end for end in one.answers} for one in (before, after))
    pairs = [("until `pulumi up` is done", before.update, after.update)]
    pairs += [(f"to the first answer of {name}", old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys())]
    for what, one, other in pairs:
        if one is None or other is None:
            yield Shift(what, one, other)
        elif abs(other.p50 - one.p50) >= _LEAST_S:
            yield Shift(what, one, other, _reasons(before.creation, one, after.creation, other))


def _reasons(old: Course, one: End, new: Course, other: End) -> tuple[str, ...]:
    before, after = _seconds(old, one), _seconds(new, other)
    moved = {title: after.get(title, 0) - before.get(title, 0) for title in {**before, **after}}
    largest = sorted((title for title in moved if abs(moved[title]) >= _LEAST_S), key=lambda title: (-abs(moved[title]), title))
    return tuple(_reason(title, before.get(title), after.get(title)) for title in largest[:_MOST_REASONS])


def _seconds(course: Course, end: End) -> Mapping[str, float]:
    return {one.step.title: one.seconds for one in told(course, end)}


def _reason(title: str, before: float | None, after: float | None) -> str:
    if before is None:
        return f"{title} ({duration(after or 0)}) is waited for"
    if after is None:
        return f"{title} ({duration(before)}) no longer is"
    return f"{title} takes {duration(after)} instead of {duration(before)}"
