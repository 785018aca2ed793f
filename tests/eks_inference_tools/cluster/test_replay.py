"""The autoscaler of gpu-opt350m, replayed: real Prometheus, real controller. One replay of eight minutes serves all tests."""

import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, recorded
from eks_inference_tools.cli import main
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane, control_plane
from eks_inference_tools.simulate.control_plane.processes import ComponentError
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.replay import prometheus
from eks_inference_tools.simulate.replay.model import fitted, rows
from eks_inference_tools.simulate.replay.subject import Subject, subject_of

pytestmark = pytest.mark.cluster

STACK = "gpu-opt350m"


@pytest.fixture(scope="module")
def subject() -> Subject:
    return subject_of(recorded(STACK))


@dataclass(frozen=True)
class Replayed:
    code: int
    document: dict[str, Any]
    picture: str


@pytest.fixture(scope="module")
def replayed(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    folder = tmp_path_factory.mktemp("replay")
    document, picture = folder / "replay.json", folder / "replay.svg"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        code = main(["replay", STACK, "--format", "json", "-o", str(document), "--plot", str(picture)])
    return Replayed(code, json.loads(document.read_text()), picture.read_text())


def test_every_judgement_holds(replayed: Replayed) -> None:
    assert [finding for finding in replayed.document["findings"] if not finding["holds"]] == []
    assert replayed.document["holds"]
    assert replayed.code == 0


def test_it_went_out_to_the_maximum_and_back(replayed: Replayed) -> None:
    replicas = [sample["replicas"] for sample in replayed.document["samples"]]
    assert (replicas[0], max(replicas), replicas[-1]) == (1, 4, 1)


def test_the_autoscaler_saw_what_prometheus_has(replayed: Replayed) -> None:
    """Its own average is one of the averages of the seconds since it last looked."""
    samples = replayed.document["samples"]
    checked = 0
    for number, sample in enumerate(samples):
        recent = [_average(earlier) for earlier in samples[max(number - 17, 0) : number + 1]]
        if sample["average"] is not None and None not in recent and len(recent) == 18:
            assert min(abs(one - sample["average"]) for one in recent) < 0.6, sample
            checked += 1
    assert checked > 100


def _average(sample: dict[str, Any]) -> float | None:
    values = (sample["values"] or {}).values()
    return sum(values) / len(values) if values else None


def test_values_under_a_steady_load_are_those_of_the_model(replayed: Replayed, subject: Subject) -> None:
    """Scraped, recorded as a rate and handed on: what comes out is what the simulated servers did."""
    samples = replayed.document["samples"]
    before_the_last_step = [sample for sample in samples if sample["replicas"] > 1][-1]
    model = fitted(rows(), subject.limits.target)
    expected = model.queueing(before_the_last_step["users"] / before_the_last_step["replicas"])
    values = before_the_last_step["values"].values()
    assert sum(values) / len(values) == pytest.approx(expected, rel=0.1)


def test_the_picture_is_of_this_replay(replayed: Replayed) -> None:
    assert "maximum 4" in replayed.picture
    assert replayed.picture.startswith("<svg ")


@pytest.fixture(scope="module")
def plane(toolchain: Toolchain):
    with control_plane(toolchain) as started:
        yield started


def test_prometheus_takes_the_configuration_and_the_rules(plane: ControlPlane, tmp_path: Path, subject: Subject) -> None:
    files = []
    for name, content in subject.rule_files.items():
        files.append(tmp_path / name)
        files[-1].write_text(json.dumps(content))
    config = tmp_path / "prometheus.yaml"
    made = prometheus.configuration(subject, kubeconfig=plane.kubeconfig, proxy="http://127.0.0.1:1", rule_files=files)
    config.write_text(json.dumps(made))
    done = subprocess.run(
        [plane.toolchain.path("promtool"), "check", "config", config], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_that_prometheus_refuses_are_told_in_its_words(plane: ControlPlane, subject: Subject) -> None:
    broken = {"groups": [{"name": "g", "rules": [{"record": "x", "expr": "rate(("}]}]}
    with pytest.raises(ComponentError, match="parse error"):
        prometheus.start(plane, replace(subject, rule_files={"broken.json": broken}), proxy="http://127.0.0.1:1")
