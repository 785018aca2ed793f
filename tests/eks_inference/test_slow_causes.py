"""Ten causes of slow loads, each planted in a stand-in: the model of a server with a fault. Its steps take a tenth more or less
at random, and all of them some percent more than is predicted. The planted wall is named; healthy loads are silent.
"""

import json
import random
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest

from conftest import ROOT
from eks_inference.observability.spec import Objectives
from eks_inference.speed.batching import Limits, Steps
from eks_inference.speed.queue import Traffic, served
from eks_inference.speed.rules import TrafficFacts
from eks_inference.speed.slow_causes import TRY, Diagnosis, Seen, walls
from eks_inference.speed.takes import Takes, modelled
from eks_inference.stack.facts import stack_facts
from eks_inference.stack.reading import parse_stack

PROMPT, ANSWER, PODS = 1000, 250, 3
LOADS = (2, 8, 32)
GPU = {"model": {"id": "Qwen/Qwen3-8B"}, "engine": "cuda-vllm-0.30", "max_num_seqs": 64}
NEURON = {
    "model": {"id": "NousResearch/Meta-Llama-3-8B-Instruct"},
    "engine": "neuron-2.28-vllm-0.13",
    "max_num_seqs": 8,
    "max_model_len": 8192,
    "devices": 1,
    "tensor_parallel": 2,
}


@cache
def model(neuron: bool = False) -> Takes:
    server: dict[str, Any] = {**(NEURON if neuron else GPU), "replicas": PODS}
    server["traffic"] = {"rate": 1, "input_tokens": PROMPT, "output_tokens": ANSWER}
    given: dict[str, Any] = {
        "name": "slow",
        "network": {"zone_ids": ["usw2-az1", "usw2-az2"]},
        "pools": {"gpu": {"kind": "karpenter", "instance_types": ["inf2.8xlarge" if neuron else "p5.48xlarge"]}},
        "servers": {"chat": server},
    }
    if neuron:
        given["accelerators"] = {"neuron": {"scheduler": True}}
    (facts,) = (one for one in stack_facts(parse_stack(json.dumps(given), ROOT), "us-west-2") if isinstance(one, TrafficFacts))
    found = modelled(facts.server, facts.traffic, Objectives(), "random")
    assert isinstance(found, Takes)
    return found


@dataclass
class Paced:
    """Steps of a stand-in: those of a model, unevenly, and prompts padded to a bucket."""

    steps: Steps
    by: float = 1.0
    bucket: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    def seconds(self, **work: float) -> float:
        if self.bucket and work["prefill_tokens"]:
            work |= {"prefill_tokens": self.bucket, "prefill_pairs": self.bucket**2 / 2}
        return self.steps.seconds(**work) * self.by * self.chance.uniform(0.9, 1.1)  # pyright: ignore[reportArgumentType]


def measured(steps: Steps, limits: Limits, *, pods: int = PODS, ready: float = 0.0) -> tuple[Seen, ...]:
    """What a load tester reports of a stand-in."""
    loads: list[Seen] = []
    for users in LOADS:
        asked = Traffic(users=users, input_tokens=PROMPT, output_tokens=ANSWER, requests=max(64, 8 * users))
        found = served(steps, limits, asked, replicas=pods, routing="random", ready=ready)
        first = {f"first p{percent}": found.first_token(percent) for percent in (50, 95)}
        figures = first | {"token": found.mean_token, "rate": found.tokens_per_second}
        loads.append(Seen(users, asked.requests, PROMPT, ANSWER, figures))
    return tuple(loads)


def planted(cause: str) -> tuple[Takes, tuple[Seen, ...]]:
    """A server, and its loads with a cause planted."""
    found = model(neuron=cause.startswith("padding"))
    times, limits, own = found.times, found.limits, found.times.constants
    changed: dict[str, dict[str, float]] = {
        "bandwidth": {"weights": own.weights / 3},
        "compute": {"compute": own.compute / 6},
        "host": {"sequence_us": 1500.0},
    }
    few: dict[str, dict[str, Any]] = {
        "KV": {"kv_tokens": 6000},
        "queue": {"max_num_seqs": 2},
        "router, late": {"host_seconds": limits.host_seconds + 0.4},
    }
    steps = replace(times, constants=replace(own, **changed.get(cause, {})))
    if cause == "padding, batch":
        steps = replace(steps, compiled_batch=8 * limits.max_num_seqs)
    paced = Paced(steps, 1.08, 4096 if cause == "padding, prompts" else 0)
    pods, ready = (1 if cause == "router, one pod" else PODS), (20.0 if cause == "cold" else 0.0)
    return found, measured(paced, replace(limits, **few.get(cause, {})), pods=pods, ready=ready)


TEN = (
    *("bandwidth", "compute", "host", "KV", "queue", "cold"),
    *("router, late", "router, one pod", "padding, prompts", "padding, batch"),
)
QUICK = ("router, late",)


def named(cause: str) -> None:
    found = Diagnosis(*planted(cause))
    assert found.slow
    best = found.causes[0]
    assert best.wall == cause.split(",")[0], [(cause.wall, cause.says, cause.distance) for cause in found.causes]
    assert best.tries in TRY.values()


@pytest.mark.thorough
@pytest.mark.parametrize("cause", [one for one in TEN if one not in QUICK])
def test_a_planted_cause_is_named(cause: str):
    named(cause)


@pytest.mark.parametrize("cause", QUICK)
def test_a_planted_cause_is_named_at_once(cause: str):
    named(cause)


@pytest.mark.parametrize("neuron", [False, True])
@pytest.mark.parametrize("by", [0.9, 1.0, 1.1])
def test_healthy_runs_are_silent(neuron: bool, by: float):
    found = model(neuron)
    diagnosis = Diagnosis(found, measured(Paced(found.times, by), found.limits))
    assert not diagnosis.slow
    assert not diagnosis.causes


def test_walls_are_the_times_that_are_predicted():
    for neuron in (False, True):
        found = model(neuron)
        first, token = walls(found, found.asked)
        at = found.at(found.asked)
        assert sum(first.values()) == pytest.approx(at.first_token(95))
        assert sum(token.values()) == pytest.approx(at.mean_token, rel=0.1)
        assert max(token, key=lambda one: token[one]) == "bandwidth"
        assert (token["padding"] > 0) == neuron
