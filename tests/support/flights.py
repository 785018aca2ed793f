"""Flights of a shipped stack with the fake workspace."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from conftest import ROOT
from eks_inference_tools.flight.course import Leg, course_of
from eks_inference_tools.flight.journal import Caps, Journal, read_journal, write_journal
from eks_inference_tools.flight.ladder import Ladder, Landed
from eks_inference_tools.flight.ports import Finding
from eks_inference_tools.flight.rungs import RungName
from eks_inference_tools.program import program
from fake_automation import FakeAutomation, FakeClock, FakeEyes, FakeFinding, FakePilot, Trouble

STACK = "smoke-inf2"
AMPLE = Caps(100, 600)
WELL = (FakeFinding("quotas", "ok", "12 vCPU of Running On-Demand Inf instances"),)


@cache
def course(stack: str = STACK) -> tuple[Leg, ...]:
    return course_of(program(stack, ROOT))


@dataclass
class Flight:
    """One account, one work directory, and as many commands as a test runs."""

    folder: Path
    clock: FakeClock = field(default_factory=FakeClock)
    legs: Sequence[Leg] = field(default_factory=course)
    automation: FakeAutomation = field(init=False)

    def __post_init__(self) -> None:
        self.automation = FakeAutomation(self.clock, self.legs)

    @property
    def file(self) -> Path:
        return self.folder / "journal.json"

    def ladder(
        self,
        *,
        caps: Caps = AMPLE,
        pilot: FakePilot | None = None,
        eyes: FakeEyes | None = None,
        findings: Sequence[Finding] = WELL,
        to: RungName = "load-test",
        **troubles: Trouble,
    ) -> Ladder:
        """``troubles`` are by the update of this command that they happen in: ``update_3=Trouble(…)``."""
        before = self.automation.updates
        self.automation.troubles = {before + int(key.removeprefix("update_")): one for key, one in troubles.items()}
        journal = read_journal(self.file, STACK)
        if journal is None or journal.phase == "gone":
            journal = Journal(STACK)
        return Ladder(
            legs=self.legs,
            workspace=self.automation,
            verifier=eyes or FakeEyes(self.clock),
            doctor=lambda: findings,
            pilot=pilot or FakePilot(),
            clock=self.clock,
            save=lambda journal: write_journal(self.file, journal),
            caps=caps,
            journal=journal,
            to=to,
        )

    def fly(self, **given: Any) -> Landed:
        return self.ladder(**given).fly()

    @property
    def kept(self) -> Journal:
        found = read_journal(self.file, STACK)
        assert found, "nothing was written"
        assert json.loads(self.file.read_text("utf-8"))["schema"] == 1
        return found

    @property
    def is_empty(self) -> bool:
        return not (self.automation.account or self.automation.state)


def job_log() -> str:
    """As the Job of a load test prints it: its records, between other lines."""
    (folder,) = (ROOT / "tests" / "data" / "loadtest").glob("2026*")
    about = json.dumps(json.loads((folder / "run.json").read_text("utf-8")))
    return "\n".join(["llama3: 2 users", *(folder / "summary.jsonl").read_text("utf-8").splitlines(), about, "results: /results"])
