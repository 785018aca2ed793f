"""How the CLI of a flight is ended, by a stand-in for ``pulumi`` that works until a signal comes, and what its events tell."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from pulumi.automation import CommandError, CommandResult
from pulumi.automation.errors import create_command_error

from eks_inference_tools.flight import pulumi_cli
from eks_inference_tools.flight.pulumi_cli import Engine
from eks_inference_tools.flight.workspace import Watch, said_by
from waiting import until

STAND_IN = """#!/bin/sh
[ "$1" = version ] && echo v3.260.0 && exit 0
trap 'echo cancelled; exit 255' INT
echo at work
for second in $(seq 100); do sleep 1; done
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    (tool := tmp_path / "pulumi").write_text(STAND_IN)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(pulumi_cli, "WATCHES_S", 0.05)
    return Engine(tmp_path / "engine.pid")


def is_at_work(folder: Path) -> bool:
    """Before, a signal would end the stand-in without a word."""
    said = folder / "engine.stdout"
    return said.exists() and "at work" in said.read_text()


def test_a_hopeless_command_ends_as_a_failed_one(cli: Engine, tmp_path: Path) -> None:
    answers = iter([False, False, True])
    with cli.bounded(600, lambda: is_at_work(tmp_path) and next(answers)), pytest.raises(CommandError, match="cancelled"):
        cli.run(["up"], str(tmp_path), {})
    assert cli.stopped == "failed"
    assert next(answers, None) is None, "asked until it is hopeless, and not again"


def test_a_cli_that_a_killed_command_left_at_work_is_found_until_it_ends(cli: Engine, tmp_path: Path) -> None:
    assert cli.other() is None
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as left:
        (tmp_path / "engine.pid").write_text(str(left.pid))
        assert cli.other() == left.pid
    assert cli.other() is None


def test_a_deadline_ends_a_command_that_is_not_hopeless(cli: Engine, tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        running = pool.submit(cli.run, ["up"], str(tmp_path), {})
        until(lambda: is_at_work(tmp_path))
        with cli.bounded(0.1), pytest.raises(CommandError, match="cancelled"):
            running.result()
    assert cli.stopped == "cap"


def test_a_command_that_ends_by_itself_is_not_hopeless_later(cli: Engine, tmp_path: Path) -> None:
    asked: list[bool] = []

    def hopeless() -> bool:
        asked.append(False)
        return False

    with cli.bounded(600, hopeless):
        until(lambda: asked)
    before = len(asked)
    time.sleep(10 * pulumi_cli.WATCHES_S)
    assert len(asked) <= before + 1, "at most once more, where that had begun"
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
