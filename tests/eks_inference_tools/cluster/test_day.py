"""A bad day on a real control plane: the autoscaler sees its metric and adds pods, and then a node goes."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
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
from eks_inference_tools.simulate.day.requests import QUEUE_MS, Rates
from eks_inference_tools.simulate.day.scaling import SCALED_OBJECT_TYPE
from eks_inference_tools.simulate.day.sources import sources_of
from eks_inference_tools.simulate.day.subjects import Subject, subjects
from eks_inference_tools.simulate.simulation import simulation
from stackgraph.graph.document import Graph
from stackgraph.views.manifests import manifest
from variants import merge, recorded_with

pytestmark = pytest.mark.cluster

STACK = "gpu-opt350m"
CHAT = {
    "model": {"id": "facebook/opt-350m"},
    "engine": "cuda-vllm-0.30",
    "pool": "gpu",
    "devices": 1,
    "tensor_parallel": 1,
    "max_model_len": 2048,
}
"""A server beside the one with a HorizontalPodAutoscaler, for KEDA."""


def scaled(**keda: Any) -> dict[str, Any]:
    autoscaling = {"kind": "keda", "max": 3, "waiting_requests": None, "kv_cache_use": None, "concurrent_requests": 4, **keda}
    return {"pools": {"gpu": {"size": 7}}, "servers": {"chat": {**CHAT, "autoscaling": {**autoscaling, "scale_out_seconds": 0}}}}


def sooner(graph: Graph) -> Graph:
    """The stack with a Prometheus, an adapter and KEDA that look more often, so that a minute is enough."""

    def changed(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        values = json.loads(json.dumps(inputs.get("values") or {}))
        if "prometheus" in values and "prometheusSpec" in values["prometheus"]:
            values["prometheus"]["prometheusSpec"] |= {"scrapeInterval": "2s", "evaluationInterval": "2s"}
        if "metricsRelistInterval" in values:
            values["metricsRelistInterval"] = "4s"
        if inputs.get("kind") == "ScaledObject":
            return {**inputs, "spec": {**inputs["spec"], "pollingInterval": 2, "cooldownPeriod": 4}}
        return {**inputs, "values": values} if "values" in inputs else inputs

    return replace(graph, resources=tuple(replace(one, inputs=changed(one.inputs)) for one in graph.resources))


def servers(graph: Graph, section: dict[str, Any], rates: Mapping[str, Rates]) -> list[Subject]:
    values = PROJECT.config(PROJECT.stack_file(STACK)).values
    spec = json.loads(values["eks-inference:stack"])
    merge(spec, section)
    facts = stack_facts(parse_stack(json.dumps(spec), PROJECT.root), values["aws:region"])
    by_name = {str(one.path[1]): one for one in facts if isinstance(one, ServingFacts)}
    found = [one for one in subjects(graph, by_name, {}, rates=rates) if isinstance(one, Subject)]
    assert len(found) == len(rates)
    return found


def test_autoscalers_add_pods_and_a_node_goes(toolchain: Toolchain) -> None:
    section = scaled(min=2)
    graph = sooner(recorded_with(section, STACK))
    rates = {"triton-server": ((0.0, 60.0),), "chat": ((0.0, 60.0),)}
    with simulation(graph, toolchain) as simulated:
        day = played(simulated, servers(graph, section, rates), ["node"], at_seconds=42, back_seconds=60, most_seconds=48)
    courses = {one.subject.name: one for one in day.courses}
    for course in day.courses:
        assert course.came == course.served + course.late + course.lost
    assert sum(one.lost for one in day.courses) > 0, "what was on the node"
    before = {name: [one for one in course.moments if one.at < day.lost_at] for name, course in courses.items()}
    found = max(one.metric or 0 for one in before["triton-server"])
    assert 11 < found < 1.2 * 60 * QUEUE_MS, "what Prometheus made of what pods told"
    assert max(one.wanted for one in courses["triton-server"].moments) > 1
    assert before["chat"][0].wanted == 2
    assert max(one.metric or 0 for one in before["chat"]) > 4
    assert max(one.wanted for one in before["chat"]) == 3, "KEDA's own autoscaler"
    assert len(day.losses[0].nodes) == 1
    assert day.dollars.usd > 0
    assert day.blind == ()


@pytest.mark.skipif(os.environ.get("EDITS") != "all", reason="takes two minutes: EDITS=all")
def test_a_night_at_zero_ends_when_its_schedule_begins(toolchain: Toolchain) -> None:
    """Requests that come in the night are lost, and nothing but the schedule brings a pod back."""
    now = datetime.now(UTC)

    def hours(start: int, end: int) -> dict[str, str]:
        times = (now + timedelta(hours=start), now + timedelta(hours=end))
        return {name: f"{one.minute} {one.hour} * * *" for name, one in zip(("start", "end"), times, strict=True)}

    section = scaled(min=0, schedule=[{**hours(6, 8), "pods": 1}])
    graph = sooner(recorded_with(section, STACK))
    (scaler,) = (manifest(one) for one in graph.of_type(SCALED_OBJECT_TYPE))
    rates = {"triton-server": ((0.0, 1.0),), "chat": ((0.0, 4.0), (5.0, 0.0), (30.0, 4.0))}
    nights = list[str]()

    def told(words: str) -> None:
        nights.extend(["night"] if "chat 0 of 0" in words else [])
        if len(nights) == 30:
            triggers = [
                {**one, "metadata": {**one["metadata"], **hours(-1, 6)}} if one["type"] == "cron" else one
                for one in scaler["spec"]["triggers"]
            ]
            simulated.plane.api.patch(scaler, {"spec": {"triggers": triggers}})

    with simulation(graph, toolchain, tell=told) as simulated:
        day = played(simulated, servers(graph, section, rates), [], at_seconds=0, back_seconds=0, most_seconds=240)
    (course,) = (one for one in day.courses if one.subject.name == "chat")
    assert 30 <= len(nights)
    assert course.lost > 0
    assert course.served > course.lost
    assert (course.moments[0].wanted, course.moments[-1].answering) == (1, 1)


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
