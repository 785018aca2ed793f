"""Schedules steps: each starts when all that it stands on has ended. Start and end of each step, and the path that decides."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from eks_inference.catalog.times import PASSES, Pass, Typical


@dataclass(frozen=True)
class Step:
    """Something that takes time.

    ``id`` is unique: the URN of a resource, or the URN, ``#`` and a phase of its pods. ``urn`` is the resource it belongs to,
    empty for what belongs to none. ``time`` is None without a typical time; the step then counts as none. ``after``
    are ids of the steps that have to end first; unknown ids do not count. ``in_update`` says whether the engine waits for it.
    """

    id: str
    urn: str
    title: str
    time: Typical | None
    after: tuple[str, ...] = ()
    in_update: bool = True
    phase: str = ""
    """What a phase is, without the resource it belongs to; empty for a whole resource."""


@dataclass(frozen=True)
class Span:
    """Start and end of a step, in seconds from the beginning. ``waits_for`` is the id of the step that it started after."""

    start: float
    end: float
    waits_for: str = ""

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Schedule:
    """The spans of all steps by id."""

    steps: Mapping[str, Step]
    spans: Mapping[str, Span]

    @cached_property
    def total(self) -> float:
        """Seconds until everything has ended."""
        return max((span.end for span in self.spans.values()), default=0)

    @cached_property
    def in_update(self) -> float:
        """Seconds until the engine has nothing left to wait for."""
        return max((self.spans[step.id].end for step in self.steps.values() if step.in_update), default=0)

    def last(self, among: Iterable[str]) -> str:
        """Returns the step of those that ends last; ties go to the first."""
        return max(among, key=lambda id_: self.spans[id_].end, default="")

    def path(self, to: str) -> tuple[Step, ...]:
        """Returns the steps that decide when the step ``to`` ends, in their order: without gaps from the beginning to its end."""
        found = []
        while to:
            found.append(self.steps[to])
            to = self.spans[to].waits_for
        return tuple(reversed(found))

    def of(self, urn: str) -> Span:
        """Returns the span of a resource, with the phases of its pods that the engine waits for. Raises ``KeyError``."""
        own = [self.spans[step.id] for step in self._by_urn[urn] if step.in_update]
        first = min(own, key=lambda span: span.start)
        return Span(first.start, max(span.end for span in own), first.waits_for)

    @cached_property
    def _by_urn(self) -> Mapping[str, list[Step]]:
        found: dict[str, list[Step]] = {}
        for step in self.steps.values():
            found.setdefault(step.urn, []).append(step)
        return found


Order = Mapping[str, tuple[str, ...]]
"""Ids of steps, each after those that it waits for, which are its values."""


def schedule(steps: Sequence[Step], which: Pass = "p50") -> Schedule:
    """Returns when each step starts and ends, with as many at once as there are.

    Steps in a circle, which no engine allows, come in the order given.
    """
    return _scheduled({step.id: step for step in steps}, _in_order(steps), which)


def schedules(steps: Sequence[Step]) -> Mapping[Pass, Schedule]:
    """Returns the schedules of all passes."""
    by_id, order = {step.id: step for step in steps}, _in_order(steps)
    return {which: _scheduled(by_id, order, which) for which in PASSES}


def _scheduled(by_id: Mapping[str, Step], after: Order, which: Pass) -> Schedule:
    seconds = {id_: step.time.at(which) if step.time else 0.0 for id_, step in by_id.items()}
    return Schedule(by_id, _spans(after, seconds))


def _in_order(steps: Sequence[Step]) -> Order:
    by_id = {step.id: step for step in steps}
    known = {id_: tuple(one for one in step.after if one in by_id and one != id_) for id_, step in by_id.items()}
    try:
        return {id_: known[id_] for id_ in TopologicalSorter(known).static_order()}
    except CycleError:
        place = {id_: number for number, id_ in enumerate(known)}
        return {id_: tuple(one for one in after if place[one] < place[id_]) for id_, after in known.items()}


def _spans(after: Order, seconds: Mapping[str, float]) -> dict[str, Span]:
    spans: dict[str, Span] = {}
    for id_, others in after.items():
        start, before = 0.0, ""
        for other in others:
            if (end := spans[other].end) > start:
                start, before = end, other
        spans[id_] = Span(start, start + seconds[id_], before)
    return spans
