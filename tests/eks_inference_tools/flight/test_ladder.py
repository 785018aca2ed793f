"""The ladder against a fake Automation workspace (support/fake_automation.py): trouble, caps, signals, kills in every rung."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import thorough_but
from eks_inference_tools.flight.journal import Caps, spent
from eks_inference_tools.flight.ladder import DESCENTS
from eks_inference_tools.flight.ports import Seen
from eks_inference_tools.reading.known_messages import runbook
from fake_automation import FakeEyes, FakeFinding, FakePilot, Killed, Trouble
from flights import AMPLE, Flight, course

UPDATES = {"control-plane": 1, "core": 2, "node": 3, "token": 4, "stack": 6, "load-test": 7}
"""The number of each rung's last update. That of the stack has one before it, which takes the smoke server away."""

RUNGS = [*UPDATES]

FAILURES = {
    "control-plane": "VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit of 0 allows",
    "core": "waiting for EKS Add-On (coredns) create: timeout while waiting for state to become 'ACTIVE'",
    "node": "NodeCreationFailure: Unhealthy nodes in the kubernetes cluster",
    "token": "Failed to pull image: not found",
    "stack": "AccessDenied: the pod has no credentials yet",
    "load-test": "the Job has failed",
}


@pytest.fixture
def flight(tmp_path: Path) -> Flight:
    return Flight(tmp_path)


def test_a_flight_climbs_every_rung_and_leaves_nothing(flight: Flight) -> None:
    eyes = FakeEyes(flight.clock)
    landed = flight.fly(eyes=eyes)
    assert (landed.landing, landed.gone) == ("reached", True)
    assert eyes.looked == RUNGS
    assert [(passed.rung, passed.outcome) for passed in flight.kept.passed] == [(one, "done") for one in ["doctor", *RUNGS]]
    assert flight.is_empty
    assert flight.kept.phase == "gone"
    assert all(span.until is not None for span in flight.kept.spans)


def test_what_is_kept_goes_on_costing_until_it_is_destroyed(flight: Flight) -> None:
    landed = flight.fly(pilot=FakePilot(keeping=[True]))
    assert (landed.landing, landed.gone, flight.kept.phase) == ("reached", False, "climbing")
    then = spent(flight.kept.spans, flight.clock.now())
    flight.clock.sleep(36_000)
    rate = course()[-1].usd_per_hour
    assert spent(flight.kept.spans, flight.clock.now()) == pytest.approx(then + 10 * rate)
    assert flight.ladder().destroy().gone
    assert flight.is_empty


@pytest.mark.thorough
@pytest.mark.parametrize("rung", RUNGS)
def test_a_failure_in_a_rung_is_told_and_torn_down(flight: Flight, rung: str) -> None:
    pilot, words = FakePilot(keeping=[True]), FAILURES[rung]
    trouble = {f"update_{UPDATES[rung]}": Trouble("fails", words)}
    landed = flight.fly(pilot=pilot, **trouble)
    assert (landed.landing, landed.gone) == ("failed", True)
    assert any(words in line for line in pilot.said)
    assert any(line.startswith(words) for line in flight.kept.passed[-1].words)
    assert f"  what to do: {', '.join(runbook(words))}" in pilot.said
    assert flight.is_empty
    # The next command begins anew.
    assert flight.fly().landing == "reached"


@pytest.mark.parametrize("rung", RUNGS)
def test_a_rung_that_is_never_ready_is_torn_down(flight: Flight, rung: str) -> None:
    eyes = FakeEyes(flight.clock, {rung: Seen("cap", ("nodes of pool neuron: 0 of 1 ready",))})
    landed = flight.fly(eyes=eyes)
    assert (landed.landing, landed.gone) == ("failed", True)
    assert flight.kept.passed[-1].words[1:] == ("nodes of pool neuron: 0 of 1 ready",)
    assert flight.is_empty


@pytest.mark.parametrize("rung", ["token", "stack", "load-test"])
def test_an_update_that_is_hopeless_is_not_waited_for(flight: Flight, rung: str) -> None:
    words = "Deployment smoke/smoke: 0 of 1 ready; ImagePullBackOff"
    pilot, began = FakePilot(), flight.clock.now()
    eyes = FakeEyes(flight.clock, lost={rung: (words,)})
    landed = flight.fly(pilot=pilot, eyes=eyes, **{f"update_{UPDATES[rung]}": Trouble("slow")})
    assert (landed.landing, landed.journal.passed[-1].rung, landed.gone) == ("failed", rung, True)
    assert any(words in line for line in pilot.said)
    assert flight.clock.now() - began < 5 * 3600, "the cap is at ten hours"
    assert flight.is_empty


@pytest.mark.parametrize("rung", RUNGS)
def test_a_cap_that_is_reached_in_a_rung_tears_down_below_it(flight: Flight, rung: str) -> None:
    number = [leg.name for leg in course()].index(rung)
    # Enough to begin the rung and no more.
    typical = sum(leg.climb.p50 + 60 for leg in course()[: number + 1])
    minutes = (typical + course()[number].descent.high + 60) / 60
    began = flight.clock.now()
    landed = flight.fly(caps=Caps(1000, minutes), **{f"update_{UPDATES[rung]}": Trouble("slow")})
    assert (landed.landing, landed.gone) == ("cap", True)
    assert flight.kept.passed[-1].rung == rung
    assert flight.is_empty
    assert flight.clock.now() - began <= minutes * 60 + 0.01


@pytest.mark.parametrize("rung", thorough_but(RUNGS[:1], RUNGS))
def test_a_flight_never_costs_more_than_its_cap(flight: Flight, rung: str) -> None:
    legs = course()
    number = [leg.name for leg in legs].index(rung)
    usd = sum(leg.usd + leg.usd_per_hour / 60 for leg in legs[: number + 1])
    usd += legs[number].usd_per_hour * legs[number].descent.high / 3600
    landed = flight.fly(caps=Caps(usd, 6000))
    assert landed.gone
    assert rung in [passed.rung for passed in flight.kept.passed]
    assert 0 < spent(flight.kept.spans, flight.clock.now()) <= usd + 1e-6
    assert flight.is_empty


def test_a_cap_below_the_first_deployment_deploys_nothing(flight: Flight) -> None:
    pilot = FakePilot()
    landed = flight.fly(caps=Caps(0.01, 600), pilot=pilot)
    assert (landed.landing, landed.gone, flight.automation.updates) == ("cap", True, 0)
    assert any("the cap is too low for this rung" in line for line in pilot.said)


@pytest.mark.parametrize("caps", [Caps(), Caps(usd=100), Caps(minutes=600)])
def test_without_both_caps_nothing_is_deployed_that_nobody_allows(flight: Flight, caps: Caps) -> None:
    landed = flight.fly(caps=caps)
    assert (landed.landing, landed.gone, flight.automation.updates) == ("stopped", True, 0)
    landed = flight.fly(caps=caps, pilot=FakePilot(goes=[True, True]))
    assert (landed.landing, landed.gone) == ("stopped", True)
    assert [passed.rung for passed in flight.kept.passed] == ["doctor", "control-plane", "core"]
    assert flight.is_empty


def test_a_doctor_who_finds_an_error_keeps_the_flight_on_the_ground(flight: Flight) -> None:
    pilot = FakePilot()
    no_quota = FakeFinding("quotas", "error", "0 of 4 vCPU of Running On-Demand Inf instances", "request 4")
    landed = flight.fly(findings=[no_quota], pilot=pilot)
    assert (landed.landing, landed.gone, flight.automation.updates) == ("failed", True, 0)
    assert "  error: quotas: 0 of 4 vCPU of Running On-Demand Inf instances (request 4)" in pilot.said


@pytest.mark.thorough
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("rung", RUNGS)
def test_a_signal_in_a_rung_asks_whether_to_keep(flight: Flight, rung: str, keeps: bool) -> None:
    pilot = FakePilot(keeping=[keeps])
    landed = flight.fly(pilot=pilot, **{f"update_{UPDATES[rung]}": Trouble("signal")})
    assert (landed.landing, landed.gone) == ("interrupted", not keeps)
    assert any(line.startswith("interrupted: what stands costs $") for line in pilot.said)
    assert flight.is_empty != keeps
    if keeps:
        assert flight.kept.phase == "climbing"
        assert flight.fly().landing == "reached"
        assert flight.is_empty


@pytest.mark.parametrize("rung", RUNGS)
def test_a_signal_while_a_rung_is_verified_asks_as_well(flight: Flight, rung: str) -> None:
    landed = flight.fly(eyes=FakeEyes(flight.clock, {rung: KeyboardInterrupt}))
    assert (landed.landing, landed.gone) == ("interrupted", True)
    assert flight.kept.passed[-1].outcome == "interrupted"
    assert flight.is_empty


def test_a_signal_at_the_question_leaves_everything_and_can_be_resumed(flight: Flight) -> None:
    landed = flight.fly(pilot=FakePilot(keeping=[KeyboardInterrupt]), update_3=Trouble("signal"))
    assert (landed.landing, landed.gone) == ("interrupted", False)
    assert flight.fly().gone
    assert flight.is_empty


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["killed", "lost"])
@pytest.mark.parametrize("rung", RUNGS)
def test_a_killed_flight_goes_on_where_it_was(flight: Flight, rung: str, kind: str) -> None:
    with pytest.raises(Killed):
        flight.fly(**{f"update_{UPDATES[rung]}": Trouble(kind)})  # type: ignore[arg-type]
    assert not flight.is_empty
    before = flight.kept
    assert (before.phase, before.at) == ("climbing", rung)
    flight.clock.sleep(3600)
    eyes = FakeEyes(flight.clock)
    landed = flight.fly(eyes=eyes)
    assert landed.landing == "reached"
    assert eyes.looked == RUNGS[RUNGS.index(rung) :]
    # The hour in between is paid for.
    assert spent(flight.kept.spans, flight.clock.now()) > spent(before.spans, flight.clock.now() - 3600)


@pytest.mark.parametrize("kind", ["killed", "lost"])
def test_a_killed_teardown_goes_on_tearing_down(flight: Flight, kind: str) -> None:
    with pytest.raises(Killed):
        flight.fly(update_3=Trouble("fails", "no capacity"), update_4=Trouble(kind))  # type: ignore[arg-type]
    assert flight.kept.phase == "down"
    pilot = FakePilot()
    landed = flight.fly(pilot=pilot)
    assert (landed.landing, landed.gone) == ("failed", True)
    assert pilot.said[0] == "an earlier command was tearing this flight down: going on with that"
    assert flight.is_empty


def test_a_destroy_that_fails_is_tried_again(flight: Flight) -> None:
    stuck = {f"update_{8 + number}": Trouble("fails", "DependencyViolation", share=0.3) for number in range(DESCENTS - 1)}
    assert flight.fly(**stuck).gone
    assert flight.is_empty


def test_a_destroy_that_never_works_says_what_is_left_and_can_be_resumed(flight: Flight) -> None:
    pilot = FakePilot()
    stuck = {f"update_{8 + number}": Trouble("fails", "DependencyViolation", share=0) for number in range(DESCENTS)}
    landed = flight.fly(pilot=pilot, **stuck)
    assert (landed.gone, flight.kept.phase) == (False, "down")
    again = "run the same command again to go on (docs/runbook/stuck-destroy.md)"
    assert pilot.said[-1] == f"not everything could be torn down in {DESCENTS} tries: {again}"
    assert any(line.startswith("  still there: urn:") for line in pilot.said)
    assert flight.fly().gone
    assert flight.is_empty


@pytest.mark.parametrize("keeps", [True, False])
def test_a_signal_in_the_teardown_asks_as_well(flight: Flight, keeps: bool) -> None:
    pilot = FakePilot(keeping=[False, keeps])
    landed = flight.fly(pilot=pilot, update_8=Trouble("signal", share=0.5))
    assert landed.gone != keeps
    assert flight.kept.phase == ("down" if keeps else "gone")
    assert flight.fly(to="doctor").gone
    assert flight.is_empty


def test_a_flight_that_stops_at_a_rung_can_go_on(flight: Flight) -> None:
    landed = flight.fly(to="core", pilot=FakePilot(keeping=[True]))
    assert (landed.landing, flight.kept.reached, flight.kept.phase) == ("reached", "core", "climbing")
    eyes = FakeEyes(flight.clock)
    assert flight.fly(eyes=eyes).gone
    assert eyes.looked == ["node", "token", "stack", "load-test"]


def test_measured_times_are_rows(flight: Flight) -> None:
    flight.fly()
    rows = [row for row in flight.kept.rows if row["kind"] == "time"]
    assert {row["action"] for row in rows} == {"create", "delete"}
    assert {row["what"] for row in rows if row["type"] == "aws:eks/addon:Addon"} >= {"coredns", "vpc-cni"}


TROUBLES = st.builds(
    Trouble,
    st.sampled_from(["fails", "slow", "signal", "killed", "lost"]),
    st.just("something"),
    st.floats(0, 1),
)


@pytest.mark.thorough
@given(
    commands=st.lists(
        st.tuples(
            st.dictionaries(st.integers(1, 9), TROUBLES, max_size=3),
            st.sampled_from([AMPLE, Caps(0.5, 600), Caps(2, 60), Caps(100, 90)]),
            st.lists(st.booleans(), max_size=3),
            st.sampled_from(["core", "token", "load-test"]),
        ),
        min_size=1,
        max_size=5,
    )
)
@settings(deadline=None)
def test_whatever_happens_nothing_is_left_or_the_next_command_knows(
    commands: list, tmp_path_factory: pytest.TempPathFactory
) -> None:
    flight = Flight(tmp_path_factory.mktemp("flight"))
    for troubles, caps, keeping, to in commands:
        pilot = FakePilot(keeping=[*keeping])
        try:
            landed = flight.fly(caps=caps, pilot=pilot, to=to, **{f"update_{at}": one for at, one in troubles.items()})
        except Killed:
            landed = None
        kept = flight.kept
        if kept.phase == "gone":
            assert not flight.automation.state
            # What only the account knows was told: an operation that was cut off.
            assert not flight.automation.account or any("cut off" in line for line in pilot.said) or landed is None
        else:
            assert kept.at is not None
        if landed and not landed.gone:
            assert kept.phase in ("climbing", "down")
    flight.automation.troubles = {}
    flight.ladder().destroy()
    assert not flight.automation.state
    assert spent(flight.kept.spans, flight.clock.now()) == spent(flight.kept.spans, flight.clock.now() + 1e6)
