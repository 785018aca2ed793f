"""A bad day on a real control plane: the autoscaler sees its metric and adds pods, and then a node goes."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from conftest import PROJECT, recorded
from eks_inference.serving.facts import ServingFacts
from eks_inference.speed.rules import TrafficFacts
from eks_inference.stack.facts import stack_facts
from eks_inference.stack.reading import parse_stack
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.day.day import played
from eks_inference_tools.simulate.day.metrics import SCALED_OBJECT_TYPE
from eks_inference_tools.simulate.day.real_prometheus import configuration
from eks_inference_tools.simulate.day.requests import QUEUE_MS, Rates
from eks_inference_tools.simulate.day.subjects import Subject, sources_of, subjects
from eks_inference_tools.simulate.day.text import render_text
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

    return replace(graph, resources=tuple(replace(resource, inputs=changed(resource.inputs)) for resource in graph.resources))


def servers(
    graph: Graph, section: dict[str, Any], rates: Mapping[str, Rates] = MappingProxyType({}), stack: str = STACK
) -> list[Subject]:
    """The servers of a stack with a section of changes, under the load of their ``rates`` or half of what they take."""
    values = PROJECT.config(PROJECT.stack_file(stack)).values
    spec = json.loads(values["eks-inference:stack"])
    merge(spec, section)
    facts = tuple(stack_facts(parse_stack(json.dumps(spec), PROJECT.root), values["aws:region"]))
    by_name = {str(fact.path[1]): fact for fact in facts if isinstance(fact, ServingFacts)}
    asked = {str(fact.server.path[1]): fact for fact in facts if isinstance(fact, TrafficFacts)}
    found = [*subjects(graph, by_name, asked, rates=rates)]
    return [subject for subject in found if isinstance(subject, Subject) or pytest.fail(subject)]


def pulled(of: list[Subject]) -> list[Subject]:
    """The servers with their images on all nodes: a pull takes longer than these tests."""
    return [replace(subject, pull_seconds=0.0) for subject in of]


def test_autoscalers_add_pods_and_a_node_goes(toolchain: Toolchain) -> None:
    section = scaled(min=1)
    graph = sooner(recorded_with(section, STACK))
    rates = {"triton-server": ((0.0, 60.0),), "chat": ((0.0, 60.0),)}
    with simulation(graph, toolchain) as simulated:
        day = played(simulated, servers(graph, section, rates), ["node"], at_seconds=42, back_seconds=60, most_seconds=48)
    courses = {course.subject.name: course for course in day.courses}
    for course in day.courses:
        assert course.came == course.served + course.late + course.lost
    assert sum(course.lost for course in day.courses) > 0, "what was on the node"
    before = {name: [moment for moment in course.moments if moment.at < day.lost_at] for name, course in courses.items()}
    found = max(moment.metric or 0 for moment in before["triton-server"])
    assert 11 < found < 1.2 * 60 * QUEUE_MS, "what Prometheus made of what pods told"
    assert max(moment.wanted for moment in courses["triton-server"].moments) > 1
    assert max(moment.metric or 0 for moment in before["chat"]) > 4
    assert max(moment.wanted for moment in before["chat"]) > 1, "KEDA's own autoscaler"
    assert len(day.losses[0].nodes) == 1
    assert day.dollars.usd > 0
    assert day.blind == ()


ON_DEMAND = pytest.mark.skipif(os.environ.get("EDITS") != "all", reason="takes minutes: EDITS=all")


@dataclass(frozen=True)
class BadDay:
    """A loss with a known end: ``says`` are words of the report. What is back is so after two minutes.

    ``bad``: seconds with requests that are lost or late, at least and at most; None: it does not recover.
    """

    what: str
    stack: str
    kinds: tuple[str, ...]
    bad: tuple[int, int] | None
    says: tuple[str, ...] = ()
    section: Mapping[str, Any] = field(default_factory=dict[str, Any])
    minutes: float = 10


BLOCK = {"capacity_type": "capacity_block", "capacity_reservation_id": "cr-0123456789abcdef0"}
WAITS = r"waits: 0/\d+ nodes are available"

BAD_DAYS = (
    BadDay("the only node of a pool", "smoke-gpu", ("node",), (60, 600), ("node gpu-1 .* is lost",)),
    BadDay("a pool of four nodes", STACK, ("pool",), None, (r"pool gpu \(4 nodes\) is lost", WAITS), minutes=4),
    BadDay(
        "the end of a capacity block",
        "smoke-trn2",
        ("capacity-block",),
        None,
        (r"the capacity block \(1 node\) is lost", WAITS),
        {"pools": {"neuron": BLOCK}},
        minutes=4,
    ),
    BadDay(
        "all nodes are spot",
        STACK,
        ("spot",),
        None,
        (r"spot capacity \(4 nodes\) is lost", WAITS),
        {"pools": {"gpu": {"capacity_type": "spot"}}},
        minutes=5,
    ),
    BadDay("a node, and the hub away", STACK, ("node", "hub"), (120, 300), ("the model hub is back 2 min later",)),
    BadDay("a node, and the registry away", "smoke-gpu", ("node", "image-registry"), (120, 600), ("the image registry is back",)),
    BadDay("the API server away", "smoke-gpu", ("api-server",), (0, 0), ("no request was lost or late after the loss",)),
)


@pytest.mark.parametrize("bad", BAD_DAYS if os.environ.get("EDITS") == "all" else (), ids=lambda bad: bad.what)
def test_a_bad_day_ends_as_known(bad: BadDay, toolchain: Toolchain) -> None:
    """``EDITS=all`` plays them, some minutes each."""
    graph = recorded_with(dict(bad.section), bad.stack)
    (server,) = servers(graph, dict(bad.section), stack=bad.stack)
    with simulation(graph, toolchain) as simulated:
        day = played(simulated, [server], bad.kinds, at_seconds=10, back_seconds=120, most_seconds=60 * bad.minutes)
    told = re.sub(r"\s+", " ", render_text({"": day}))
    (course,) = day.courses
    assert course.came == course.served + course.late + course.lost
    assert day.recovers == (bad.bad is not None), told
    assert bad.bad is None or bad.bad[0] <= course.bad_seconds <= bad.bad[1], told
    for words in (*bad.says, *(("not recovered",) if bad.bad is None else ())):
        assert re.search(words, told), told


@ON_DEMAND
def test_what_follows_from_traffic_keeps_its_objectives(toolchain: Toolchain) -> None:
    """From the quietest hour to the busiest at once: first tokens are late until the pods of KEDA have started, not after.

    One pod ends 65 requests a second by the model of its steps.
    """
    traffic = {"rate": 80, "input_tokens": 250, "output_tokens": 100, "hours": [0.2] * 12 + [1.0] * 12}
    chat = {**CHAT, "objectives": {"time_to_first_token_seconds": 1}, "traffic": traffic, "autoscaling": {"kind": "keda"}}
    section = {"pools": {"gpu": {"size": 7}}, "servers": {"chat": chat}}
    graph = sooner(recorded_with(section, STACK))
    rates = {"triton-server": ((0.0, 1.0),), "chat": ((0.0, 16.0), (20.0, 80.0))}
    with simulation(graph, toolchain) as simulated:
        day = played(simulated, pulled(servers(graph, section, rates)), [], at_seconds=0, back_seconds=0, most_seconds=240)
    (course,) = (course for course in day.courses if course.subject.name == "chat")
    assert (course.subject.load.late_seconds, course.lost) == (1.0, 0)
    assert max(moment.wanted for moment in course.moments) > 1
    assert course.bad_seconds < day.seconds - 60, course


@ON_DEMAND
def test_a_night_at_zero_ends_when_its_schedule_begins(toolchain: Toolchain) -> None:
    """Requests that come in the night are lost, and nothing but the schedule brings a pod back."""
    now = datetime.now(UTC)

    def hours(start: int, end: int) -> dict[str, str]:
        times = (now + timedelta(hours=start), now + timedelta(hours=end))
        return {name: f"{one.minute} {one.hour} * * *" for name, one in zip(("start", "end"), times, strict=True)}

    section = scaled(min=0, schedule=[{**hours(6, 8), "pods": 1}])
    graph = sooner(recorded_with(section, STACK))
    (scaler,) = (manifest(resource) for resource in graph.of_type(SCALED_OBJECT_TYPE))
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
        day = played(simulated, pulled(servers(graph, section, rates)), [], at_seconds=0, back_seconds=0, most_seconds=240)
    (course,) = (course for course in day.courses if course.subject.name == "chat")
    assert len(nights) >= 30
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
