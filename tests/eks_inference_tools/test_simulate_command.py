"""``eks-inference simulate`` without a control plane: its options, its exit codes, where it writes to, and how it is ended."""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import ROOT, recorded
from eks_inference_tools.cli import main
from eks_inference_tools.commands import simulate as command
from eks_inference_tools.simulate import simulation
from eks_inference_tools.simulate.control_plane import tool_build
from eks_inference_tools.simulate.report import Report
from eks_inference_tools.simulate.text import render_text
from simulation_reports import EVERYTHING, WELL
from stackgraph.graph.document import Graph
from stackgraph.problems import Problem, ProblemsFound
from waiting import PATIENCE_S

# -- options ---------------------------------------------------------------------------------------------------------------------


def wanted(graph: Graph, *given: str) -> dict[str, int]:
    """Replicas by name, as the options say."""
    return command._wanted(parsed(*(word for one in given for word in ("--scale", one))).scale, graph)


def parsed(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    command.configure(parser)
    return parser.parse_args(["stack", *given])


def test_without_scale_nothing_is_scaled():
    assert wanted(recorded("gpu-opt350m")) == {}


def test_numbers_are_taken_by_name_and_the_last_one_counts():
    assert wanted(recorded("gpu-opt350m"), "a/b=2", "c/d=0", "a/b=3") == {"a/b": 3, "c/d": 0}


@pytest.mark.parametrize("order", [("max", "triton-server/triton-server=2"), ("triton-server/triton-server=2", "max")])
def test_a_name_wins_over_max(order: tuple[str, ...]):
    graph = recorded("gpu-opt350m")
    assert wanted(graph, "max") == {"triton-server/triton-server": 4}
    assert wanted(graph, *order) == {"triton-server/triton-server": 2}


def test_max_is_about_what_the_stack_makes():
    """An autoscaler may have the Deployment of a chart for its target."""
    graph = recorded("gpu-opt350m")
    without = replace(graph, resources=tuple(one for one in graph.resources if one.type != "kubernetes:apps/v1:Deployment"))
    assert wanted(without, "max") == {}


@pytest.mark.parametrize(
    "given", ["server=2", "demo/server", "demo/server=", "demo/server=two", "demo/server=-1", "demo/server=1.5", "", "most"]
)
def test_what_is_no_scale_is_told_with_its_form(given: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "inf2-llama2", "--scale", given])
    assert ended.value.code == 2
    assert f"given: {given or repr(given)}\n    allowed: NAMESPACE/NAME=N or 'max'" in capsys.readouterr().err


# -- a run -----------------------------------------------------------------------------------------------------------------------


class Stage:
    """In the place of a simulation: gives the report and notes what was asked for."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.replicas: Mapping[str, int] = {}
        self.stack = ""
        self.running = False
        self.alive: Callable[[], None] = lambda: None

    @contextmanager
    def simulation(self, graph: Graph, tools: object, *, replicas: Mapping[str, int], tell: object) -> Iterator[Any]:
        self.stack, self.replicas, self.running = graph.stack, replicas, True
        try:
            yield SimpleNamespace(plane=SimpleNamespace(kubeconfig=Path("/a/kubeconfig")), ensure_alive=lambda: self.alive())
        finally:
            self.running = False

    def rolled_out(self, simulated: object) -> Report:
        assert self.running
        return self.report


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, recorded_once: None) -> Stage:
    acting = Stage(WELL)
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(tool_build, "provided", lambda *tools: None)
    monkeypatch.setattr(simulation, "simulation", acting.simulation)
    monkeypatch.setattr(simulation, "rolled_out", acting.rolled_out)
    return acting


def test_what_is_well_is_exit_code_0(stage: Stage, capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", "inf2-llama2"]) == 0
    assert capsys.readouterr().out == render_text(WELL)  # without colours: this is no terminal
    assert (stage.stack, stage.replicas, stage.running) == ("inf2-llama2", {}, False)


def test_what_is_not_well_is_exit_code_1(stage: Stage, capsys: pytest.CaptureFixture[str]):
    stage.report = EVERYTHING
    assert main(["simulate", "inf2-llama2"]) == 1
    assert capsys.readouterr().out == render_text(EVERYTHING)


@pytest.mark.parametrize(("option", "what"), [("--rollout", "change"), ("--load", "day")])
def test_a_former_option_is_refused_with_its_command(option: str, what: str, stage: Stage, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "inf2-llama2", option])
    assert ended.value.code == 2
    assert f"{option} is now: eks-inference rehearse {what} STACK" in capsys.readouterr().err
    assert not stage.running


def test_one_pending_pod_is_enough(stage: Stage):
    stage.report = replace(WELL, scheduled=replace(WELL.scheduled, pending=EVERYTHING.scheduled.pending[:1]))
    assert main(["simulate", "inf2-llama2"]) == 1


def test_scale_reaches_the_simulation(stage: Stage):
    assert main(["simulate", "inf2-llama2", "--scale", "llama2-c/llama2-c=2", "--scale", "llama2-a/llama2-a=0"]) == 0
    assert stage.replicas == {"llama2-c/llama2-c": 2, "llama2-a/llama2-a": 0}


def test_it_writes_to_a_file(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", "inf2-llama2", "--format", "json", "-o", str(tmp_path / "report.json")]) == 0
    assert json.loads((tmp_path / "report.json").read_text())["stack"] == WELL.stack
    assert capsys.readouterr().out == ""


def test_a_file_that_cannot_be_written_is_exit_code_2(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "inf2-llama2", "-o", str(tmp_path / "missing" / "report")])
    assert ended.value.code == 2
    assert "there is no folder" in capsys.readouterr().err
    assert not stage.running


def test_a_stack_that_is_not_there_is_exit_code_2(stage: Stage, capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", "inf2-lama2"]) == 2
    assert "inf2-llama2" in capsys.readouterr().err


def test_it_is_kept_until_something_ends(stage: Stage, capsys: pytest.CaptureFixture[str]):
    """The report comes first, then the way to look at it."""

    def alive() -> None:
        assert stage.running
        raise ProblemsFound([Problem("etcd ended")])

    stage.alive = alive
    assert main(["simulate", "inf2-llama2", "--keep"]) == 2
    shown = capsys.readouterr()
    assert shown.out == render_text(WELL)
    assert "export KUBECONFIG=/a/kubeconfig" in shown.err
    assert "etcd ended" in shown.err
    assert not stage.running


@pytest.mark.thorough
def test_programs_that_are_missing_are_all_named(tmp_path: Path):
    """Nothing on PATH, nothing in the cache."""
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "eks_inference_tools", "simulate", "inf2-llama2"],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert all(program in done.stderr for program in ("etcd", "kube-apiserver", "kube-scheduler", "kwok", "kubectl"))
    assert "no `go` on PATH" in done.stderr
    assert "Traceback" not in done.stderr


# A simulation that lasts until it is ended, with the real processes in it.
ENDLESS = """
import sys, time
from contextlib import contextmanager
from types import SimpleNamespace
from eks_inference_tools.cli import main
from eks_inference_tools.simulate import simulation
from eks_inference_tools.simulate.control_plane import tool_build
from eks_inference_tools.simulate.control_plane.processes import Processes

@contextmanager
def endless(graph, tools, **others):
    with Processes() as processes:
        processes.start("one", ("sleep", "3600"))
        print(processes.pid("one"), flush=True)
        yield None

def rolled_out(simulated, **others):
    time.sleep(3600)

tool_build.provided = lambda *tools: None
simulation.simulation, simulation.rolled_out = endless, rolled_out
sys.exit(main(["simulate", "--program", "small"]))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_it_leaves_nothing(number: signal.Signals, tmp_path: Path):
    small = tmp_path / "small"
    small.mkdir()
    (small / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (small / "Pulumi.dev.yaml").touch()
    (small / "__main__.py").touch()
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS],
        cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        line = program.stdout.readline()
        assert line.strip().isdecimal(), program.stderr and program.stderr.read()
        assert len([path for path in tmp_path.iterdir() if path.name.startswith("eks-inference-")]) == 1
        program.send_signal(number)
        try:
            _, said = program.communicate(timeout=PATIENCE_S)
        finally:
            program.kill()
    assert program.returncode == 130
    assert "ended by Ctrl-C" in said
    assert "Traceback" not in said
    assert [path for path in tmp_path.iterdir() if path.name.startswith("eks-inference-")] == []
    assert not Path(f"/proc/{line.strip()}").exists()
