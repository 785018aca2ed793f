"""The command ``first-flight``, with the fake Automation workspace in the place of Pulumi's."""

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from eks_inference_tools.cli import main
from eks_inference_tools.commands import first_flight
from eks_inference_tools.flight import course as courses
from eks_inference_tools.flight import eyes, pilots, workspace
from eks_inference_tools.flight.journal import read_journal
from fake_automation import FakeAutomation, FakeClock, FakeEyes, Killed, Trouble
from flights import WELL, course
from golden import assert_golden
from stackgraph.problems import ProblemsFound

CAPS = ("--cap-usd", "5", "--cap-minutes", "300")


class Cli:
    """One account behind the command, and one work directory."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.clock, self._capsys = folder / "work", FakeClock(), capsys
        self.automation = FakeAutomation(self.clock, course())
        self.findings: list[Any] = [*WELL]
        self.refused: list[str] = []
        monkeypatch.setattr(workspace, "AutomationWorkspace", lambda *given, **named: self.automation)
        monkeypatch.setattr(eyes, "ClusterEyes", lambda *given: FakeEyes(self.clock))
        monkeypatch.setattr(pilots, "WallClock", lambda: self.clock)
        monkeypatch.setattr(courses, "course_of", lambda *given: course())
        monkeypatch.setattr(first_flight, "_asked", lambda *given: self.findings)
        monkeypatch.chdir(ROOT)

    def run(self, *arguments: str) -> int:
        code = main(["first-flight", "--work", str(self.folder), "smoke-inf2", *arguments])
        self.out, self.err = self._capsys.readouterr()
        return code

    @property
    def bundle(self) -> dict[str, Any]:
        return json.loads((self.folder / "bundle.json").read_text("utf-8"))


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(tmp_path, monkeypatch, capsys)


@pytest.mark.thorough
def test_a_flight_says_what_it_does_and_leaves_a_bundle(cli: Cli) -> None:
    before = (ROOT / "stacks" / "Pulumi.smoke-inf2.yaml").read_bytes()
    assert cli.run(*CAPS) == 0
    assert_golden("flight/flight.txt", cli.out + cli.err.replace(str(cli.folder), "WORK"))
    assert cli.bundle["landing"] == "reached"
    assert [one["rung"] for one in cli.bundle["rungs"]][-1] == "load-test"
    assert "smoke-inf2" not in json.dumps(cli.bundle)
    assert not cli.automation.account
    assert (ROOT / "stacks" / "Pulumi.smoke-inf2.yaml").read_bytes() == before
    assert (cli.folder / ".gitignore").read_text() == "*\n"
    assert cli.folder.stat().st_mode & 0o777 == 0o700


def test_a_plan_touches_nothing(cli: Cli) -> None:
    assert cli.run("--plan", *CAPS) == 0
    assert cli.automation.updates == 0
    assert not cli.folder.exists()
    assert "by these times it reaches rung load-test" in cli.out


@pytest.mark.thorough
def test_without_terminal_and_caps_the_account_is_asked_and_nothing_deployed(cli: Cli) -> None:
    assert cli.run() == 0
    assert cli.automation.updates == 0
    assert "control-plane needs --cap-usd and --cap-minutes, or a terminal where someone allows it" in cli.err


def test_a_failure_is_told_torn_down_and_has_its_exit_code(cli: Cli) -> None:
    cli.automation.troubles = {3: Trouble("fails", "VcpuLimitExceeded: your current vCPU limit of 0")}
    assert cli.run(*CAPS) == 1
    assert "  VcpuLimitExceeded: your current vCPU limit of 0 (the quota of vCPUs is too low" in cli.err
    assert not cli.automation.account
    assert cli.bundle["landing"] == "failed"


@pytest.mark.thorough
def test_an_interrupted_flight_ends_with_its_exit_code_and_keeps_what_it_is_told_to(cli: Cli) -> None:
    cli.automation.troubles = {2: Trouble("signal")}
    assert cli.run(*CAPS, "--keep") == 130
    assert cli.automation.account
    assert "it stands, and costs $0.35 an hour. To go on: the same command. To destroy it: --destroy" in cli.err
    assert cli.run("--destroy") == 0
    assert not cli.automation.account
    assert cli.run("--destroy") == 2
    assert "no flight of this stack has left anything" in cli.err


@pytest.mark.thorough
def test_a_killed_command_is_gone_on_with(cli: Cli) -> None:
    cli.automation.troubles = {4: Trouble("killed")}
    with pytest.raises(Killed):
        cli.run(*CAPS)
    cli._capsys.readouterr()
    assert cli.automation.account
    assert cli.run(*CAPS) == 0
    assert "rung 5 of 7: a small server answers" in cli.err
    assert "rung 4 of 7" not in cli.err
    assert not cli.automation.account


def test_a_stack_that_exists_is_never_touched(cli: Cli) -> None:
    cli.automation.state = cli.automation.account = {"urn:of:somebody"}
    assert cli.run(*CAPS) == 2
    assert "the stack exists, and no flight of this work directory made it" in cli.err
    assert cli.automation.account == {"urn:of:somebody"}
    assert cli.automation.updates == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--to", "moon"), "there is no such rung"),
        (("bundle.json",), "takes one stack"),
        (("--cap-usd", "-1"), "allowed: a number of USD above 0"),
        (("--cap-usd", "0"), "allowed: a number of USD above 0"),
        (("--cap-usd", "1000000"), "allowed: a number of USD above 0 and below 1000000"),
        (("--cap-minutes", "nan"), "allowed: a number of minutes above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Cli, arguments: tuple[str, ...], told: str) -> None:
    try:
        code: Any = cli.run(*arguments)
    except SystemExit as error:
        code, cli.err = error.code, cli._capsys.readouterr().err
    assert code == 2
    assert told in cli.err
    assert cli.automation.updates == 0


@pytest.mark.parametrize("number", ["1" + "0" * 400, "NaN", "Infinity", "-1", "null"])
def test_a_journal_whose_money_is_no_amount_is_refused(tmp_path, number: str) -> None:
    """No cap would ever be reached with it."""
    spans = '[{"since": 1.0, "usd_per_hour": 2.5, "until": null}]'
    journal = (
        '{"schema": 1, "stack": "s", "backend": "", "phase": "down", "reached": null, "at": null, "passed": [], "rows": [], '
    )
    (file := tmp_path / "journal.json").write_text(f'{journal}"spans": {spans}}}')
    assert read_journal(file, "s")
    file.write_text(f'{journal}"spans": {spans.replace("2.5", number)}}}')
    with pytest.raises(ProblemsFound, match="not the journal of a flight"):
        read_journal(file, "s")


OTHER = {"schema": 1, "stack": "production", "backend": "", "phase": "climbing", "reached": None, "at": "node"}
JOURNAL = json.dumps({**OTHER, "spans": [], "passed": [], "rows": []})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *((text, "not the journal of a flight") for text in ("", "{}", "[]", '{"schema": 1, "phase": "up"}', "[" * 100_000)),
        *((JOURNAL.replace(*one), "not the journal") for one in (("node", "moon"), ("climbing", "up"), ('a": 1', 'a": 2'))),
        (JOURNAL, "(?s)this is the journal of another stack.*given: production.*allowed: mine"),
    ],
)
def test_a_journal_of_something_else_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (file := tmp_path / "journal.json").write_text(text)
    with pytest.raises(ProblemsFound, match=told):
        read_journal(file, "mine")
    assert file.read_text() == text
    with pytest.raises(ProblemsFound, match="cannot be read: Is a directory"):
        read_journal(tmp_path, "mine")


def test_a_flight_in_another_backend_is_not_taken_for_gone(cli: Cli) -> None:
    assert cli.run(*CAPS, "--to", "core", "--keep") == 0
    cli.automation.backend = "https://api.pulumi.com/somebody"
    cli.automation.state = set()
    assert cli.run(*CAPS) == 2
    assert "the flight is in another backend" in cli.err
    assert cli.automation.account


def test_a_teardown_that_does_not_end_has_an_exit_code(cli: Cli) -> None:
    cli.automation.troubles = {number: Trouble("fails", "DependencyViolation", share=0) for number in range(3, 7)}
    assert cli.run(*CAPS, "--to", "core") == 1
    assert "not everything is gone, and costs $0.35 an hour" in cli.err


def test_two_flights_of_one_work_directory_do_not_meet(cli: Cli) -> None:
    cli.folder.mkdir()
    with first_flight._alone(cli.folder):
        assert cli.run(*CAPS) == 2
    assert "another flight is using this work directory" in cli.err


@pytest.mark.thorough
def test_a_cap_needs_a_price_of_everything(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = clone / "stacks" / "Pulumi.smoke-trn2.yaml"
    file.write_text(file.read_text().replace("sa-east-1", "us-east-2").replace("sae1-", "use2-"))
    assert main(["first-flight", "smoke-trn2", *CAPS]) == 2
    assert "no price for trn2.3xlarge in us-east-2" in capsys.readouterr().err
    assert not (clone / ".first-flight").exists()


def test_a_program_without_a_stack_object_cannot_be_taken_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT / "tests" / "engine" / "program")
    assert main(["first-flight", "parity", "--plan"]) == 2
    assert "the program has no stack object to deploy" in capsys.readouterr().err
