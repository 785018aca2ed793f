"""A bad day on a real control plane: the autoscaler sees its metric and adds pods, and then a node goes."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import PROJECT, recorded
from eks_inference.serving.facts import ServingFacts
from eks_inference.stack.facts import stack_facts
from eks_inference.stack.reading import parse_stack
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.day.day import played
from eks_inference_tools.simulate.day.prometheus import configuration
from eks_inference_tools.simulate.day.requests import QUEUE_MS
from eks_inference_tools.simulate.day.sources import sources_of
from eks_inference_tools.simulate.day.subjects import Subject, subjects
from eks_inference_tools.simulate.simulation import simulation
from stackgraph.graph.document import CHART_TYPE, Graph

pytestmark = pytest.mark.cluster

STACK = "gpu-opt350m"


def sooner(graph: Graph) -> Graph:
    """The stack with a Prometheus and an adapter that look more often, so that a minute is enough."""

    def changed(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        values = json.loads(json.dumps(inputs.get("values") or {}))
        if "prometheus" in values and "prometheusSpec" in values["prometheus"]:
            values["prometheus"]["prometheusSpec"] |= {"scrapeInterval": "2s", "evaluationInterval": "2s"}
        if "metricsRelistInterval" in values:
            values["metricsRelistInterval"] = "4s"
        return {**inputs, "values": values}

    resources = (replace(one, inputs=changed(one.inputs)) if one.type == CHART_TYPE else one for one in graph.resources)
    return replace(graph, resources=tuple(resources))


def server(graph: Graph) -> Subject:
    values = PROJECT.config(PROJECT.stack_file(STACK)).values
    facts = stack_facts(parse_stack(values["eks-inference:stack"], PROJECT.root), values["aws:region"])
    servers = {str(one.path[1]): one for one in facts if isinstance(one, ServingFacts)}
    (found,) = subjects(graph, servers, {}, ((0.0, 60.0),))
    assert isinstance(found, Subject)
    return found


def test_an_autoscaler_adds_pods_and_a_node_goes(toolchain: Toolchain) -> None:
    graph = sooner(recorded(STACK))
    with simulation(graph, toolchain) as simulated:
        day = played(simulated, [server(graph)], ["node"], at_seconds=42, back_seconds=60, most_seconds=48)
    (course,) = day.courses
    assert course.came == course.served + course.late + course.lost
    assert course.lost > 0, "what was on the node"
    before = [one for one in course.moments if one.at < day.lost_at]
    assert 11 < max(one.metric or 0 for one in before) < 1.2 * 60 * QUEUE_MS, "what Prometheus made of what pods told"
    assert max(one.wanted for one in course.moments) > 1
    assert len(day.losses[0].nodes) == 1
    assert day.dollars.usd > 0
    assert day.blind == ()


def test_prometheus_takes_the_configuration_and_the_rules(toolchain: Toolchain, tmp_path: Path) -> None:
    sources = sources_of(recorded(STACK))
    assert sources
    files = []
    for name, content in sources.rule_files.items():
        files.append(tmp_path / name)
        files[-1].write_text(json.dumps(content))
    (tmp_path / "kubeconfig").write_text("{}")
    made = configuration(sources, kubeconfig=tmp_path / "kubeconfig", proxy="http://127.0.0.1:1", rule_files=files)
    config = tmp_path / "prometheus.yaml"
    config.write_text(json.dumps(made))
    done = subprocess.run([toolchain.path("promtool"), "check", "config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
