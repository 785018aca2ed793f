"""The ladder on the real engine, through the Automation API: with echo providers, in a state of its own, without a network.

Needs a ``pulumi`` command on PATH, as tests/eks_inference_tools/test_engine_parity.py does.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

import pytest

from conftest import ROOT
from eks_inference_tools.flight.course import Deployment, Leg, course_of
from eks_inference_tools.flight.journal import Caps, Journal, read_journal, write_journal
from eks_inference_tools.flight.ladder import Ladder, Landed
from eks_inference_tools.flight.ports import Hopeless, Outcome
from eks_inference_tools.flight.rungs import RungName, Stage
from eks_inference_tools.flight.workspace import AutomationWorkspace
from eks_inference_tools.program import StackProgram, program
from engine import cli, pace
from fake_automation import FakeClock, FakeEyes, FakePilot
from flights import WELL, course
from stackgraph.graph.document import STACK_TYPE, Resource
from stackgraph.recorder.project import find_project

pytestmark = pytest.mark.skipif(bool(cli.missing()), reason=cli.missing())

STACK = "smoke-gpu"


class RealFlight:
    """A new project with one stack, and a work directory."""

    def __init__(self, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work, self.folder = work, work / "flight"
        self.kind: type[AutomationWorkspace] = AutomationWorkspace
        environment = {**cli.new_project(find_project(ROOT), STACK, work), pace.VARIABLE: str(work / "pace.json")}
        for name in ("aws", "kubectl"):
            (tool := work / "bin" / name).write_text("#!/bin/sh\nexit 1\n")
            tool.chmod(0o755)
        self.paced({})
        self.folder.mkdir()
        for name in os.environ:
            monkeypatch.delenv(name)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        subprocess.run(["pulumi", "stack", "init", "--stack", STACK], cwd=work, check=True, capture_output=True, timeout=120)
        self.stack_file = work / "stacks" / f"Pulumi.{STACK}.yaml"
        self.before = self.stack_file.read_text()
        self.program: StackProgram = program(STACK, work)
        # As the shipped course, with the same URNs: recording it once is enough.
        self.legs = course(STACK)

    def paced(self, seconds: Mapping[str, Mapping[str, float | str]]) -> None:
        (self.work / "pace.json").write_text(json.dumps(seconds))

    def urn(self, type_: str, name: str) -> str:
        return next(one.urn for one in self.legs[-1].deployments[-1].graph.resources if one.type == type_ and one.name == name)

    def new_in(self, rung: RungName) -> str:
        """The URN of a resource that no rung before this one has."""
        earlier = {resource.urn for each in takewhile(lambda leg: leg.name != rung, self.legs) for resource in resources_of(each)}
        return next(
            one.urn for one in resources_of(leg(self, rung)) if one.custom and not one.is_provider and one.urn not in earlier
        )

    def fly(self, to: RungName, pilot: FakePilot | None = None, interrupted_in: RungName | None = None) -> Landed:
        file, clock = self.folder / "journal.json", FakeClock()
        return Ladder(
            legs=self.legs,
            workspace=self.workspace(),
            verifier=FakeEyes(clock, {interrupted_in: KeyboardInterrupt} if interrupted_in else {}),
            doctor=lambda: WELL,
            pilot=pilot or FakePilot(),
            clock=clock,
            save=lambda journal: write_journal(file, journal),
            caps=Caps(100, 600),
            journal=read_journal(file, STACK) or Journal(STACK),
            to=to,
        ).fly()

    def workspace(self) -> AutomationWorkspace:
        return self.kind(self.program, self.folder)

    def assert_nothing_left(self) -> None:
        assert self.workspace().left().resources == ()
        assert self.stack_file.read_text() == self.before
        assert not (self.folder / "engine.pid").exists()


@pytest.fixture
def flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealFlight:
    return RealFlight(tmp_path, monkeypatch)


def leg(flight: RealFlight, name: str) -> Leg:
    return next(one for one in flight.legs if one.name == name)


def resources_of(one: Leg) -> list[Resource]:
    return [resource for deployment in one.deployments for resource in deployment.graph.resources]


RUNGS: tuple[RungName, ...] = ("control-plane", "core", "node", "token", "stack", "load-test")
"""Those that deploy something."""


@pytest.mark.thorough
def test_every_rung_is_climbed_and_nothing_is_left(flight: RealFlight) -> None:
    there: list[set[str]] = []

    class Watching(AutomationWorkspace):
        def up(self, stage: Stage, deployment: Deployment, seconds: float, hopeless: Hopeless) -> Outcome:
            outcome = super().up(stage, deployment, seconds, hopeless)
            there.append({*self.left().resources})
            return outcome

    flight.kind = Watching
    assert [one.name for one in course_of(flight.program)] == [one.name for one in flight.legs]
    landed = flight.fly("load-test")
    assert (landed.landing, landed.gone) == ("reached", True)
    flight.assert_nothing_left()
    graphs = [deployment.graph for each in flight.legs for deployment in each.deployments]
    wanted = [
        {f"{one.type} {one.name}" for one in graph.resources if not one.is_provider and one.type != STACK_TYPE}
        for graph in graphs
    ]
    # What is inside of the remote component only the engine has.
    assert [found - expected for found, expected in zip(there, wanted, strict=True)] == [
        {f"aws:eks/cluster:Cluster {STACK}-control-plane-eksCluster"}
    ] * len(wanted)
    assert [expected - found for found, expected in zip(there, wanted, strict=True)] == [set()] * len(wanted)
    rows = [row for row in landed.journal.rows if row["kind"] == "time"]
    assert {row["action"] for row in rows} == {"create", "delete"}
    assert {"aws:eks/cluster:Cluster", "aws:eks/nodeGroup:NodeGroup"} <= {row["type"] for row in rows}


@pytest.mark.thorough
@pytest.mark.parametrize("rung", RUNGS)
def test_a_failure_in_a_rung_is_told_in_the_words_of_the_provider_and_torn_down(flight: RealFlight, rung: RungName) -> None:
    message = "VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit of 0 allows"
    urn = flight.new_in(rung)
    flight.paced({"create": {urn: message}})
    pilot = FakePilot()
    landed = flight.fly("load-test", pilot)
    assert (landed.landing, landed.journal.passed[-1].rung, landed.gone) == ("failed", rung, True)
    assert any(message in line and urn.split("::")[2].rpartition("$")[2] in line for line in pilot.said)
    flight.assert_nothing_left()


@pytest.mark.thorough
@pytest.mark.parametrize("rung", RUNGS)
def test_the_cap_in_an_update_of_a_rung_tears_everything_down(flight: RealFlight, rung: RungName) -> None:
    class Capped(AutomationWorkspace):
        def up(self, stage: Stage, deployment: Deployment, seconds: float, hopeless: Hopeless) -> Outcome:
            is_capped = any(deployment is one for one in leg(flight, rung).deployments)
            return super().up(stage, deployment, 0.1 if is_capped else seconds, hopeless)

    flight.kind = Capped
    flight.paced({"create": {flight.new_in(rung): 5.0}})
    landed = flight.fly("load-test")
    assert (landed.landing, landed.journal.passed[-1].rung, landed.gone) == ("cap", rung, True)
    flight.assert_nothing_left()


@pytest.mark.thorough
@pytest.mark.parametrize("rung", RUNGS)
def test_a_flight_that_was_left_in_a_rung_goes_on_from_there(flight: RealFlight, rung: RungName) -> None:
    landed = flight.fly("load-test", FakePilot(keeping=[True]), interrupted_in=rung)
    assert (landed.landing, landed.journal.passed[-1].rung, landed.gone) == ("interrupted", rung, False)
    there = {*flight.workspace().left().resources}
    assert there
    pilot = FakePilot()
    landed = flight.fly("load-test", pilot)
    assert (landed.landing, landed.gone) == ("reached", True)
    assert not any("control-plane" in line and "reached" in line for line in pilot.said) or rung == "control-plane"
    flight.assert_nothing_left()


@pytest.mark.thorough
def test_the_time_that_an_update_is_given_ends_it(flight: RealFlight) -> None:
    flight.paced({"create": {flight.urn("aws:ec2/vpc:Vpc", f"{STACK}-net-vpc"): 5.0}})
    first = leg(flight, "control-plane")
    workspace = flight.workspace()
    outcome = workspace.up(first.rung.stages[0], first.deployments[0], 0.1, tuple)
    assert outcome.ended == "cap"
    assert workspace.destroy(refresh=True).ended == "done"
    flight.assert_nothing_left()


@pytest.mark.thorough
def test_a_destroy_that_fails_is_resumed_by_the_next_command(flight: RealFlight) -> None:
    urn = flight.urn("aws:ec2/vpc:Vpc", f"{STACK}-net-vpc")
    flight.paced({"delete": {urn: "DependencyViolation: The vpc has dependencies and cannot be deleted"}})
    pilot = FakePilot()
    landed = flight.fly("control-plane", pilot)
    assert (landed.gone, landed.journal.phase) == (False, "down")
    assert any("DependencyViolation" in line for line in pilot.said)
    flight.paced({})
    assert flight.fly("control-plane").gone
    flight.assert_nothing_left()


@pytest.mark.thorough
def test_the_current_stack_of_the_user_stays_the_current_one(flight: RealFlight) -> None:
    def pulumi(*arguments: str) -> str:
        done = subprocess.run(["pulumi", *arguments], cwd=flight.work, check=True, capture_output=True, text=True, timeout=120)
        return done.stdout

    pulumi("stack", "init", "another")
    assert flight.workspace().left().resources == ()
    assert [load["name"] for load in json.loads(pulumi("stack", "ls", "--json")) if load["current"]] == ["another"]


@pytest.mark.thorough
def test_the_lock_of_a_command_that_was_killed_is_taken_away_and_that_of_one_at_work_is_not(flight: RealFlight) -> None:
    lock = flight.work / "state" / ".pulumi" / "locks" / "organization" / flight.program.project.name / STACK / "left.json"
    first = leg(flight, "control-plane")

    def up(pid: int) -> Outcome:
        """With a lock as a backend of files has it."""
        lock.write_text(json.dumps({"pid": pid, "username": "u", "hostname": "h", "timestamp": "2026-11-26T10:00:00Z"}))
        return flight.workspace().up(first.rung.stages[0], first.deployments[0], 600, tuple)

    held = up(os.getpid())
    assert held.ended == "failed"
    assert "another update holds the stack" in held.faults[0]
    assert lock.exists()
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert up(gone.pid).ended == "done"
    assert flight.workspace().destroy(refresh=False).ended == "done"
    flight.assert_nothing_left()
