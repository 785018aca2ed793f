"""``eks-inference rehearse change`` without a control plane: which graphs it compares, its exit codes, its formats."""

import json
from types import SimpleNamespace

import pytest

from conftest import ROOT, recorded
from eks_inference_tools.cli import main
from eks_inference_tools.simulate.control_plane import tool_build
from eks_inference_tools.simulate.rehearsal import change
from eks_inference_tools.simulate.rehearsal.report import Rehearsal
from rehearsals import SAW, WELL
from stackgraph.diff.report import Recorded, StackReport
from stackgraph.graph.document import Graph
from stackgraph.problems import Problem
from stackgraph.revisions import comparing
from variants import recorded_with


class Stage:
    """In the place of a rehearsal: gives what it saw, and notes what was asked for."""

    saw: Rehearsal = WELL
    report: StackReport | None = None

    def __init__(self) -> None:
        self.reports: list[StackReport] = []

    def rehearsed(self, report: StackReport, tools: object, tell: object) -> Rehearsal:
        self.report = report
        self.reports.append(report)
        return self.saw


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, recorded_once: None) -> Stage:
    acting = Stage()
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(tool_build, "provided", lambda *tools: None)
    monkeypatch.setattr(change, "rehearsed", acting.rehearsed)
    return acting


def test_without_a_base_every_image_is_another(stage: Stage, capsys: pytest.CaptureFixture[str]):
    assert main(["rehearse", "change", "smoke-gpu"]) == 0
    assert "nothing got stuck" in capsys.readouterr().out
    assert stage.report is not None
    assert stage.report.diff is not None
    (server,) = (one for one in stage.report.diff.of_kind("update") if one.resource.type.endswith(":Deployment"))
    assert [property_change.path[-1] for property_change in server.properties] == ["image"]
    assert [danger.kind for danger in stage.report.dangers] == ["server-stopped", "job-again", "job-again"]


@pytest.mark.parametrize("format_", ["text", "markdown", "json"])
def test_what_stops_is_exit_code_1_in_every_format(stage: Stage, format_: str, capsys: pytest.CaptureFixture[str]):
    stage.saw = SAW
    assert main(["rehearse", "change", "smoke-gpu", "--format", format_]) == 1
    shown = capsys.readouterr().out
    assert "chat" in shown
    assert format_ != "json" or json.loads(shown)["well"] is False


def between(monkeypatch: pytest.MonkeyPatch, *stacks: StackReport) -> None:
    def compared(names: object, *, base: str, **others: object) -> SimpleNamespace:
        assert base == "HEAD~1"
        return SimpleNamespace(stacks=stacks)

    monkeypatch.setattr(comparing, "compare_revisions", compared)


OLD, NEW = (Recorded(Graph("eks-inference", "smoke-gpu", (), {"changed": changed})) for changed in (False, True))


def test_with_a_base_it_is_what_the_revision_has(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    between(monkeypatch, StackReport("smoke-gpu", OLD, NEW))
    assert main(["rehearse", "change", "smoke-gpu", "--base", "HEAD~1"]) == 0
    assert stage.report is not None
    assert (stage.report.base, stage.report.head) == (OLD, NEW)


@pytest.mark.parametrize(("base", "before"), [((), 1), (("--base", "HEAD~1"), 0)])
def test_what_is_tried_is_in_the_working_tree(
    base: tuple[str, ...], before: int, stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    old, new = recorded("smoke-gpu"), recorded_with({"servers": {"qwen3": {"max_num_seqs": 128}}}, "smoke-gpu")
    between(monkeypatch, StackReport("smoke-gpu", Recorded(old), Recorded(new)))
    tried = "servers.qwen3.surge=1 pools.gpu.size=2"
    assert main(["rehearse", "change", "smoke-gpu", *base, "--try", tried]) == 0
    assert [surges(report) for report in stage.reports] == [(0, 0), (before, 1)]
    shown = capsys.readouterr().out
    assert f"demo: the change, with {tried}, on" in shown
    assert [line.split("  ")[0] for line in shown.splitlines()[-2:]] == ["as it is", tried]


def surges(report: StackReport) -> tuple[int, ...]:
    graphs = [side.graph for side in (report.base, report.head) if side and side.graph]
    return tuple(
        resource.inputs["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
        for graph in graphs
        for resource in graph.resources
        if resource.type.endswith(":Deployment") and resource.inputs["metadata"]["name"] == "qwen3"
    )


@pytest.mark.parametrize(
    ("stacks", "said"),
    [
        ((StackReport("smoke-gpu", None, NEW),), "--base: there is no stack smoke-gpu to change"),
        ((StackReport("smoke-gpu", OLD, None),), "the working tree: there is no stack smoke-gpu to change"),
        ((StackReport("smoke-gpu", OLD, Recorded(problems=(Problem("a fault"),))),), "a fault"),
        ((StackReport("a", OLD, NEW), StackReport("b", OLD, NEW)), "name the stack to rehearse"),
    ],
)
def test_what_is_no_change_of_one_stack_is_exit_code_2(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stacks: tuple[StackReport, ...], said: str
):
    between(monkeypatch, *stacks)
    assert main(["rehearse", "change", "--base", "HEAD~1"]) == 2
    assert said in capsys.readouterr().err
    assert stage.report is None
