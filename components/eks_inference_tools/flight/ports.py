"""What a flight stands on: the engine, the eyes on the cluster, the account, the pilot. Each is injected."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from eks_inference_tools.flight.course import Deployment, Leg
from eks_inference_tools.flight.rungs import Stage

Ended = Literal["done", "failed", "interrupted", "cap"]
"""``interrupted``: by a signal; ``cap``: the time that it was given is over. What was begun may be half done."""


class Finding(Protocol):
    """A verdict of ``doctor`` on the account, as ``eks_inference_tools.doctor`` has it."""

    @property
    def topic(self) -> str: ...
    @property
    def verdict(self) -> Literal["ok", "warning", "error", "unknown"]: ...
    @property
    def text(self) -> str: ...
    @property
    def remedy(self) -> str: ...
    @property
    def facts(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Timed:
    """One operation of the engine on one resource, and how long it took."""

    action: Literal["create", "delete"]
    urn: str
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """How an update ended. ``faults`` are the engine's own words."""

    ended: Ended
    faults: tuple[str, ...] = ()
    timed: tuple[Timed, ...] = ()


@dataclass(frozen=True)
class Left:
    """What the engine's state still has. ``pending`` are operations that were cut off: nobody knows what came of them."""

    resources: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """What verification saw. ``words`` are one line each; ``rows`` are facts for the bundle."""

    ended: Ended
    words: tuple[str, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()


Hopeless = Callable[[], tuple[str, ...]]
"""Asked again and again while an update runs, in another thread: says what of it has failed for good."""


class Workspace(Protocol):
    """One stack of the engine. An update that lasts longer than ``seconds`` ends with ``cap``, one that a signal ends with
    ``interrupted``, and one of which ``hopeless`` has something to say with ``failed``: all as soon as the engine lets go.
    """

    def left(self) -> Left: ...
    def up(self, stage: Stage, deployment: Deployment, seconds: float, hopeless: Hopeless) -> Outcome: ...
    def destroy(self, *, refresh: bool) -> Outcome: ...


class Verifier(Protocol):
    """Looks at a deployed rung until all is well, something has failed for good, or ``seconds`` are over (``cap``).

    Ctrl-C raises ``KeyboardInterrupt``.
    """

    def look(self, leg: Leg, seconds: float) -> Seen: ...
    def watch(self, leg: Leg, deployment: Deployment) -> Hopeless: ...


class Doctor(Protocol):
    """Asks the account."""

    def __call__(self) -> Sequence[Finding]: ...


class Pilot(Protocol):
    """Whoever is asked. ``say`` tells a line."""

    def say(self, line: str) -> None: ...
    def goes_on(self, leg: Leg) -> bool: ...
    def keeps(self, why: str) -> bool: ...


class Clock(Protocol):
    """``now`` is in seconds since 1970, so that the time between two commands counts."""

    def now(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...
