"""The arithmetic of device memory: against a measurement, against worked cases, and as a function."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eks_inference.catalog.engines import KvPool, engine
from eks_inference.catalog.instances import instance_type
from eks_inference.catalog.models import model, models
from eks_inference.pools.plan import placement_of
from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference.serving.memory import GIB, Limit, MemoryUse, server_memory
from eks_inference.serving.memory_settings import MemorySettings, memory_settings
from eks_inference.serving.split import Parallel
from vectors.serving import gpu, server, trn2

CONTIGUOUS, PAGED, CUDA = "neuron-2.31-vllm-0.16", "neuron-2.32-vllm-0.24", "cuda-vllm-0.30"
POOL = KvPool(
    fraction=0.30,
    fraction_variable="VLLM_NEURON_KV_GMU_BUDGET_CAP_FRACTION",
    smallest_gib=1.0,
    smallest_variable="VLLM_NEURON_MIN_KV_BUDGET_GIB",
)


def use(
    name: str, instance: str, degree: int, sequences: int, length: int, profile: str = CONTIGUOUS, **settings: float | KvPool
) -> MemoryUse:
    shape, parts = instance_type(instance), MemorySettings(**settings)  # type: ignore[arg-type]
    return MemoryUse(model(name), shape, engine(profile), degree, sequences, length, parts)


@pytest.mark.parametrize(
    ("name", "instance", "degree", "sequences", "length", "weights", "kv", "needed", "share"),
    [
        ("Llama-2-13B", "inf2.48xlarge", 8, 24, 4096, 3.03, 9.38, 12.41, 0.78),
        ("Llama-2-13B", "inf2.48xlarge", 8, 24, 8192, 3.03, 18.75, 21.78, 1.36),
        # The manifest of the source system notes 21.3 GB of device memory for both cores.
        ("Llama-3-8B", "inf2.8xlarge", 2, 10, 4096, 7.48, 2.50, 9.98, 0.62),
        ("Llama-3.3-70B", "trn2.48xlarge", 64, 4, 8192, 2.05, 1.25, 3.30, 0.14),
        ("Llama-3.3-70B", "trn2.48xlarge", 8, 4, 8192, 16.43, 1.25, 17.68, 0.74),
        ("Llama-3.3-70B", "trn1.32xlarge", 32, 4, 8192, 4.11, 1.25, 5.36, 0.33),
    ],
)
def test_worked_cases(
    name: str, instance: str, degree: int, sequences: int, length: int, weights: float, kv: float, needed: float, share: float
) -> None:
    taken = use(name, instance, degree, sequences, length)
    assert taken.weights / GIB == pytest.approx(weights, abs=0.006)
    assert taken.kv / GIB == pytest.approx(kv, abs=0.006)
    assert taken.needed / GIB == pytest.approx(needed, abs=0.011)
    assert taken.needed / taken.capacity == pytest.approx(share, abs=0.006)


def test_the_working_can_be_followed_with_a_pencil() -> None:
    assert use("Llama-2-13B", "inf2.48xlarge", 8, 24, 4096).working == (
        "weights: 13.02 billion x 2 bytes / 8 cores = 3.03 GiB",
        "KV cache of a token: 2 x 40 layers x 40 KV heads x 128 x 2 bytes = 800 KiB",
        "KV cache: 800 KiB x 24 sequences x 4096 tokens / 8 cores = 9.38 GiB",
        "beside weights and KV cache: runtime 0.09 GiB",
        "3.03 + 9.38 + 0.09 = 12.50 GiB of 16 GiB a core (78 %)",
    )
    assert use("Llama-3.3-70B", "trn2.48xlarge", 16, 1, 8192, PAGED).working == (
        "weights: 70.55 billion x 2 bytes / 16 cores = 8.21 GiB",
        "KV cache of a token: 2 x 80 layers x 16 KV heads (8 repeated) x 128 x 2 bytes = 640 KiB",
        "KV cache: 640 KiB x 1 sequence x 8192 tokens / 16 cores = 0.31 GiB",
        "8.21 + 0.31 = 8.53 GiB of 0.9 x 24 = 21.6 GiB a core (39 %)",
        "KV pool: 0.3 x 21.6 = 6.48 GiB; 1 sequence of 8192 tokens: 0.31 GiB (5 %)",
        "pages for 20.7 sequences of 8192 tokens at once",
    )
    assert use("OPT-350M", "g4dn.xlarge", 1, 1, 2048, CUDA).working[-3:] == (
        "beside weights and KV cache: CUDA context 0.15 + sampling 3 x 256 sequences x 50272 x 4 bytes + 0.08 GiB = 0.22 + "
        "hidden states 2048 tokens x 1024 x 2 bytes = 0.00 + CUDA graphs 0.50 = 0.88 GiB, within 1 GiB",
        "0.62 + 0.19 + 0.88 = 1.68 GiB of 0.9 x 14.56 = 13.1 GiB a GPU (13 %)",
        "pages for 61.9 sequences of 2048 tokens at once",
    )


# -- what engines set aside -----------------------------------------------------------------------------------------------------


def test_contiguous_engines_hold_the_whole_batch_and_paged_ones_a_single_sequence() -> None:
    for facts, sequences in ((server(), 24), (trn2(), 1), (gpu(), 1)):
        found = server_memory(facts)
        assert found is not None
        assert found.sequences == sequences
        assert facts.engine.generation.paged == (sequences == 1)


def test_a_paged_pool_on_neuron_is_capped_and_has_a_smallest_size() -> None:
    """Neuron documentation 2.33, determine_available_memory: min(0.9 x 24 - weights, 0.3 x 0.9 x 24), at least 1 GiB."""
    assert use("Llama-3.3-70B", "trn2.48xlarge", 16, 1, 8192, PAGED).pool / GIB == pytest.approx(0.3 * 0.9 * 24, rel=1e-6)
    full = use("Llama-3.3-70B", "trn2.48xlarge", 8, 1, 8192, PAGED)
    assert full.pool / GIB == pytest.approx(0.9 * 24 - 16.43, abs=0.01)
    assert full.fraction == pytest.approx((16.43 + 1) / 21.6, abs=0.001)  # a GiB of pool, though the sequence takes less
    longest = use("Llama-3.3-70B", "trn2.48xlarge", 16, 2, 131072, PAGED)
    assert longest.fraction == pytest.approx(10 / 6.48, abs=0.001)
    assert use("Llama-3.3-70B", "trn2.48xlarge", 16, 2, 131072, PAGED, kv_pool=replace(POOL, fraction=0.6)).fraction < 1


def test_a_gpu_gives_its_share_and_no_cap() -> None:
    taken = use("Llama-3-8B", "g5.xlarge", 1, 1, 8192, CUDA)
    assert taken.capacity / GIB == pytest.approx(19.8)
    assert taken.reserved is not None
    assert taken.pool == taken.capacity - taken.weights - taken.reserved.size
    assert taken.fraction == pytest.approx((14.96 + 1 + taken.reserved.size / GIB) / 19.8, abs=0.001)


@pytest.mark.parametrize(("logical_cores", "memory_gib"), [(None, 24), (2, 24), (1, 12)])
def test_logical_cores_of_a_pool_halve_the_memory_of_each(logical_cores: int | None, memory_gib: int) -> None:
    pool = ManagedPoolSpec.model_validate({"instance_types": ["trn2.48xlarge"], "size": 1, "logical_cores": logical_cores})
    placement = placement_of("p", pool, None, "1.35")
    found = server_memory(trn2(placement=placement))
    assert found is not None
    assert found.memory == memory_gib * GIB


# -- flags and variables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ((), {}, {}),
        (("--gpu-memory-utilization=0.5",), {}, {"utilization": 0.5}),
        (("--gpu_memory_utilization", "0.5"), {}, {"utilization": 0.5}),
        (("--gpu-memory-utilization=0.5", "--gpu-memory-utilization=0.7"), {}, {"utilization": 0.7}),
        (("--gpu-memory-utilization=all",), {}, {}),
        (("--gpu-memory-utilization=3",), {}, {"utilization": 1.0}),
        (("--kv-cache-dtype=fp8_e4m3",), {}, {"kv_bytes": 1}),
        (("--kv-cache-dtype=int8_per_token_head",), {}, {"kv_bytes": 1, "kv_scale_bytes": 4}),
        (("--kv-cache-dtype=int4_per_token_head",), {}, {"kv_bytes": 0.5, "kv_scale_bytes": 4}),
        (("--kv-cache-dtype=nvfp4",), {}, {"kv_bytes": 0.5625}),
        (("--kv-cache-dtype=bfloat16",), {}, {"kv_bytes": 2}),
        (("--kv-cache-dtype=auto",), {}, {}),
        (("--dtype", "float32"), {}, {"dtype": "float32"}),
        (("--dtype=half",), {}, {"dtype": "half"}),
        (("--quantization=fp8",), {}, {"quantized_bytes": 1}),
        (('--additional-config={"override_neuron_config": {"quantized": true}}',), {}, {}),
        (("--additional-config=[]",), {}, {}),
        (("--pipeline-parallel-size=2",), {}, {"parallel": Parallel(stages=2)}),
        (("--max-num-batched-tokens=512",), {}, {"step_tokens": 512}),
        (("--max-num-batched-tokens=1M",), {}, {"step_tokens": 1 << 20}),
        (("--max-num-batched-tokens=2.5k",), {}, {"step_tokens": 2500}),
        (("--max-num-batched-tokens=-1",), {}, {}),
        (("--max-num-batched-tokens=many",), {}, {}),
        (("--no-enable-chunked-prefill",), {}, {"whole_prompts": True}),
        (("--performance-mode=throughput",), {}, {"longer_steps": True}),
        (("--performance-mode=interactivity",), {}, {}),
        (("--no-async-scheduling",), {}, {"overlaps": False}),
        (('--speculative-config={"method": "ngram"}',), {}, {"overlaps": False}),
        (('--speculative-config={"method": "ngram"}', "--async-scheduling"), {}, {}),
        ((), {"VLLM_NEURON_KV_GMU_BUDGET_CAP_FRACTION": "0.35"}, {"kv_pool": replace(POOL, fraction=0.35)}),
        ((), {"VLLM_NEURON_MIN_KV_BUDGET_GIB": "0"}, {"kv_pool": replace(POOL, smallest_gib=0.0)}),
    ],
)
def test_flags_and_variables_change_the_arithmetic(arguments: tuple[str, ...], environment: dict, expected: dict) -> None:
    assert memory_settings(engine(PAGED), arguments, environment) == replace(MemorySettings(kv_pool=POOL), **expected)
    unbound = {key: value for key, value in expected.items() if key != "kv_pool"}
    assert memory_settings(engine(CUDA), arguments, environment) == replace(MemorySettings(), **unbound)


@pytest.mark.parametrize(("setting", "bytes_of"), [("quantized", "quantized_bytes"), ("kv_cache_quant", "kv_bytes")])
def test_settings_of_nxd_inference_change_the_arithmetic(setting: str, bytes_of: str) -> None:
    arguments = (f'--additional-config={{"override_neuron_config": {{"{setting}": true}}}}',)
    assert memory_settings(engine("neuron-2.31-vllm-0.16"), arguments, {}) == replace(MemorySettings(), **{bytes_of: 1})


def test_a_step_without_chunked_prefill_is_as_long_as_a_prompt() -> None:
    """GPT-OSS-20B on an H100: vLLM 0.30.0 itself counts 1155.4 and 1536.4 MiB for 32768 tokens."""
    chunked, whole = (use("GPT-OSS-20B", "p5.48xlarge", 1, 1, 32768, CUDA, whole_prompts=one) for one in (False, True))
    assert (chunked.step_tokens, whole.step_tokens) == (8192, 32768)
    assert chunked.kv / 2**20 == pytest.approx(1155, abs=1)
    assert whole.kv / 2**20 == pytest.approx(1536, abs=1)
    assert whole.of(1, 2048).step_tokens == 8192
    assert replace(chunked, settings=replace(chunked.settings, longer_steps=True)).step_tokens == 16384
    assert replace(whole, settings=replace(whole.settings, step_tokens=40000)).step_tokens == 40000


def test_a_stage_takes_as_much_of_every_group_as_of_the_one_with_most_layers_in_it() -> None:
    """Stages of three layers of GPT-OSS-20B: two of one kind and one of the other, in two groups."""
    one = use("GPT-OSS-20B", "p5.48xlarge", 1, 1, 131072, CUDA)
    eight = replace(one, settings=MemorySettings(parallel=Parallel(stages=8)))
    layer = 2 * 8 * 64 * 2
    assert one.kv == 12 * layer * (131072 + 128 + 2 * 8192)
    assert eight.kv == 2 * layer * (131072 + 128 + 9 * 8192)


def test_stages_of_a_pipeline_hold_a_part_of_the_layers_each() -> None:
    one = use("Llama-3-8B", "g5.12xlarge", 1, 1, 8192, CUDA)
    two = replace(one, settings=MemorySettings(parallel=Parallel(stages=2)))
    assert two.kv == one.kv / 2
    half, table = one.weights / 2, 128256 * 4096 * 2
    assert two.weights == pytest.approx(half, rel=0.003)  # each has one of both tables
    assert "over 2 GPUs, on each of the fullest stage: divided" in two.working[0]
    three = replace(one, settings=MemorySettings(parallel=Parallel(stages=3)))
    assert three.split.layers(32) == [range(11), range(11, 22), range(22, 32)]
    assert three.weights == pytest.approx((one.weights - 2 * table) * 11 / 32 + table, rel=0.003)


def test_a_draft_is_on_the_last_stage() -> None:
    draft = model("Llama-3.2-1B")
    settings = MemorySettings(parallel=Parallel(stages=2))
    alone = replace(use("Llama-3-8B", "g5.12xlarge", 2, 1, 8192, CUDA), settings=settings)
    helped = replace(alone, settings=replace(settings, draft=draft, draft_bytes=draft.weight_bytes()))
    assert helped.of_stage(0) == alone.of_stage(0)
    more = tuple(one - other for one, other in zip(helped.of_stage(1), alone.of_stage(1), strict=True))
    assert more == pytest.approx((draft.weight_bytes() / 2, draft.kv_bytes(8192, 2, 2) / 2))


def test_a_stage_may_have_no_layer() -> None:
    one = use("Llama-3-8B", "g5.12xlarge", 1, 1, 8192, CUDA)
    more = replace(one, model=replace(one.model, layers=6), settings=MemorySettings(parallel=Parallel(stages=8)))
    assert [len(layer) for layer in more.split.layers(6)] == [0, 1, 1, 1, 1, 1, 1, 0]
    assert more.kv_one == one.kv_one / 32
    assert more.working[-1].startswith("pages for ")


def test_nothing_is_said_where_the_weights_are_not_known() -> None:
    assert server_memory(server(model=None)) is None
    assert server_memory(gpu(arguments=("--quantization=awq",))) is None


# -- as a function --------------------------------------------------------------------------------------------------------------

USES = st.builds(
    use,
    st.sampled_from(sorted(models())),
    st.sampled_from(["inf2.48xlarge", "trn1.32xlarge", "trn2.48xlarge", "g5.48xlarge"]),
    st.sampled_from([1, 2, 4, 8, 16, 32, 64]),
    st.integers(1, 300),
    st.integers(1, 131072),
    st.sampled_from([CONTIGUOUS, PAGED, CUDA]),
)


@given(USES)
def test_a_sequence_or_a_token_more_never_takes_less(taken: MemoryUse) -> None:
    for more in (taken.of(taken.sequences + 1, taken.max_model_len), taken.of(taken.sequences, taken.max_model_len + 1)):
        within_a_page = taken.model.state_layers and more.kv == taken.kv
        assert more.kv > taken.kv or not taken.model.writes or within_a_page
        assert more.weights == taken.weights
        assert more.fraction >= taken.fraction


@given(USES)
def test_parts_of_a_model_hold_all_of_it(taken: MemoryUse) -> None:
    whole, together = taken.model.weight_bytes(), taken.tensor_parallel * taken.weights
    if taken.held is None:
        assert 0 <= together - whole < taken.tensor_parallel
    else:
        assert together > 0.995 * whole  # of OPT-350M the formula is not the count
        assert together - taken.tensor_parallel * taken.held[0].whole < 1.2 * whole * max(
            1, taken.tensor_parallel / taken.model.kv_heads
        )
    split = replace(taken, tensor_parallel=2 * taken.tensor_parallel)
    assert split.weights <= taken.weights
    # Heads that do not divide evenly are expanded: Phi-4 has ten.
    assert split.kv <= taken.kv or not taken.model.kv_splits_over(split.tensor_parallel)
    # Each part holds whole heads.
    assert taken.model.kv_heads_at(taken.tensor_parallel) % taken.tensor_parallel == 0


@given(USES)
def test_what_fits_is_below_every_limit(taken: MemoryUse) -> None:
    assert (taken.fraction <= 1) == all(limit.used <= limit.available for limit in taken.limits)
    if taken.fraction <= 1:
        assert taken.fits
        assert taken.needed <= taken.capacity <= taken.memory
        assert taken.kv <= taken.pool
    if taken.surely_fits:
        assert taken.fraction <= 1


def test_an_estimate_that_is_too_large_makes_no_room_for_the_weights() -> None:
    """What is beside them is at least nothing, however far it may be off."""
    assert Limit("memory", used=60, available=59, margin=2, least=58).kept
    assert not Limit("memory", used=60, available=57, margin=3, least=58).kept
