"""Verdicts, weights and KV cache against what vLLM itself answers: ``tests/data/engine_answers.toml``."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eks_inference.catalog.models import Model, model
from eks_inference.catalog.quantization import Quantization
from eks_inference.rules import judged
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flag_values import backend_settings
from eks_inference.serving.memory import server_memory
from eks_inference.serving.rules.every_server import server_rules
from eks_inference.serving.vllm.facts import serving_facts
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.speed.step import step_times
from handles import placement

DATA = tomllib.loads((Path(__file__).parents[1] / "data/engine_answers.toml").read_text("utf-8"))
ANSWERS, OFF = DATA["answers"], DATA["off"]
WITHIN = 0.02
"""How far weights and KV cache may be off: blocks are rounded up, and tables of positions are counted roughly."""
_OF_THE_ANSWER = ("model", "on", "starts", "weights_mib", "kv_mib", "says")


def known(name: str) -> Model:
    """A row of the catalog, or a quantized checkpoint of its shape."""
    if name not in DATA["checkpoints"]:
        return model(name)
    changes = dict(DATA["checkpoints"][name])
    of, quantization = changes.pop("of"), Quantization(**changes.pop("quantization"))
    return replace(model(of), name=name, quantization=quantization, **changes)


def asked(answer: dict[str, Any]) -> ServingFacts:
    """The server that the engine was asked about."""
    keys = {"devices": answer["tensor_parallel"], "max_num_seqs": 8, "disk_gib": 1900}
    keys |= {name: value for name, value in answer.items() if name not in _OF_THE_ANSWER}
    there, found = placement(answer["on"], pool="gpu", max_nodes=1), known(answer["model"])
    base = model(DATA["checkpoints"].get(answer["model"], {}).get("of", answer["model"]))
    spec = VllmServerSpec.model_validate(
        {"engine": "cuda-vllm-0.30", "pool": "gpu", "model": {"id": base.repositories[0]}, **keys}
    )
    facts = serving_facts(spec, there, scheduler=False)
    needed = backend_settings(facts.engine.vllm, there.instance_type, facts.arguments, found)
    return replace(facts, model=found, arguments=(*facts.arguments, *(f"--{name}={value}" for name, value in needed.items())))


def differences(answer: dict[str, Any]) -> list[str]:
    """Where the library says otherwise than the engine."""
    facts = asked(answer)
    refused = sorted({rule.id for rule, one in judged(server_rules(), [facts]) if not one.holds and _is_error(rule, one)})
    words = f"the engine {'starts' if answer['starts'] else 'does not start'}; refused by {', '.join(refused) or 'no rule'}"
    found = [words] if bool(refused) == answer["starts"] else []
    memory = server_memory(facts)
    if memory is None:
        return found
    weights, kv = memory.of_stage(0)
    for what, ours, theirs in (("weights", weights, answer.get("weights_mib")), ("KV cache", kv, answer.get("kv_mib"))):
        if theirs and abs(ours / 2**20 / theirs - 1) > WITHIN:
            found.append(f"{what}: {ours / 2**20:.1f} MiB, and {theirs} in the engine")
    return found


def _is_error(rule: Any, judgement: Any) -> bool:
    return (judgement.severity or rule.severity) == "error"


@pytest.mark.parametrize("name", ANSWERS)
def test_the_library_says_what_the_engine_says(name: str) -> None:
    """A row that is off has a reason, and is off."""
    assert bool(differences(ANSWERS[name])) == (name in OFF), (differences(ANSWERS[name]), OFF.get(name))


_ALONE = {"model": "Qwen3-Next-80B-A3B", "on": "p5.48xlarge", "tensor_parallel": 4, "max_model_len": 8192}


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"enable-expert-parallel": True},
        {"block-size": 256},
        {"enable-chunked-prefill": False},  # refused: mamba cache mode "align" needs it
        {"disable-hybrid-kv-cache-manager": True},  # refused: no unified type
        {"enable-lora": True},
        {"mamba-ssm-cache-dtype": "float32"},
        {"decode-context-parallel-size": 2},
        {"speculative-config": {"method": "mtp", "num_speculative_tokens": 2}},
    ],
    ids=lambda extra: next(iter(extra), "plain"),
)
def test_what_nobody_counted_beside_states_is_not_judged(extra: dict[str, Any]) -> None:
    found = [rule.id for rule, one in judged(server_rules(), [asked(_ALONE | {"extra_args": extra})]) if one.unjudged]
    assert ("GPU001" in found) == (bool(extra) and "enable-expert-parallel" not in extra)


def test_more_states_than_pages_are_refused_with_the_number_that_fits() -> None:
    found = [one.allowed for rule, one in judged(server_rules(), [asked(ANSWERS["s0011"])]) if rule.id == "GPU001"]
    assert found == ["max_num_seqs up to 278 at this length"]


def test_every_reason_is_of_a_row() -> None:
    assert OFF.keys() <= ANSWERS.keys()
    assert len([name for name in ANSWERS if not ANSWERS[name]["starts"]]) > 40


@pytest.mark.parametrize(
    ("on", "extra"),
    [
        ("p5en.48xlarge", {"decode-context-parallel-size": 8}),  # refused for its back end of bfloat16, and started on p6-b200
        ("p5en.48xlarge", {"block-size": 16}),
        ("g7e.48xlarge", {}),  # started with FlashInfer's kernels, and refused without
    ],
)
def test_what_one_back_end_of_sparse_attention_takes_and_another_does_not_is_not_judged(on: str, extra: dict[str, Any]) -> None:
    facts = asked({"model": "DeepSeek-V3.2", "on": on, "tensor_parallel": 8, "max_model_len": 8192, "extra_args": extra})
    assert {rule.id for rule, one in judged(server_rules(), [facts]) if one.unjudged} == {"GPU012"}


def test_an_index_works_on_keys_of_forty_sequences() -> None:
    asked_for = {"model": "GLM-5.2-FP8", "on": "p6-b200.48xlarge", "tensor_parallel": 8, "max_model_len": 1 << 20}
    memory = server_memory(asked(asked_for))
    assert memory
    assert memory.reserved
    assert {term.what: term.size for term in memory.reserved.terms}["index at work"] == (40 * 132 << 20) + (1 << 29)
    assert step_times(memory) == "sparse attention, which GLM-5.2-FP8 has, was not measured"
