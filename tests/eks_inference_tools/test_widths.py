"""Every view fits the terminal: no word is broken at 80 columns, and no row has a gap at 160."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rehearsals
import simulation_reports
from cases import thorough_but
from clones import copy_project
from conftest import ROOT, recorded
from eks_inference_tools.cli import main
from eks_inference_tools.doctor import report as doctor
from eks_inference_tools.doctor.examine import examine
from eks_inference_tools.flight.journal import Caps
from eks_inference_tools.flight.report import render_course
from eks_inference_tools.reading.expected import expected_of
from eks_inference_tools.simulate import text as simulation
from eks_inference_tools.simulate.day import text as day
from eks_inference_tools.simulate.rehearsal import text as rehearsal
from eks_inference_tools.verify.checks import judge
from eks_inference_tools.verify.observed import render_text as verified
from flights import STACK, course
from healthy_cluster import HealthyCluster, break_scheduler, observed
from stackgraph.graph.document import Graph
from stackgraph.presentation.terminal import WIDTH, Columns
from stackgraph.presentation.terminal import drawn as printed
from stub_account import without_quota

MEASURED = "tests/data/loadtest/vllm-0.33.0-2-users.json"
COMMANDS = (
    "",
    "preview gpu-opt350m",
    "preview smoke-inf2 --timeline",
    "check gpu-opt350m --explain GPU001",
    "check smoke-gpu smoke-inf2",
    "check --rules",
    "plan --model Llama-2-13B --instance inf2.48xlarge",
    "plan --model Qwen/Qwen3-8B --region us-west-2 --under 2",
    "plan --model Qwen/Qwen3-8B --region us-west-2 --under 2 --rate 3 --ttft 1",
    "list models qwen",
    "list engines",
    "list instances --accelerator neuron",
    f"loadtest report {MEASURED}",
    "diff BEFORE AFTER",
    "new narrow --model Qwen/Qwen3-8B --region us-west-2",
)


def broken(graph: Graph, width: int) -> str:
    break_scheduler(cluster := HealthyCluster(graph), "pod-status-pending")
    expected = expected_of(graph)
    return verified(expected, judge(expected, observed(cluster)), context="ctx", width=width)


DRAWN: dict[str, Callable[[int], str]] = {
    "first-flight": lambda width: render_course(STACK, course(), Caps(100, 600), width=width),
    "doctor": lambda width: doctor.shown("a", examine(recorded("inf2-llama3"), without_quota().account()), width=width),
    "verify": lambda width: broken(recorded("inf2-llama3"), width),
    "rehearse day": lambda width: day.render_text(rehearsals.days(), width=width),
    "rehearse change": lambda width: rehearsal.render_text(rehearsals.STUCK, width=width),
    "simulate": lambda width: simulation.render_text(simulation_reports.EVERYTHING, width=width),
}
FEW = {*DRAWN, *(command for command in COMMANDS if command.split(" ")[0] in ("", "list", "loadtest", "diff"))}
TO_COPY = ("aws ", "kubectl ", "eks-inference ")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[[str, int], str]:
    """What a command draws on a terminal of a width, or without one."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_COLOR", "1")

    def draw(command: str, width: int) -> str:
        if command in DRAWN:
            return DRAWN[command](width)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: width > 0)
        if command.startswith("new"):
            (folder := tmp_path / str(width)).mkdir()
            copy_project(folder)
            monkeypatch.chdir(folder)
        if command.startswith("diff"):
            (before := tmp_path / "before.json").write_text(text := recorded("smoke-gpu").to_json())
            (after := tmp_path / "after.json").write_text(text.replace("g6.xlarge", "g6.2xlarge"))
            command = f"diff {before} {after}"
        main(command.split())
        return capsys.readouterr().out

    return draw


@pytest.mark.parametrize("command", thorough_but(FEW, [*COMMANDS, *DRAWN]))
def test_words_stay_whole_and_rows_have_no_gap(command: str, drawn: Callable[[str, int], str]) -> None:
    narrow, wide = drawn(command, 80), drawn(command, 160)
    assert {word for word in words(narrow) if "…" not in word} <= words(drawn(command, 1000))
    for text, width in ((narrow, 80), (wide, 160)):
        over = [line.strip() for line in text.splitlines() if len(line) > width]
        assert [line for line in over if " " in line and not line.startswith(TO_COPY)] == []
    assert [line for line in wide.splitlines() if re.search(r"\S {90}", line)] == []


@pytest.mark.thorough
@pytest.mark.parametrize("command", [one for one in COMMANDS if one.startswith(("preview", "plan", "loadtest"))])
def test_without_a_terminal_every_view_is_as_wide(command: str, drawn: Callable[[str, int], str]) -> None:
    assert WIDTH - 20 < max(map(len, drawn(command, 0).splitlines())) <= WIDTH


def words(text: str) -> set[str]:
    told = re.sub(r"^no room here for: .*?\.$", "", text, flags=re.M | re.S)
    return {word.rstrip(".:") for word in re.findall(r"[^\s{},;()]+", told)}


def test_errors_stay_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["plan", "--model", "Qwen/Qwen3-9B"]) == 2
    said = capsys.readouterr().err
    assert max(map(len, said.splitlines())) <= 80 < len(said)


def test_columns_without_values_give_way_first():
    rows = [
        ("instance", "engine", "quantized", "rules"),
        ("g5.xlarge", "cuda-vllm-0.30", "-", ""),
        ("inf2.xlarge", "neuron", "-", ""),
    ]
    assert printed([Columns(rows, headings=1)], width=36).splitlines() == [
        "instance     engine          rules",
        "g5.xlarge    cuda-vllm-0.30",
        "inf2.xlarge  neuron",
    ]
    widest_below = printed([Columns([*rows, ("g6", "cuda", "fp8", "NEU001")], headings=1)], width=36)
    assert widest_below.splitlines()[1:3] == ["g5.xlarge    -", "    engine: cuda-vllm-0.30"]
