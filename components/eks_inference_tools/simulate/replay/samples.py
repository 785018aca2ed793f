"""What a replay does and what it sees: phases of load, and a sample every second. Data only."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class Phase:
    """Users for some seconds. ``silent``: from its beginning until a pod goes, the youngest pod does not answer Prometheus,
    though it serves on.

    A phase with ``until_least`` ends earlier, some seconds after the fewest pods are left.
    """

    seconds: int
    users: int
    silent: bool = False
    until_least: bool = False


TIMELINE = (
    Phase(20, users=0),
    Phase(40, users=32),
    Phase(95, users=128),
    Phase(365, users=2, silent=True, until_least=True),
)
"""Idle; what takes two pods; more than all of them do; so little that pods have nothing to do. Nine minutes at most.

The last takes two windows of scaling in: Kubernetes reckons with a missing pod as if it were at the target, and so keeps one pod
more until a window after that one is seen again or gone.
"""


@dataclass(frozen=True)
class Sample:
    """One moment. ``at`` is in seconds since the autoscaler was made.

    ``replicas`` is what the Deployment was told, ``desired`` what the autoscaler's status says; ``values`` is its metric by pod
    as Prometheus has it, ``average`` the autoscaler's own. ``active`` is None before the autoscaler has said anything.
    ``limited`` is its reason for not doing what it would.
    """

    at: float
    users: int
    replicas: int
    desired: int
    ready: tuple[str, ...]
    silent: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    values: Mapping[str, float] | None = None
    average: float | None = None
    active: bool | None = None
    limited: str = ""
    message: str = ""
    completed: int = 0

    @property
    def queueing(self) -> float | None:
        """The metric's average over the pods that have it."""
        return sum(self.values.values()) / len(self.values) if self.values else None

    def document(self) -> dict[str, Any]:
        """As JSON, which has no number for NaN."""
        return {
            "at": round(self.at, 1),
            "users": self.users,
            "replicas": self.replicas,
            "desired": self.desired,
            "ready": list(self.ready),
            "silent": sorted(self.silent),
            "idle": sorted(self.idle),
            "values": None if self.values is None else {pod: _number(value) for pod, value in sorted(self.values.items())},
            "average": self.average,
            "active": self.active,
            "limited": self.limited or None,
            "message": self.message or None,
            "completed": self.completed,
        }


@dataclass(frozen=True)
class Step:
    """A change of a number from one sample to the next."""

    at: float
    before: int
    after: int

    @property
    def up(self) -> bool:
        return self.after > self.before


def steps(samples: Sequence[Sample], key: str) -> tuple[Step, ...]:
    """Every change of ``users`` or ``replicas``."""
    return tuple(_steps(samples, key))


def _steps(samples: Sequence[Sample], key: str) -> Iterator[Step]:
    for before, after in pairwise(samples):
        first, second = getattr(before, key), getattr(after, key)
        if first != second:
            yield Step(after.at, first, second)


def _number(value: float) -> float | str:
    return round(value, 3) if math.isfinite(value) else str(value)
