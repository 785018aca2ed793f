"""Compares the timelines of two graphs, each of a first `pulumi up`: what comes later or sooner, and because of what. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from eks_inference_tools.timeline.planner import Step
from eks_inference_tools.timeline.steps import is_job
from eks_inference_tools.timeline.timeline import Course, End, Timeline
from eks_inference_tools.timeline.wording import PathStep, duration, summary, told, total
from stackgraph.graph.document import Graph
from stackgraph.graph.values import grouped, joined

_T = TypeVar("_T")

_LEAST_S = 1
"""Differences below this are not told."""

_MOST_REASONS = 2


@dataclass(frozen=True)
class Shift:
    """How an end moves. ``before`` and ``after`` are None for a server that only one of the graphs has.

    ``reasons`` are the steps on the paths that changed, those with the largest difference first. ``unknown`` are the steps
    without a typical time that only one of the graphs waits for: with any, the difference is not known.
    """

    what: str
    before: End | None
    after: End | None
    reasons: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """By how much the end comes later (p50); negative: sooner."""
        return self.after.p50 - self.before.p50 if self.before and self.after else 0

    @property
    def words(self) -> str:
        """``+2 min 10 s to the first answer of llama, because …``."""
        if self.before is None or self.after is None:
            end = self.after or self.before
            return f"{'new: ' if self.after else 'gone: '}{total(end) if end else ''} {self.what}"
        if self.unknown:
            return f"unknown change {self.what}: no typical time of {joined(*self.unknown, by='; ')}"
        because = f", because {joined(*self.reasons, by='; ')}" if self.reasons else ""
        return f"{'+' if self.seconds > 0 else '−'}{duration(abs(self.seconds))} {self.what}{because}"


def change(before: Timeline | None, after: Timeline | None) -> str:
    """Returns in a line how the first answers move; without servers, the end of `pulumi up`. Empty if nothing moves.

    For a stack that only one side has: the times themselves.
    """
    if before and after:
        shifts = _compared(before, after)
        return "; ".join(shift.words for shift in shifts if not after.answers or shift.what != _UPDATE)
    only = before or after
    return "; ".join(summary(only)) if only else ""


def compared(before: Timeline, after: Timeline) -> tuple[Shift, ...]:
    """Returns what moves by a second or more: the end of `pulumi up`, and the first answer of each server."""
    return tuple(_compared(before, after))


_UPDATE = "until `pulumi up` is done"


def _compared(before: Timeline, after: Timeline) -> Iterator[Shift]:
    # A server is the same if its name is: URNs change with a stack's name.
    old, new = ({end.name: end for end in one.answers} for one in (before, after))
    pairs = [(_UPDATE, before.update, after.update)]
    pairs += [(f"to the first answer of {name}", old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys())]
    for what, one, other in pairs:
        if one is None or other is None:
            yield Shift(what, one, other)
            continue
        unknown = _unknown(_long(before.graph, one), _long(after.graph, other))
        if unknown or abs(other.p50 - one.p50) >= _LEAST_S:
            yield Shift(what, one, other, _reasons(before.creation, one, after.creation, other), unknown)


def _key(step: Step) -> str:
    """What a step is called in both graphs: its id without the name of the stack."""
    return step.id.partition("::")[2] or step.id


def _renamed(before: Mapping[str, _T], after: Mapping[str, _T]) -> Mapping[str, _T]:
    """Returns ``after`` by the keys of ``before``: what only one of them has is the same if only its resource's name differs."""
    gone = grouped((_nameless(key), key) for key in before if key not in after)
    found: dict[str, _T] = {}
    for key, value in after.items():
        same = [] if key in before else gone.get(_nameless(key), [])
        found[same.pop(0) if same else key] = value
    return found


def _nameless(key: str) -> tuple[str, str]:
    types, _, name = key.rpartition("::")
    return types, name.partition("#")[2]


def _long(graph: Graph, end: End) -> list[Step]:
    """The untimed steps that may take long: those of servers, and Jobs. Small resources without a time do not count."""
    return [step for step in end.untimed if step.phase or (step.urn in graph.by_urn and is_job(graph.by_urn[step.urn]))]


def _unknown(one: Iterable[Step], other: Iterable[Step]) -> tuple[str, ...]:
    """The titles of the steps that only one side has."""
    before, steps = ({_key(step): step.title for step in steps} for steps in (one, other))
    after = _renamed(before, steps)
    return tuple(title for key, title in {**before, **after}.items() if (key in before) != (key in after))


def _reasons(old: Course, one: End, new: Course, other: End) -> tuple[str, ...]:
    before = _steps(old, one)
    after = _renamed(before, _steps(new, other))
    moved = {key: _seconds(after.get(key)) - _seconds(before.get(key)) for key in {**before, **after}}
    largest = sorted((key for key in moved if abs(moved[key]) >= _LEAST_S), key=lambda key: (-abs(moved[key]), key))
    return tuple(_reason(before.get(key), after.get(key)) for key in largest[:_MOST_REASONS])


def _steps(course: Course, end: End) -> Mapping[str, PathStep]:
    return {_key(one.step): one for one in told(course, end)}


def _seconds(step: PathStep | None) -> float:
    return step.seconds if step else 0


def _reason(before: PathStep | None, after: PathStep | None) -> str:
    if before and after:
        return f"{after.step.title}: {duration(after.seconds)} instead of {duration(before.seconds)}"
    if after:
        return f"{after.step.title}: {duration(after.seconds)} more to wait for"
    return f"{before.step.title}: {duration(before.seconds)} no longer to wait for" if before else ""
