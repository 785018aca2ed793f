"""The model of queues against vLLM's own scheduler: the same arrivals and the same step times, from idle to overload.

By hand: VLLM names the command `vllm` of an environment with vLLM 0.30 for CPUs. The scheduler computes nothing, and its clock is
ours, so noise of the machine changes nothing.
"""

import json
import math
import os
import random
import subprocess
from dataclasses import astuple
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from eks_inference.speed.batching import Limits
from eks_inference.speed.queue import Traffic, served
from linear_steps import Linear
from vllm_model import MODEL

VLLM = os.environ.get("VLLM", "")
pytestmark = pytest.mark.skipif(not VLLM, reason="VLLM names no command `vllm` (6 GB; by hand)")

STEPS = Linear()
RATES = (0.5, 2, 4, 5, 6, 8, 12)
"""Requests a second. Eight sequences take 6.6."""
KV_TOKENS = {"roomy": 16_000, "tight": 960}
PROMPT, ANSWER, REQUESTS = 100, 50, 300
CASES = [(rate, kv, ahead) for ahead in (False, True) for kv in KV_TOKENS for rate in RATES]


def limits(kv: str, *, ahead: bool) -> Limits:
    return Limits(max_num_seqs=8, kv_tokens=KV_TOKENS[kv], step_tokens=256, ahead=ahead)


def arrivals(rate: float) -> list[float]:
    chance, now, found = random.Random(rate), 0.0, list[float]()
    for _ in range(REQUESTS):
        now += chance.expovariate(rate)
        found.append(now)
    return found


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    python, model = Path(VLLM).with_name("python"), tmp_path_factory.mktemp("model")
    subprocess.run([python, "-c", MODEL, model], check=True, capture_output=True, timeout=300)
    cases = [
        {
            "max_num_seqs": one.max_num_seqs,
            "step_tokens": one.step_tokens,
            "block": one.block,
            "kv_tokens": one.kv_tokens,
            "ahead": ahead,
            "arrivals": arrivals(rate),
            "prompt": PROMPT,
            "answer": ANSWER,
            "step": astuple(STEPS),
        }
        for rate, kv, ahead in CASES
        for one in [limits(kv, ahead=ahead)]
    ]
    script = Path(__file__).parent / "support" / "vllm_scheduler.py"
    done = subprocess.run(
        [python, script, model], input=json.dumps(cases), capture_output=True, text=True, timeout=1800, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def percentile(numbers: list[float], percent: float) -> float:
    return sorted(numbers)[math.ceil(len(numbers) * percent / 100) - 1]


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(len(CASES)), ids=["-".join(map(str, one)) for one in CASES])
def test_percentiles_are_those_of_the_engines_scheduler(number: int, scheduled: list[dict[str, Any]]):
    (rate, kv, ahead), real = CASES[number], scheduled[number]
    asked = Traffic(arrivals=tuple(arrivals(rate)), input_tokens=PROMPT, output_tokens=ANSWER, requests=REQUESTS)
    found = served(STEPS, limits(kv, ahead=ahead), asked)
    first = [times[0] - at for times, at in zip(real["times"], asked.arrivals, strict=True)]
    gaps = [later - earlier for times in real["times"] for earlier, later in pairwise(times)]
    assert bool(found.preemptions) == bool(real["preemptions"])
    # Where nothing is preempted, they are the same.
    off = 0.06 if real["preemptions"] else 0.002
    for percent in (50, 95):
        assert found.first_token(percent) == pytest.approx(percentile(first, percent), rel=off)
        assert found.token(percent) == pytest.approx(percentile(gaps, percent), rel=off)
