"""Data of a replay: phases of load, a sample every second, and steps between samples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class Phase:
    """A number of users for some seconds.

    With ``silent`` the youngest pod does not answer Prometheus, though it still serves, until a pod goes. With ``until_least``
    the phase ends early, some seconds after the autoscaler has reached its minimum.
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
"""No load; load for two pods; more than all pods can take; so little that pods are idle. Nine minutes at most.

The last phase covers two scale-in windows: Kubernetes assumes a missing pod to be at the target, which keeps one more pod until a
window after the missing one is seen again or gone.
"""


@dataclass(frozen=True)
class Sample:
    """The state at one moment. ``at`` counts seconds since the autoscaler was created.

    ``replicas`` is from the Deployment's spec, ``desired`` from the autoscaler's status. ``values`` is the metric by pod as
    Prometheus has it, ``average`` the metric as the autoscaler has it. ``active`` is the autoscaler's condition ScalingActive,
    None while there is none; ``message`` is from the same condition. ``limited`` is the reason of ScalingLimited.
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
        """The average of the metric over the pods that have a value."""
        return sum(self.values.values()) / len(self.values) if self.values else None

    def document(self) -> dict[str, Any]:
        """Returns the sample as JSON, in which values that are not numbers are texts."""
        return vars(self) | {
            "at": round(self.at, 1),
            "silent": sorted(self.silent),
            "idle": sorted(self.idle),
            "values": None if self.values is None else {pod: _number(value) for pod, value in sorted(self.values.items())},
            "limited": self.limited or None,
            "message": self.message or None,
        }


@dataclass(frozen=True)
class Step:
    """A change of a number between two samples. ``last`` is the sample before it."""

    at: float
    before: int
    after: int
    last: Sample

    @property
    def up(self) -> bool:
        return self.after > self.before


def steps(samples: Sequence[Sample], key: str) -> tuple[Step, ...]:
    """Returns every change of ``users`` or ``replicas``, in order of time."""
    numbers = [(sample, getattr(sample, key)) for sample in samples]
    return tuple(Step(now.at, first, second, last) for (last, first), (now, second) in pairwise(numbers) if first != second)


def _number(value: float) -> float | str:
    return round(value, 3) if math.isfinite(value) else str(value)
