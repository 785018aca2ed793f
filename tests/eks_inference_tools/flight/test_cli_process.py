"""How the CLI of a flight is ended, by a stand-in for ``pulumi`` that works until a signal comes, and what its events tell."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pulumi.automation import CommandError, CommandResult
from pulumi.automation.errors import create_command_error

from eks_inference_tools.flight import engine
from eks_inference_tools.flight.engine import Engine
from eks_inference_tools.flight.workspace import Watch, said_by

STAND_IN = """#!/bin/sh
[ "$1" = version ] && echo v3.260.0 && exit 0
trap 'echo cancelled; exit 255' INT
echo at work
for second in 1 2 3 4 5 6 7 8 9 10; do sleep 1; done
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    (tool := tmp_path / "pulumi").write_text(STAND_IN)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(engine, "WATCHES_S", 0.05)
    return Engine(tmp_path / "engine.pid")


def begun(cli: Engine, tmp_path: Path, hopeless: Callable[[], bool], seconds: float = 600) -> float:
    """Runs a command to its early end, and returns how long it took."""
    began = time.monotonic()
    with cli.bounded(seconds, hopeless), pytest.raises(CommandError, match="cancelled"):
        cli.run(["up"], str(tmp_path), {})
    return time.monotonic() - began


def test_a_hopeless_command_ends_as_a_failed_one(cli: Engine, tmp_path: Path) -> None:
    answers = iter([False, False, True])
    assert begun(cli, tmp_path, lambda: (tmp_path / "engine.pid").exists() and next(answers)) < 9
    assert cli.stopped == "failed"
    assert next(answers, None) is None, "asked until it is hopeless, and not again"


def test_a_deadline_ends_a_command_that_is_not_hopeless(cli: Engine, tmp_path: Path) -> None:
    assert begun(cli, tmp_path, lambda: False, seconds=1) < 9
    assert cli.stopped == "cap"


def test_a_command_that_ends_by_itself_is_not_hopeless_later(cli: Engine, tmp_path: Path) -> None:
    asked: list[float] = []

    def hopeless() -> bool:
        asked.append(time.monotonic())
        return False

    with cli.bounded(600, hopeless):
        time.sleep(0.2)
    over = time.monotonic()
    time.sleep(0.2)
    assert asked
    assert max(asked) <= over + 0.1
    assert cli.stopped is None


def test_errors_name_resources_as_people_do_and_say_why() -> None:
    urn = "urn:pulumi:s::p::a:b:Platform$a:b:Server$kubernetes:apps/v1:Deployment::smoke"
    messages = [f'<{{%reset%}}>resource "{urn}" was created, but failed: no image<{{%reset%}}>\n', "update failed"]
    watch = Watch()
    for message, whose in zip(messages, (urn, ""), strict=True):
        diagnostic = SimpleNamespace(severity="error", message=message, urn=whose)
        watch.see(SimpleNamespace(resource_pre_event=None, res_outputs_event=None, diagnostic_event=diagnostic))
    deployment = "kubernetes:apps/v1:Deployment smoke"
    assert watch.faults == (f'{deployment}: resource "{deployment}" was created, but failed: no image',)


@pytest.mark.parametrize(
    ("stdout", "stderr", "code", "said"),
    [
        ("Updating (s):\n 1 created", "warning: w\nerror: no stack\n", 255, "error: no stack"),
        ("", "error: no stack", 255, "error: no stack"),
        ("Updating (s):\n 1 created", "", 1, "Updating (s):; 1 created"),
        ("Destroying (s):", "", -9, "the CLI was ended by signal 9"),
    ],
)
def test_the_cli_is_quoted(stdout: str, stderr: str, code: int, said: str) -> None:
    assert said_by(create_command_error(CommandResult(stdout, stderr, code))) == said
