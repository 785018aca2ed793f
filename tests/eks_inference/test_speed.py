"""The time of a step: what it can never be faster than, and how it grows."""

import tomllib
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eks_inference.catalog.engines import engine
from eks_inference.catalog.instances import InstanceType, instance_type, instance_types
from eks_inference.catalog.models import model
from eks_inference.catalog.speeds import chips, measured, sources, speeds
from eks_inference.serving.memory import MemoryUse
from eks_inference.serving.memory_settings import MemorySettings
from eks_inference.speed.accuracy import case
from eks_inference.speed.batching import Limits
from eks_inference.speed.queue import Traffic, served
from eks_inference.speed.step import StepTimes, step_times
from golden import assert_golden
from refresh import speeds as refresh_speeds
from speed_page import document, plot

PLACES = (
    ("Llama-3.1-8B", "g6e.xlarge", "cuda-vllm-0.30", 1),
    ("Llama-3.1-8B", "trn1.2xlarge", "neuron-2.28-vllm-0.13", 2),
    ("Llama-3.1-8B", "inf2.8xlarge", "neuron-2.28-vllm-0.13", 2),
    ("Qwen3-30B-A3B", "g6e.12xlarge", "cuda-vllm-0.30", 4),
    ("GPT-OSS-120B", "p5.48xlarge", "cuda-vllm-0.30", 8),
    ("DeepSeek-R1", "p5en.48xlarge", "cuda-vllm-0.30", 8),
    ("Gemma-3-27B", "p5en.48xlarge", "cuda-vllm-0.30", 2),
)


def use_of(name: str, instance: str, profile: str, tensor: int, **settings: object) -> MemoryUse:
    with_ = replace(MemorySettings(max_num_seqs=8), **settings)  # pyright: ignore[reportArgumentType]
    return MemoryUse(engine(profile).served(model(name)), instance_type(instance), engine(profile), tensor, 1, 8192, with_)


def times(*place: object, **settings: object) -> StepTimes:
    found = step_times(use_of(*place, **settings))  # pyright: ignore[reportArgumentType]
    assert isinstance(found, StepTimes), found
    return found


COUNTS = st.integers(0, 512)
TOKENS = st.integers(0, 1 << 17)


@given(place=st.sampled_from(PLACES), decoding=COUNTS, context=TOKENS, prompt=st.integers(0, 16384), more=st.integers(1, 4096))
def test_more_of_anything_takes_no_less_time_and_nothing_beats_the_roofline(
    place: tuple[object, ...], decoding: int, context: int, prompt: int, more: int
):
    found = times(*place)
    context *= bool(decoding)
    now = found.seconds(decoding=decoding, context_tokens=context, prefill_tokens=prompt)
    if decoding or prompt:
        assert now > found.floor(decoding=decoding, context_tokens=context, prefill_tokens=prompt) > 0
    else:
        assert now == 0
    assert found.seconds(decoding=decoding, context_tokens=context, prefill_tokens=prompt + more) >= now
    if decoding:
        assert found.seconds(decoding=decoding, context_tokens=context + more, prefill_tokens=prompt) >= now
        if not found.compiled_batch:  # whose cost does not depend on the sequences in it
            each = context // decoding
            later = found.seconds(decoding=decoding + more, context_tokens=context + more * each, prefill_tokens=prompt)
            assert later >= now * 0.999


def test_a_compiled_step_costs_its_batch_whatever_is_in_it():
    found = times("Llama-3.1-8B", "inf2.8xlarge", "neuron-2.28-vllm-0.13", 2)
    one, all_ = (found.seconds(decoding=n, context_tokens=n * 1000, prefill_tokens=0) for n in (1, 8))
    assert one == pytest.approx(all_)
    assert found.compiled_batch == 8
    larger = times("Llama-3.1-8B", "inf2.8xlarge", "neuron-2.28-vllm-0.13", 2, max_num_seqs=32)
    assert larger.seconds(decoding=1, context_tokens=1000, prefill_tokens=0) > one


def test_experts_are_read_as_far_as_tokens_reach_them():
    found = times("Qwen3-30B-A3B", "g6e.12xlarge", "cuda-vllm-0.30", 4)
    one, many = (found.seconds(decoding=n, context_tokens=n, prefill_tokens=0) for n in (1, 64))
    assert many > 1.5 * one


def test_what_is_quantized_is_faster_and_a_window_too():
    plain, fp8 = (times("Llama-3.1-8B", "g6e.xlarge", "cuda-vllm-0.30", 1, quantized_bytes=size) for size in (None, 1))
    assert fp8.seconds(decoding=1, context_tokens=1, prefill_tokens=0) < plain.seconds(
        decoding=1, context_tokens=1, prefill_tokens=0
    )
    gemma = times("Gemma-3-27B", "p5en.48xlarge", "cuda-vllm-0.30", 2)
    near, far = (gemma.seconds(decoding=1, context_tokens=n, prefill_tokens=0) for n in (1 << 10, 1 << 17))
    whole = gemma.work.cache + gemma.work.windowed
    assert far - near < whole * ((1 << 17) - (1 << 10)) / (gemma.chip.bandwidth_gb_s * 1e9) / gemma.constants.cache / 2


def test_attention_is_that_of_each_prompt_whatever_step_computes_its_tokens():
    found, alone = times("Llama-3.1-8B", "p5.48xlarge", "cuda-vllm-0.30", 1), {"decoding": 0, "context_tokens": 0}
    one, eight, whole = (
        found.seconds(**alone, prefill_tokens=8000, prefill_pairs=pairs) for pairs in (8000 * 500, 8 * 8000 * 500, None)
    )
    assert one < eight == whole
    limits = Limits(max_num_seqs=8, kv_tokens=200_000, step_tokens=8192, host_seconds=found.request_seconds)
    for prompt in (1000, 64_000):  # a simulated engine and the formula agree on a long prompt, whose chunks look far back
        played = served(found, limits, Traffic(users=1, requests=1, input_tokens=prompt, output_tokens=2))
        assert played.first_token(50) == pytest.approx(found.first_token(prompt), rel=0.03)
    gemma = times("Gemma-3-27B", "p5en.48xlarge", "cuda-vllm-0.30", 2)
    without = replace(gemma, work=replace(gemma.work, window=1 << 20))
    assert gemma.first_token(100_000) < 0.8 * without.first_token(100_000)


@pytest.mark.parametrize("instance", [one for one in instance_types().values() if one.accelerator], ids=lambda one: one.name)
def test_an_accelerator_is_known_or_why_it_is_not(instance: InstanceType):
    profile = "neuron-2.28-vllm-0.13" if instance.neuron else "cuda-vllm-0.30"
    found = step_times(use_of("Llama-3.1-8B", instance.name, profile, 1))
    assert isinstance(found, StepTimes) or "was not measured" in found


# -- errors ----------------------------------------------------------------------------------------------------------------------

TARGETS = {
    "dense": {"H100": (0.12, 0.30), "H200": (0.12, 0.30), "B200": (0.12, 0.30), "Inferentia2": (0.20, 1), "Trainium": (0.20, 1)}
}
TARGETS["experts"] = dict.fromkeys(("H100", "H200", "B200", "B300"), (0.25, 0.60))
TARGETS["first_token"] = dict.fromkeys(("H100", "A100", "A100 40 GB", "Inferentia2", "Trainium"), (0.25, 1))
TARGETS["most"] = dict.fromkeys(("H100", "H200", "B200"), (0.25, 1))
RESISTING = {("dense", "H200"), ("dense", "B200"), ("experts", "B200")}
"""What docs/speed.md says of."""


def test_errors_of_rows_that_were_set_aside_are_within_the_targets_or_told():
    beyond = set()
    for what, wanted in TARGETS.items():
        for device, (most, p90) in wanted.items():
            found = getattr(speeds()[device], what)
            if found.median > most or found.p90 > p90:
                beyond.add((what, device))
    assert beyond == RESISTING


def test_constants_as_shipped_fit_what_they_were_fitted_to():
    """On a sample: a changed formula or a changed row shows without a new fit."""
    by: dict[str, list[float]] = {}
    for row in measured()[::5]:
        if row.itl_ms and row.load in ("", "batch"):
            one = case(row)
            constants = speeds()[row.device].constants
            if one.possible and not one.queues(constants) and not one.experts:
                by.setdefault(row.device, []).append(abs(one.token(constants) * 1e3 / row.itl_ms - 1))
    for device in ("H100", "B200", "Inferentia2", "Trainium"):
        assert median(by[device]) < 0.15, device
    assert sum(map(len, by.values())) > 50


@pytest.mark.parametrize(("load", "device", "share"), [("batch", "A100", 1.01), ("max", "H100", 0.83), ("max", "B200", 1.06)])
def test_the_most_that_is_reached_is_near_what_was_measured(load: str, device: str, share: float):
    rows = [row for row in measured() if row.tokens_s and (row.load, row.device) == (load, device)]
    constants = speeds()[device].constants
    found = median(case(row).tokens_a_second(constants) / (row.tokens_s or 0) for row in rows)
    assert found == pytest.approx(share, abs=0.01)


@pytest.mark.thorough
def test_the_table_is_what_the_generator_makes():
    """Every fit, and the errors of the three accelerators with fewest groups: each group left out takes a fit of its kin."""
    judged = ("T4", "L4", "Trainium2")
    made, file = (tomllib.loads(text) for text in (refresh_speeds.table(judged), refresh_speeds.FILE.read_text("utf-8")))
    assert [*made] == [*file]
    for device in made:
        assert made[device] == file[device] if device in judged else made[device].items() <= file[device].items()


@pytest.mark.thorough
def test_the_page_and_its_plot():
    assert_golden("../../docs/speed.md", document())
    assert_golden("../../docs/speed.svg", plot())


def test_a_source_is_named_and_a_device_known_for_each_measurement():
    for row in measured():
        assert row.source in sources()
        assert row.device in chips()
        assert model(row.model)
        assert row.itl_ms or row.tokens_s or row.ttft_ms
    assert {row.source for row in measured()} == set(sources())
