"""Climbs the rungs one after the other, and back down. It decides everything, and touches nothing but what is injected.

At every moment the journal says enough to go on after a kill: what is to be done stands in it before it is done.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from eks_inference_tools.cost.money import money
from eks_inference_tools.flight.course import Leg
from eks_inference_tools.flight.evidence import explained
from eks_inference_tools.flight.journal import Caps, Journal, Meter, Passed, priced, spent
from eks_inference_tools.flight.ports import Clock, Doctor, Ended, Pilot, Seen, Timed, Verifier, Workspace
from eks_inference_tools.flight.rungs import RungName
from eks_inference_tools.reading.known_messages import runbook
from eks_inference_tools.timeline.durations import duration
from eks_inference_tools.timeline.update_steps import what

LEAST_LOOK_S = 600
"""How long verification waits at least for what starts."""

DESCENTS = 4
"""How often a destroy is tried."""

PAUSES_S = (30, 60, 120)
"""Between the tries: AWS deletes interfaces and load balancers some time after what used them."""

Landing = Literal["reached", "stopped", "failed", "cap", "interrupted"]
"""``reached``: the last rung that was asked for. ``stopped``: nobody allowed the next one."""


@dataclass(frozen=True)
class Landed:
    """How a flight ended, and whether nothing is left of it."""

    landing: Landing
    journal: Journal
    gone: bool


@dataclass
class Ladder:
    """One flight. ``save`` keeps the journal; it is called before and after everything that changes the account."""

    legs: Sequence[Leg]
    workspace: Workspace
    verifier: Verifier
    doctor: Doctor
    pilot: Pilot
    clock: Clock
    save: Callable[[Journal], None]
    caps: Caps
    journal: Journal
    to: RungName = "load-test"

    def fly(self) -> Landed:
        """Climbs from where the journal is, and lands. Never raises ``KeyboardInterrupt``: it is a way to end."""
        self._began = self.clock.now()
        if self.journal.phase == "down":
            self.pilot.say("an earlier command was tearing this flight down: going on with that")
            return self._down("failed")
        try:
            landing = self._climb()
        except KeyboardInterrupt:
            landing = "interrupted"
        if landing in ("failed", "cap"):
            return self._down(landing)
        if not self._stands:
            return self._landed(landing, gone=True)
        why = {"reached": "the last rung is reached", "stopped": "the flight stops here"}.get(landing, "interrupted")
        if self._kept(why):
            return self._landed(landing, gone=False)
        return self._down(landing)

    def destroy(self) -> Landed:
        """Tears down whatever the flight has made."""
        self._began = self.clock.now()
        return self._down("stopped")

    @property
    def meter(self) -> Meter:
        now = self.clock.now()
        return Meter(self.caps, spent(self.journal.spans, now), max(now - self._began, 0))

    # -- up ----------------------------------------------------------------------------------------------------------------------

    def _climb(self) -> Landing:
        names = [leg.name for leg in self.legs]
        first = names.index(self.journal.reached) + 1 if self.journal.reached in names else 0
        last = names.index(self.to) if self.to in names else len(names) - 1
        for number, leg in enumerate(self.legs[first : last + 1], start=first):
            self.pilot.say(f"rung {number + 1} of {len(self.legs)}: {leg.rung.title}{self._forecast(leg)}")
            if leg.deployments and (refused := self._refused(leg)):
                return refused
            ended = self._rung(leg)
            if ended != "done":
                return "failed" if ended == "failed" else ended
        return "reached"

    def _forecast(self, leg: Leg) -> str:
        if not leg.deployments:
            return ""
        return f", {typically(leg)}; so far {money(self.meter.spent_usd)}"

    def _refused(self, leg: Leg) -> Landing | None:
        """Why a leg is not begun: nobody allows it, or the caps do not reach for it."""
        if not self.caps.both and not self.pilot.goes_on(leg):
            return "stopped"
        left = self.meter.left_s(leg.usd_per_hour, leg.descent.high)
        if left < leg.climb.p50:
            self.pilot.say(self._too_little(leg, left))
            return "cap"
        return None

    def _too_little(self, leg: Leg, left: float) -> str:
        why = "no time is left" if left <= 0 else f"only {duration(left)} are left"
        return (
            f"the cap is too low for this rung: {why} before the way down has to begin, which takes up to "
            f"{duration(leg.descent.high)}; the rung takes {duration(leg.climb.p50)}"
        )

    def _rung(self, leg: Leg) -> Ended:
        began = self.clock.now()
        self._note(at=leg.rung.name, spans=priced(self.journal.spans, began, max(leg.usd_per_hour, self.rate)))
        try:
            ended, words = self._asked() if leg.name == "doctor" else self._deployed(leg)
        except KeyboardInterrupt:
            self._note(passed=self._with(leg, "interrupted", began, ()))
            raise
        for line in words:
            self.pilot.say(f"  {line}")
        if ended == "failed":
            self.pilot.say(f"  what to do: {', '.join(runbook(*words))}")
        if ended == "done":
            self._note(reached=leg.rung.name, spans=priced(self.journal.spans, self.clock.now(), leg.usd_per_hour))
        self._note(passed=self._with(leg, ended, began, words))
        self.pilot.say(f"{leg.name}: {_ENDED[ended]} after {duration(self.clock.now() - began)}")
        return ended

    def _asked(self) -> tuple[Ended, tuple[str, ...]]:
        found = self.doctor()
        self._measure({"kind": "account", "topic": one.topic, "facts": dict(one.facts)} for one in found if one.facts)
        told = [finding for finding in found if finding.verdict != "ok"]
        words = tuple(f"{one.verdict}: {one.topic}: {one.text}{f' ({one.remedy})' if one.remedy else ''}" for one in told)
        return ("failed" if any(finding.verdict == "error" for finding in found) else "done"), words

    def _deployed(self, leg: Leg) -> tuple[Ended, tuple[str, ...]]:
        for stage, deployment in zip(leg.rung.stages, leg.deployments, strict=True):
            outcome = self.workspace.up(stage, deployment, self._left(leg), self.verifier.watch(leg, deployment))
            self._measure(_times(outcome.timed, self.legs))
            if outcome.ended != "done":
                seen = self._look(leg, 0) if outcome.ended == "failed" else Seen("done")
                return outcome.ended, (*explained(outcome.faults), *seen.words)
        left, wait = self._left(leg), max(LEAST_LOOK_S, leg.climb.high, leg.patience_s)
        seen = self._look(leg, min(wait, left))
        if seen.ended == "cap" and wait <= left:
            return "failed", (f"not ready within {duration(wait)}", *seen.words)
        return seen.ended, seen.words

    def _look(self, leg: Leg, seconds: float) -> Seen:
        seen = self.verifier.look(leg, max(seconds, 0))
        self._measure(seen.rows)
        return seen

    def _left(self, leg: Leg) -> float:
        return self.meter.left_s(max(leg.usd_per_hour, self.rate), leg.descent.high)

    # -- down --------------------------------------------------------------------------------------------------------------------

    def _down(self, landing: Landing) -> Landed:
        if not self._stands:
            self._note(phase="gone", spans=priced(self.journal.spans, self.clock.now(), 0))
            return self._landed(landing, gone=True)
        self._note(phase="down")
        began = self.clock.now()
        self.pilot.say(f"tearing down, typically {duration(self._descent)}")
        for attempt in range(DESCENTS):
            try:
                ended = self._descend(attempt)
            except KeyboardInterrupt:
                ended = "interrupted"
            if ended == "done":
                now = self.clock.now()
                self._note(phase="gone", spans=priced(self.journal.spans, now, 0))
                self.pilot.say(f"nothing is left, after {duration(now - began)}; {money(self.meter.spent_usd)} in all")
                return self._landed(landing, gone=True)
            if ended == "interrupted" and self._kept("the teardown is interrupted"):
                # What is half torn down is no rung: the next command goes on tearing down.
                return self._landed("interrupted", gone=False)
        (page,) = runbook("being deleted")
        self.pilot.say(f"not everything could be torn down in {DESCENTS} tries: run the same command again to go on ({page})")
        return self._landed(landing, gone=False)

    def _descend(self, attempt: int) -> Ended:
        if attempt:
            self.clock.sleep(PAUSES_S[min(attempt, len(PAUSES_S)) - 1])
        outcome = self.workspace.destroy(refresh=attempt > 0)
        self._measure(_times(outcome.timed, self.legs))
        if outcome.ended == "interrupted":
            return "interrupted"
        left = self.workspace.left()
        for line in outcome.faults:
            self.pilot.say(f"  {line}")
        for line in left.pending:
            self.pilot.say(f"  cut off, so look whether it exists: {line}")
        if left.resources:
            self.pilot.say(f"  still there: {', '.join(left.resources[:10])}{', …' if left.resources[10:] else ''}")
            return "failed"
        return "done" if outcome.ended == "done" else "failed"

    def _kept(self, why: str) -> bool:
        try:
            return self.pilot.keeps(f"{why}: what stands costs {money(self.rate)} an hour")
        except KeyboardInterrupt:
            # Asked and not answered: whoever presses Ctrl-C again wants out.
            self.pilot.say("not answered: everything stays as it is")
            return True

    # -- the journal -------------------------------------------------------------------------------------------------------------

    @property
    def _stands(self) -> bool:
        """Whether anything may exist: a deployment was begun, and nothing has torn it down."""
        return self.journal.phase != "gone" and self.journal.at not in (None, "doctor")

    @property
    def rate(self) -> float:
        """What stands now costs so many USD an hour."""
        return next((span.usd_per_hour for span in reversed(self.journal.spans) if span.until is None), 0.0)

    @property
    def _descent(self) -> float:
        return next((leg.descent.p50 for leg in self.legs if leg.name == self.journal.at), 0.0)

    def _with(self, leg: Leg, outcome: str, began: float, words: Iterable[str]) -> tuple[Passed, ...]:
        return (*self.journal.passed, Passed(leg.name, outcome, self.clock.now() - began, tuple(words)))

    def _note(self, **changes: Any) -> None:
        self.journal = replace(self.journal, **changes)
        self.save(self.journal)

    def _measure(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Adds rows that are not there yet, except times: every one of those counts."""
        date = datetime.fromtimestamp(self.clock.now(), UTC).date().isoformat()
        found = list(self.journal.rows)
        for row in rows:
            dated = {**row, "date": date}
            if row["kind"] == "time" or dated not in found:
                found.append(dated)
        self._note(rows=tuple(found))

    def _landed(self, landing: Landing, *, gone: bool) -> Landed:
        return Landed(landing, self.journal, gone)


def typically(leg: Leg) -> str:
    """``typically at least 2 min, about $0.04``; nobody has published how long a load test takes."""
    if leg.climb.p50 < 1:
        return f"of unknown time, at {money(leg.usd_per_hour)} an hour"
    return f"typically {'at least ' if leg.climb.untimed else ''}{duration(leg.climb.p50)}, about {money(leg.usd)}"


_ENDED: Mapping[Ended, str] = {
    "done": "reached",
    "failed": "failed",
    "interrupted": "interrupted",
    "cap": "stopped by the cap",
}


def _times(timed: Sequence[Timed], legs: Sequence[Leg]) -> list[Mapping[str, Any]]:
    """Rows of times that the timeline has rows for. Resources that the graph does not know belong to a remote component."""
    known = {resource.urn: resource for leg in legs for deployment in leg.deployments for resource in deployment.graph.resources}
    found: list[Mapping[str, Any]] = []
    for one in timed:
        resource = known.get(one.urn)
        type_ = resource.type if resource else one.urn.split("::")[2].rpartition("$")[2] if one.urn.count("::") >= 2 else ""
        if type_ and math.isfinite(one.seconds):
            told = what(resource) if resource else ""
            found.append({"kind": "time", "action": one.action, "type": type_, "what": told, "seconds": round(one.seconds, 1)})
    return found
