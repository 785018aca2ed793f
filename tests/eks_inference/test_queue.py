"""The model of continuous batching, against hand-computed queues and against one that computes every step by itself."""

import math
import random
from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eks_inference.speed.batching import Limits, Replica
from eks_inference.speed.queue import Objectives, Routing, Served, Traffic, capacity, served
from linear_steps import Linear

LIMITS = Limits(max_num_seqs=8, kv_tokens=100_000, step_tokens=256, ahead=False)


def mean(numbers: tuple[float, ...]) -> float:
    return math.fsum(numbers) / len(numbers)


def conserved(found: Served) -> bool:
    return found.came == found.answered + found.queued + found.lost


def step_by_step(
    steps: Linear, limits: Limits, arrivals: list[float], prompt: int, answer: int
) -> tuple[list[float], list[float]]:
    """Computes the steps of one engine with enough memory one after the other: times to the first and to the last token."""
    coming, waiting, running = deque(enumerate(arrivals)), deque[int](), dict[int, list[int]]()
    first, last, now = [0.0] * len(arrivals), [0.0] * len(arrivals), 0.0
    while coming or waiting or running:
        if not (waiting or running):
            now = max(now, coming[0][1])
        while coming and coming[0][1] <= now:
            waiting.append(coming.popleft()[0])
        budget, prefill, decoding, context = limits.step_tokens, 0, 0, 0
        given = dict[int, int]()
        for number, (computed, _) in running.items():
            part = min(budget, 1 if computed >= prompt else prompt - computed)
            given[number], budget = part, budget - part
        while waiting and budget and len(running) < limits.max_num_seqs:
            number = waiting.popleft()
            running[number] = [0, 0]
            given[number] = min(budget, prompt)
            budget -= given[number]
        context = sum(computed for computed, _ in running.values() if computed >= prompt)
        for number, part in given.items():
            decodes = running[number][0] >= prompt
            decoding, prefill = decoding + decodes, prefill + (0 if decodes else part)
        now += steps.seconds(decoding=decoding, context_tokens=context, prefill_tokens=prefill)
        for number, part in given.items():
            running[number][0] += part
            if running[number][0] >= prompt:
                running[number][1] += 1
                if running[number][1] == 1:
                    first[number] = now - arrivals[number]
                if running[number][1] == answer:
                    last[number] = now - arrivals[number]
                    del running[number]
    return first, last


@given(st.integers(0, 10_000), st.floats(0.1, 12), st.integers(1, 600), st.integers(1, 40), st.integers(1, 8))
def test_steps_computed_together_take_what_each_of_them_takes(seed: int, rate: float, prompt: int, answer: int, sequences: int):
    chance, now, arrivals = random.Random(seed), 0.0, list[float]()
    for _ in range(40):
        now += chance.expovariate(rate)
        arrivals.append(now)
    limits = replace(LIMITS, max_num_seqs=sequences)
    asked = Traffic(arrivals=tuple(arrivals), input_tokens=prompt, output_tokens=answer, requests=40)
    first, last = step_by_step(Linear(), limits, arrivals, prompt, answer)
    found = served(Linear(), limits, asked)
    assert found.first_tokens == pytest.approx(sorted(first))
    assert found.whole == pytest.approx(sorted(last))
    assert conserved(found)
    assert found.answered == 40
    assert not found.preemptions


@pytest.mark.thorough
def test_one_sequence_at_a_time_waits_as_queueing_theory_has_it():
    """A server of constant times with random arrivals: the mean wait is load / (2 (1 - load)) services (Pollaczek-Khinchine)."""
    service = Linear(step=1, sequence=0, context=0, prompt=0)
    for load in (0.3, 0.6, 0.8):
        one = Traffic(rate=load, input_tokens=1, output_tokens=1, requests=60_000)
        found = served(service, replace(LIMITS, max_num_seqs=1), one)
        assert mean(found.waits) == pytest.approx(load / (2 * (1 - load)), rel=0.06)


def test_a_lone_request_takes_its_prompt_and_then_its_tokens():
    found = served(Linear(context=0), LIMITS, Traffic(users=1, requests=1, input_tokens=600, output_tokens=10))
    # 600 tokens are three steps of at most 256.
    assert found.first_token(50) == pytest.approx(3 * 0.02 + 600e-4)
    assert found.end_to_end(50) == pytest.approx(3 * 0.02 + 600e-4 + 9 * 0.0201)
    assert found.token(95) == pytest.approx(0.0201)


def test_a_step_that_is_scheduled_ahead_goes_without_what_comes_meanwhile():
    """The first request decodes; the second comes within a step and waits for the next one, or with steps ahead for one more."""
    steps, asked = Linear(0.1, 0, 0, 0), Traffic(arrivals=(0.0, 0.55), input_tokens=10, output_tokens=20, requests=2)
    assert max(served(steps, LIMITS, asked).first_tokens) == pytest.approx(0.15)
    assert max(served(steps, replace(LIMITS, ahead=True), asked).first_tokens) == pytest.approx(0.25)


def test_an_engine_that_does_not_mix_lets_answers_wait_for_prompts():
    asked = Traffic(arrivals=(0.0, 0.95), input_tokens=10, output_tokens=20, requests=2)
    found = served(Linear(0.1, 0, 0, 0), replace(LIMITS, mixes=False), asked)
    assert found.token(100) == pytest.approx(0.2)
    assert served(Linear(0.1, 0, 0, 0), LIMITS, asked).token(100) == pytest.approx(0.1)


def test_a_full_cache_takes_blocks_back_and_loses_no_token():
    tight = replace(LIMITS, kv_tokens=600)
    asked = Traffic(rate=5, input_tokens=60, output_tokens=60, requests=300)
    found, roomy = served(Linear(), tight, asked), served(Linear(), LIMITS, asked)
    assert found.preemptions
    assert not roomy.preemptions
    assert conserved(found)
    assert found.answered == 300
    assert found.end_to_end(50) > roomy.end_to_end(50)
    assert sum(count for _, count in found.gaps) == pytest.approx(0.9 * 300 * 59, rel=0.05)


@given(
    st.floats(0.1, 60), st.integers(1, 4), st.sampled_from(["fewest", "prefixes", "random"]), st.sampled_from([None, 3, 20]),
    st.integers(0, 30), st.booleans(), st.booleans(), st.integers(300, 3000), st.sampled_from([5.0, math.inf]),
)  # fmt: skip
def test_every_request_is_answered_queued_or_lost(
    rate: float, replicas: int, routing: Routing, most: int | None, users: int, ahead: bool, mixes: bool, kv: int, ends: float
):
    limits = replace(LIMITS, ahead=ahead, mixes=mixes, kv_tokens=kv)
    asked = Traffic(rate=0 if users else rate, users=users, input_tokens=90, output_tokens=30, requests=120)
    found = served(Linear(), limits, asked, replicas=replicas, routing=routing, most=most, seconds=ends)
    assert conserved(found)
    assert found.busy <= 1
    if ends == math.inf:
        assert not found.queued
    if most is None:
        assert not found.lost


def test_more_load_is_more_waiting_and_more_replicas_are_less():
    asked = Traffic(output_tokens=50, input_tokens=100)
    waits = [served(Linear(), LIMITS, replace(asked, rate=rate)).first_token(95) for rate in (1, 4, 6)]
    assert waits == sorted(waits)
    assert waits[-1] > 2 * waits[0]
    assert not served(Linear(), LIMITS, replace(asked, rate=9)).keeps_up
    two = served(Linear(), LIMITS, replace(asked, rate=9), replicas=2)
    assert two.keeps_up
    assert two.first_token(95) < 0.2


def test_the_fewest_waits_less_than_chance():
    asked = Traffic(rate=20, output_tokens=50, input_tokens=100)
    every: tuple[Routing, ...] = ("fewest", "prefixes", "random")
    fewest, prefixes, chance = (served(Linear(), LIMITS, asked, replicas=4, routing=how).first_token(99) for how in every)
    assert fewest < prefixes < chance


def test_what_the_cache_has_need_not_be_computed():
    asked = Traffic(rate=1, input_tokens=1000, output_tokens=20, requests=200)
    found, without = served(Linear(), LIMITS, replace(asked, prefix=0.8)), served(Linear(), LIMITS, asked)
    assert found.first_token(50) < 0.5 * without.first_token(50)


def test_capacity_is_the_highest_rate_that_keeps_the_objectives():
    asked = Traffic(input_tokens=100, output_tokens=50, requests=1000)
    unbounded = capacity(Linear(), LIMITS, asked, Objectives())
    # A full engine answers 8 requests in 49 steps, in which it also computes 8 prompts.
    full = 8 / (49 * Linear().seconds(decoding=8, context_tokens=8 * 125, prefill_tokens=0) + 8 * 100e-4)
    assert unbounded == pytest.approx(full, rel=0.12)
    wanted = Objectives(first_token=0.15)
    found = capacity(Linear(), LIMITS, asked, wanted)
    assert wanted.kept(served(Linear(), LIMITS, replace(asked, rate=found)))
    assert not wanted.kept(served(Linear(), LIMITS, replace(asked, rate=found * 1.1)))
    assert capacity(Linear(), LIMITS, asked, Objectives(first_token=0.001)) == 0
    assert 2 * found < capacity(Linear(), LIMITS, asked, wanted, replicas=2) < 2 * unbounded


@pytest.mark.parametrize("rate", [1, 4, 5, 5.5, 6, 7, 12])
def test_what_cannot_keep_its_objective_any_more_is_not_played_to_its_end(rate: float):
    asked, wanted = Traffic(rate=rate, input_tokens=100, output_tokens=50), Objectives(first_token=0.15)
    whole, cut = served(Linear(), LIMITS, asked), served(Linear(), LIMITS, asked, within=wanted)
    assert wanted.kept(cut) == wanted.kept(whole)
    assert (cut.came < whole.came) == (not wanted.kept(whole))


def test_a_request_takes_few_steps_to_play(monkeypatch: pytest.MonkeyPatch):
    """Not one for each of its 250 tokens."""
    asked: list[int] = []
    seconds = Linear.seconds
    monkeypatch.setattr(Linear, "seconds", lambda steps, **step: asked.append(1) or seconds(steps, **step))
    served(Linear(), replace(LIMITS, max_num_seqs=256), Traffic(rate=5, requests=2000))
    assert 2000 < len(asked) < 4 * 2000


@pytest.mark.parametrize("kv", [400_000, 20_000])
def test_pieces_of_a_long_prompt_that_are_computed_together_take_what_they_take_one_by_one(
    kv: int, monkeypatch: pytest.MonkeyPatch
):
    limits = replace(LIMITS, max_num_seqs=32, kv_tokens=kv)
    asked = Traffic(rate=1.2, input_tokens=6000, output_tokens=150, requests=100)
    steps = Linear(step=0.01, prompt=1e-5, context=1e-8)
    together = served(steps, limits, asked)
    monkeypatch.setattr(Replica, "_alike", lambda *_: 0)
    alone = served(steps, limits, asked)
    assert conserved(together)
    for percent in (50, 95):
        assert together.first_token(percent) == pytest.approx(alone.first_token(percent), rel=1e-4)
        assert together.token(percent) == pytest.approx(alone.token(percent), rel=0.05)  # the mean of some steps is one number
    assert together.seconds == pytest.approx(alone.seconds, rel=1e-4)
