"""The autoscaler of gpu-opt350m, replayed: real Prometheus, real controller. One replay of seven minutes serves all tests."""

import json
import subprocess
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest

from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane, control_plane
from eks_inference_tools.simulate.control_plane.processes import ComponentError
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.replay import prometheus
from eks_inference_tools.simulate.replay.report import judge, longest_pause
from eks_inference_tools.simulate.replay.run import replay
from eks_inference_tools.simulate.replay.subject import SYNC_SECONDS, Sample, Subject, subject_of
from eks_inference_tools.simulate.replay.triton import fitted, rows
from stackgraph.graph.document import Graph
from variants import recorded_with

pytestmark = pytest.mark.cluster

SOONER = {"servers": {"triton-server": {"autoscaling": {"scale_in_seconds": 90}}}}
"""Less than as shipped, and longer than the metric reaches back: between two steps its value settles."""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return recorded_with(SOONER, "gpu-opt350m")


@pytest.fixture(scope="module")
def subject(graph: Graph) -> Subject:
    return subject_of(graph)


@pytest.fixture(scope="module")
def samples(toolchain: Toolchain, graph: Graph, subject: Subject) -> tuple[Sample, ...]:
    return replay(toolchain, graph, subject, fitted(rows(), subject.limits.target))


def test_every_judgement_holds(samples: tuple[Sample, ...], subject: Subject) -> None:
    assert [finding for finding in judge(samples, subject.limits) if not finding.holds] == []


def test_it_went_out_to_the_maximum_and_back(samples: tuple[Sample, ...]) -> None:
    replicas = [sample.replicas for sample in samples]
    assert (replicas[0], max(replicas), replicas[-1]) == (1, 4, 1)


def test_the_autoscaler_saw_what_prometheus_has(samples: tuple[Sample, ...]) -> None:
    """Its own average is one of the averages of the seconds since it last looked."""
    since = SYNC_SECONDS + 1 + longest_pause(samples)
    checked = 0
    for number, sample in enumerate(samples):
        recent = list(takewhile(lambda one, sample=sample: one.at > sample.at - since, reversed(samples[: number + 1])))
        averages = [one.queueing for one in recent]
        if sample.average is not None and None not in averages and sample.at > since:
            assert min(abs(one - sample.average) for one in averages if one is not None) < 0.6, sample
            checked += 1
    assert checked > 100


def test_values_under_a_steady_load_are_those_of_the_model(samples: tuple[Sample, ...], subject: Subject) -> None:
    """Scraped, recorded as a rate and handed on: what comes out is what the simulated servers did."""
    before_the_last_step = [sample for sample in samples if sample.replicas > 1][-1]
    model = fitted(rows(), subject.limits.target)
    expected = model.queueing(before_the_last_step.users / before_the_last_step.replicas)
    assert before_the_last_step.queueing == pytest.approx(expected, rel=0.1)


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
