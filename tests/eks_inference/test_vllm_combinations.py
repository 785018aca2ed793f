"""Flags that vLLM refuses together (SRV011): each row of the catalog on each release that has it, and known mistakes."""

from dataclasses import replace
from typing import Any

import pytest

from eks_inference.catalog.engines import EngineProfile, engines
from eks_inference.catalog.models import find_model
from eks_inference.catalog.vllm_arguments import Combination, Condition, combinations, vllm_releases
from eks_inference.rules import Judgement
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import flags, spelt_out
from eks_inference.serving.rules.engine_features import flags_go_together
from eks_inference.serving.rules.engine_flags import flags_have_their_values, stack_s_own_are_left_alone
from eks_inference.serving.rules.gpu_arithmetic import attention_is_served
from vectors.gpu import gpu_server
from vectors.serving import server

PROFILES = [engine for engine in engines().values() if not engine.retired]
FACTS = (
    "accelerator",
    "compute_capability",
    "image.has_ray",
    "model.architecture",
    "model.experts",
    "model.heads_per_kv_head",
    "model.heard",
    "model.kv_copies",
    "model.kv_heads",
    "model.multimodal",
    "model.tied",
    "model.windows",
    "model.writes",
)
MODELS = {
    "model.heard": "Whisper-Large-v3",
    "model.tied": "ERNIE-4.5-21B-A3B",
    "model.windows": "GPT-OSS-20B",
    "model.writes": "BGE-M3",
}
OF_THE_SPEC = {"tensor-parallel-size": "tensor_parallel", "max-model-len": "max_model_len", "max-num-seqs": "max_num_seqs"}

COMPARED = {
    "data-parallel-size": 8,
    "max-loras": 8,
    "max-num-partial-prefills": 8,
    "nnodes": 8,
    "offload-group-size": 8,
    "speculative-config.prompt_lookup_max": 8,
}


def on(profile: EngineProfile, extra_args: dict[str, Any], **changes: Any) -> ServingFacts:
    """Returns a server of a profile, with flags as its kind renders them."""
    extra_args = spelt_out(extra_args)
    arguments = tuple(flags(extra_args, vllm_releases()[profile.vllm].several))
    make = server if profile.neuron else gpu_server
    return make(engine=profile, image=profile.image, extra_args=extra_args, arguments=arguments, **changes)


def refused(subject: ServingFacts) -> list[str]:
    return [judgement.message.partition(": ")[2] for judgement in flags_go_together.judge(subject) if not judgement.holds]


def met(condition: Condition, subject: ServingFacts) -> Any:
    """Returns a value of a flag for which a condition holds."""
    model = subject.model
    assert model is not None
    against: Any = condition.against
    compared = {name: getattr(subject, of) for name, of in OF_THE_SPEC.items()} | COMPARED
    compared["model.heads_per_kv_head"] = model.heads // model.kv_heads
    compared["model.heard"] = 1500
    compared["model.kv_copies"] = max(subject.tensor_parallel // model.kv_heads, 1)
    if isinstance(against, str):
        against = compared[against]
    elif condition.setting in COMPARED and condition.test in ("given", "more_than"):
        return COMPARED[condition.setting]
    values = {
        "given": lambda: 1,
        "is_in": lambda: against[0],
        "is_not_in": lambda: not against[0] if isinstance(against[0], bool) else 3 if against[0] in (0, 1) else "other",
        "is_not": lambda: against + 2,
        "less_than": lambda: against - 1,
        "no_less_than": lambda: against,
        "more_than": lambda: against + 7,
        "no_multiple_of": lambda: against + 1,
        "no_divisor_of": lambda: against + 1,
    }
    return values[condition.test]()


def example(combination: Combination, profile: EngineProfile) -> dict[str, Any]:
    """Returns flags that a combination refuses."""
    subject, found = on(profile, {}), {}
    for condition in combination.conditions:
        absent = condition.test == "given" and not condition.against
        if not absent and condition.setting not in (*FACTS, *OF_THE_SPEC):
            found.setdefault(condition.setting, met(condition, subject))
    for one in combination.conditions:  # a setting that another is compared with
        if one.against in COMPARED:
            found.setdefault(one.against, COMPARED[one.against])
    return found


def possible(combination: Combination, profile: EngineProfile) -> bool:
    declared = vllm_releases()[profile.vllm]
    name = combination.flag
    wants = {condition.setting: condition for condition in combination.conditions}
    chips = wants.get("accelerator")
    fits = chips is None or (profile.accelerator in chips.against) == (chips.test == "is_in")
    fits = fits and (profile.nvidia or "compute_capability" not in wants)
    has_it = name in declared.flags or name.replace("-", "_") in declared.keys
    return fits and has_it and profile.vllm in combination.releases


PAIRS = [(combination, profile) for combination in combinations() for profile in PROFILES if possible(combination, profile)]


@pytest.mark.thorough
@pytest.mark.parametrize(("combination", "profile"), PAIRS, ids=lambda one: one.name)
def test_each_row_is_refused_on_each_release_and_not_without_its_flag(combination: Combination, profile: EngineProfile) -> None:
    given = example(combination, profile)
    degree = 1 if any(one.setting in OF_THE_SPEC and one.against == (1,) for one in combination.conditions) else 8
    # Some are refused only on older GPUs.
    asked = {one for each in combination.conditions for one in (each.setting, each.against) if isinstance(one, str)}
    older = {"on": "g4dn.12xlarge"} if "compute_capability" in asked else {}
    of = next((name for fact, name in MODELS.items() if fact in asked), None)
    other = {"model": find_model(of)} if of else {}
    subject = on(profile, given, tensor_parallel=degree, **older, **other)
    assert combination.says in refused(subject)
    without = {name: value for name, value in given.items() if name.partition(".")[0] != combination.flag}
    assert combination.says not in refused(on(profile, without, tensor_parallel=degree))


def test_every_row_is_about_flags_of_an_engine_that_can_be_chosen() -> None:
    assert {one.name for one in combinations()} == {one.name for one, _ in PAIRS}
    for one, profile in PAIRS:
        declared = vllm_releases()[profile.vllm]
        absent = {each.setting for each in one.conditions if each.test == "given" and not each.against}
        names = {each.setting.partition(".")[0] for each in one.conditions if each.setting not in {*FACTS, *absent}}
        assert names <= {*declared.flags, *(key.replace("_", "-") for key in declared.keys)}, one.name


def test_an_encoder_has_neither_stages_nor_adapters() -> None:
    flags = {"pipeline-parallel-size": 2, "enable-lora": True}
    found = refused(on(engines()["cuda-vllm-0.30"], flags, model=find_model("BGE-M3")))
    assert len([one for one in found if "encoders" in one]) == 2
    assert not [one for one in refused(on(engines()["cuda-vllm-0.30"], flags)) if "encoders" in one]


def test_an_encoder_reads_a_text_in_one_step() -> None:
    flags = {"max-num-batched-tokens": 256}
    profile, encoder = engines()["cuda-vllm-0.30"], find_model("BGE-M3")
    assert refused(on(profile, flags, model=encoder, max_model_len=1024))
    assert not refused(on(profile, flags, model=encoder, max_model_len=256))
    assert not refused(on(profile, flags, max_model_len=1024))


def test_rows_about_gpus_refuse_nothing_on_neuron() -> None:
    subject = on(engines()["neuron-2.33-vllm-0.29"], {"kv-cache-dtype": "fp8"}, tensor_parallel=8)
    assert not any("compute capability" in one for one in refused(subject))


CUDA = engines()["cuda-vllm-0.30"]


@pytest.mark.parametrize(
    ("instance", "model", "holds"),
    [
        ("g5.12xlarge", "GPT-OSS-20B", False),
        ("p4d.24xlarge", "GPT-OSS-20B", False),
        ("g5.12xlarge", "Qwen3-8B", True),
        ("g6.12xlarge", "GPT-OSS-20B", True),
        ("p5.48xlarge", "GPT-OSS-20B", True),
        ("g7e.12xlarge", "GPT-OSS-20B", True),
        ("p4d.24xlarge", "Gemma-4-31B", False),
        ("g6.12xlarge", "Gemma-4-31B", True),
    ],
)
def test_a_cache_in_fp8_and_attention_sinks_need_a_backend_that_has_both(instance: str, model: str, holds: bool) -> None:
    subject = on(CUDA, {"kv-cache-dtype": "fp8"}, on=instance, model=find_model(model))
    assert all(judgement.holds for judgement in attention_is_served.judge(subject)) == holds


TRITON = engines()["triton-26.08-vllm-0.27"]
INF2 = engines()["neuron-2.28-vllm-0.13"]
TRN2 = engines()["neuron-2.32-vllm-0.24"]


@pytest.mark.parametrize(
    ("profile", "given", "says"),
    [
        (CUDA, {"enable-auto-tool-choice": True}, "needs a tool-call-parser"),
        (CUDA, {"enable-auto-tool-choice": True, "tool-call-parser": "hermes"}, None),
        (CUDA, {"no-enable-auto-tool-choice": True}, None),
        (INF2, {"enable-auto-tool-choice": True}, "needs a tool-call-parser"),
        (CUDA, {"enable-eplb": True, "tensor-parallel-size": 2}, "enable-eplb needs enable-expert-parallel"),
        (TRN2, {"enable-eplb": True, "enable-expert-parallel": True}, "enable-eplb is for GPUs"),
        (CUDA, {"enable-expert-parallel": True}, "needs a model of experts"),
        (CUDA, {"decode-context-parallel-size": 2}, "tensor_parallel is a multiple of"),
        (CUDA, {"decode-context-parallel-size": 1}, None),
        (CUDA, {"max-num-batched-tokens": 100, "no-enable-chunked-prefill": True}, "at least max_model_len"),
        (CUDA, {"max-num-batched-tokens": "64k", "enable-chunked-prefill": False}, None),
        (CUDA, {"max-num-batched-tokens": 100}, "at least max_num_seqs"),
        (TRITON, {"max-num-batched-tokens": 100}, "at least max_num_seqs"),
        (CUDA, {"block-size": 17}, "a multiple of 16"),
        (CUDA, {"block-size": 32}, None),
        (TRN2, {"block-size": 17}, None),
        (CUDA, {"distributed-executor-backend": "ray"}, "needs Ray"),
        (CUDA, {"distributed-executor-backend": "mp"}, None),
        (TRITON, {"speculative-config": {"method": "eagle", "num-speculative-tokens": 0}}, "is more than 0"),
        (TRITON, {"otlp-traces-endpoint": None, "collect-detailed-traces": ["all"]}, "needs otlp-traces-endpoint"),
        (CUDA, {"spec-model": "a/b", "speculative-config.model": "a/b"}, "exclude each other"),
    ],
)
def test_mistakes_that_the_parser_does_not_see(profile: EngineProfile, given: dict[str, Any], says: str | None) -> None:
    found = refused(on(profile, given, tensor_parallel=1, max_num_seqs=128))
    assert any(says in one for one in found) if says else not found


def test_what_a_combination_needs_to_know_and_does_not_is_left_open() -> None:
    subject = replace(on(CUDA, {"distributed-executor-backend": "ray"}), image="registry.example/ours:1")
    (left,) = flags_go_together.judge(subject)
    assert left.unjudged
    assert "image.has_ray is not known" in left.working[-1]
    (left,) = flags_go_together.judge(replace(on(CUDA, {"enable-expert-parallel": True}), model=None))
    assert left.unjudged


def test_prefill_is_chunked_where_a_decoder_generates() -> None:
    given = {"max-num-batched-tokens": 1024}
    for subject, known in ((on(CUDA, given), True), (on(CUDA, {**given, "runner": "pooling"}), False)):
        found = list(flags_go_together.judge(subject))
        assert all(judgement.holds or judgement.unjudged for judgement in found)
        assert any(judgement.unjudged for judgement in found) is not known
    assert any(judgement.unjudged for judgement in flags_go_together.judge(replace(on(CUDA, given), model=None)))


def test_what_a_generation_does_by_default_is_known() -> None:
    given = {"max-num-batched-tokens": 1024}
    found = list(flags_go_together.judge(on(TRN2, given)))
    assert any("enable-chunked-prefill true" in judgement.given for judgement in found)
    assert not any(judgement.unjudged for judgement in found)
    assert refused(on(TRN2, {**given, "no-enable-chunked-prefill": True}))


def test_a_judgement_leads_to_the_flag_and_shows_the_values() -> None:
    (judgement,) = flags_go_together.judge(on(CUDA, {"enable-log-outputs": True}))
    assert judgement.path[-2:] == ("extra_args", "enable-log-outputs")
    assert judgement.given == "enable-log-outputs true, enable-log-requests false"


def lone(rule: Any, profile: EngineProfile, given: dict[str, Any]) -> Judgement:
    (judgement,) = rule.judge(on(profile, given))
    return judgement


@pytest.mark.parametrize(
    ("flag", "value", "holds"),
    [("runner", "pooling", False), ("runner", "generate", True), ("convert", "embed", False), ("convert", "none", True)],
)
def test_a_server_of_texts_stays_one(flag: str, value: str, holds: bool) -> None:
    assert lone(stack_s_own_are_left_alone, CUDA, {flag: value}).holds is holds


def test_lists_hold_texts() -> None:
    assert lone(flags_have_their_values, CUDA, {"allowed-origins": ["a"]}).holds
    assert not lone(flags_have_their_values, CUDA, {"allowed-origins": ["a", None]}).holds
    assert not lone(flags_have_their_values, CUDA, {"allowed-methods": "[1]"}).holds
    assert lone(flags_have_their_values, TRITON, {"device-ids": [0, "1"]}).holds
