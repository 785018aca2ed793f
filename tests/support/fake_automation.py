"""A fake of Pulumi's Automation workspace and of what stands behind it, for tests of the ladder: an account, a state and a clock.

It is no engine: it creates what a deployment names, and forgets what it no longer names. A ``Trouble`` happens in one update.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from eks_inference_tools.flight.course import Deployment, Leg
from eks_inference_tools.flight.ports import Hopeless, Left, Outcome, Seen, Timed
from eks_inference_tools.flight.rungs import Stage


class Killed(BaseException):
    """The process is gone: nothing that stands after this in the program runs."""


@dataclass(frozen=True)
class Trouble:
    """What goes wrong, and after which share of an update's resources.

    ``fails`` with ``words``; ``slow`` lasts until the time of the update is over; ``signal`` is Ctrl-C; ``killed`` ends the
    process; ``lost`` is as ``killed``, in the middle of an operation that the account finishes.
    """

    kind: Literal["fails", "slow", "signal", "killed", "lost"]
    words: str = ""
    share: float = 0.5


@dataclass
class FakeClock:
    time: float = 1_800_000_000.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclass
class FakeAutomation:
    """``account`` is what exists and costs, ``state`` what the engine knows. ``troubles`` are by number of the update."""

    clock: FakeClock
    legs: Sequence[Leg]
    account: set[str] = field(default_factory=set)
    state: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    troubles: dict[int, Trouble] = field(default_factory=dict)
    updates: int = 0
    version: str = "3.260.0"
    backend: str = "file:///state"
    descent_s: float = 0.0

    def left(self) -> Left:
        return Left(tuple(sorted(self.state)), tuple(sorted(self.pending)))

    def up(self, stage: Stage, deployment: Deployment, seconds: float, hopeless: Hopeless) -> Outcome:
        leg = next(leg for leg in self.legs if stage in leg.rung.stages)
        self.descent_s = max(self.descent_s, leg.descent.high)
        wanted = {resource.urn for resource in deployment.graph.resources if resource.custom and not resource.is_default_provider}
        steps = [(urn, True) for urn in sorted(wanted - self.state)] + [(urn, False) for urn in sorted(self.state - wanted)]
        return self._update(steps, leg.climb.p50 / len(leg.deployments), seconds, hopeless)

    def destroy(self, *, refresh: bool) -> Outcome:
        if refresh:
            # A refresh finds what an operation that was cut off has made.
            self.state |= self.pending & self.account
            self.pending.clear()
        return self._update([(urn, False) for urn in sorted(self.state)], self.descent_s, float("inf"))

    def _update(self, steps: Sequence[tuple[str, bool]], lasts: float, most: float, hopeless: Hopeless = lambda: ()) -> Outcome:
        self.updates += 1
        trouble = self.troubles.get(self.updates)
        cut = int(len(steps) * trouble.share) if trouble else len(steps)
        each = lasts / max(len(steps), 1)
        timed: list[Timed] = []
        for number, (urn, is_made) in enumerate(steps):
            if trouble and number == cut:
                break
            if len(timed) * each >= most:
                return Outcome("cap", (), tuple(timed))
            self.clock.sleep(each)
            self._do(urn, is_made)
            timed.append(Timed("create" if is_made else "delete", urn, each))
        if trouble is None:
            return Outcome("done", (), tuple(timed))
        if trouble.kind == "lost" and cut < len(steps):
            urn, is_made = steps[cut]
            (self.account.add if is_made else self.account.discard)(urn)
            if is_made:
                self.pending.add(urn)
        if trouble.kind in ("killed", "lost"):
            raise Killed
        if trouble.kind == "slow" and (words := hopeless()):
            return Outcome("failed", words, tuple(timed))
        if trouble.kind == "slow":
            self.clock.sleep(most - len(timed) * each if most < 1e9 else 3600)
            return Outcome("cap" if most < 1e9 else "failed", (), tuple(timed))
        return Outcome("failed" if trouble.kind == "fails" else "interrupted", (trouble.words,), tuple(timed))

    def _do(self, urn: str, is_made: bool) -> None:
        for where in (self.account, self.state):
            (where.add if is_made else where.discard)(urn)


@dataclass
class FakeEyes:
    """A verifier: ``verdicts`` by name of a rung; all others are well after a minute. ``lost`` is hopeless, by name of a rung."""

    clock: FakeClock
    verdicts: Mapping[str, Seen | type[BaseException]] = field(default_factory=dict)
    looked: list[str] = field(default_factory=list)
    lost: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def look(self, leg: Leg, seconds: float) -> Seen:
        self.looked.append(leg.name)
        found = self.verdicts.get(leg.name, Seen("done"))
        if isinstance(found, type):
            raise found
        self.clock.sleep(min(60, seconds) if found.ended == "done" else seconds)
        return found

    def watch(self, leg: Leg, deployment: Deployment) -> Hopeless:
        return lambda: self.lost.get(leg.name, ())


@dataclass
class FakePilot:
    """Answers from lists; without answers left it destroys, and allows nothing."""

    goes: list[bool] = field(default_factory=list)
    keeping: list[bool | type[BaseException]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.said.append(line)

    def goes_on(self, leg: Leg) -> bool:
        return self.goes.pop(0) if self.goes else False

    def keeps(self, why: str) -> bool:
        self.said.append(why)
        answer = self.keeping.pop(0) if self.keeping else False
        if isinstance(answer, type):
            raise answer
        return answer


@dataclass(frozen=True)
class FakeFinding:
    topic: str
    verdict: Literal["ok", "warning", "error", "unknown"]
    text: str
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
