"""What runs the tiers of tests: `.ci/run` once and up to the first that fails, `make soak` one of them again and again."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import ROOT
from readme import README

STAND_IN = """#!/bin/sh
[ "$1" != checkov ] || exec echo "no tests here"
echo "."; echo "SKIPPED [2] tests/test_a.py:3: no promtool: make cluster-tools"
{failing}
echo "8 passed, 2 skipped in 1.50s"
"""
FAILING = """
[ "$1" != envoy ] || {
  printf "FAILED tests/test_b.py::test_c - assert 1\\n1 failed, 7 passed in 9.00s (0:00:09)\\n"
  exit 2
}"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, list[str]]]:
    """Runs a command with a stand-in of ``make``; gives its exit code and what it printed."""

    def run(*command: str, failing: str = "") -> tuple[int, list[str]]:
        (make := tmp_path / "make").write_text(STAND_IN.format(failing=failing))
        make.chmod(0o755)
        environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert not done.stderr
        return done.returncode, done.stdout.splitlines()

    return run


def test_every_tier_is_run_and_told(run: Callable[..., tuple[int, list[str]]]) -> None:
    code, printed = run("bash", str(ROOT / ".ci" / "run"))
    tiers = [line.split()[-1] for line in printed if line.startswith("== make ")]
    assert code == 0
    assert printed.count("8 passed, 2 skipped in 1.50s") == len(tiers) - 1
    told = "\n".join(printed[printed.index("") + 1 :])
    line = r"(\S+) +\d+ s  (8 passed, 2 skipped\n +2 skipped: no promtool: make cluster-tools|no tests)"
    assert re.fullmatch(f"({line}\n?)+", told)
    found = [(tier, tests.partition(",")[0]) for tier, tests in re.findall(line, told)]
    assert found == [(tier, "no tests" if tier == "checkov" else "8 passed") for tier in tiers]
    assert (*tiers[:2], tiers[-1]) == ("environments", "lint", "cluster")
    assert tiers.index("cluster-tools") < tiers.index("thorough"), "whose tests need what it builds"
    assert "test" in tiers
    assert "make test" in README.read_text()


def test_the_first_tier_that_fails_is_the_last_and_its_failures_end_the_output(run: Callable[..., tuple[int, list[str]]]) -> None:
    code, printed = run("bash", str(ROOT / ".ci" / "run"), failing=FAILING)
    assert code == 1
    assert "== make cluster" not in printed
    assert printed[-3:] == ["", "make envoy has failed:", "FAILED tests/test_b.py::test_c - assert 1"]
    assert re.fullmatch(r"envoy +\d+ s  1 failed, 7 passed", printed[-5])
    assert re.fullmatch(r" +2 skipped: no promtool: make cluster-tools", printed[-4])


@pytest.mark.parametrize("load", ["", "1"])
def test_a_soak_tells_of_each_run_what_failed(run: Callable[..., tuple[int, list[str]]], load: str) -> None:
    def told(tier: str) -> tuple[int, list[list[str]]]:
        code, printed = run(sys.executable, str(ROOT / "tests" / "support" / "soak.py"), tier, "2", load, failing=FAILING)
        return code, [[words[0], *words[2:]] for words in map(str.split, printed)]

    head = ["run", "passed", "failed"]
    assert told("router") == (0, [head, ["1", "8", "-"], ["2", "8", "-"]])
    assert told("envoy") == (1, [head, *([number, "7", "tests/test_b.py::test_c"] for number in "12")])
