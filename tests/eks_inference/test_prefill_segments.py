"""Prompts in segments or whole, on Neuron without NxD Inference: the product's verdict is that of the engine's start.

``support/neuron_plugin.py`` says what the plugin checks before it serves.
"""

import json
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from eks_inference.catalog.engines import engine, engines
from eks_inference.rules import Judgement
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.kinds import KINDS
from eks_inference.serving.rules.neuron import flags_agree
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from neuron_plugin import refusal
from neuron_servers import ENGINE, everywhere, of_vllm
from open_stacks import minimal
from vectors.nixl import servers

LENGTHS = (128, 2048, 2560, 4096, 8192, 16384, 16512, 32768)
TOKENS: tuple[int | str | None, ...] = (None, 512, 1000, 2048, 4096, 8192, 16384, "8k", "8K")
CACHING: Mapping[str, Mapping[str, Any]] = {
    "nothing said": {},
    "key on": {"prefix_caching": True},
    "key off": {"prefix_caching": False},
    "flag on": {"extra_args": {"enable-prefix-caching": True}},
    "flag false": {"extra_args": {"enable-prefix-caching": False}},
    "flag in underscores": {"extra_args": {"enable_prefix_caching": False}},
    "negated flag": {"extra_args": {"no-enable-prefix-caching": True}},
}


def refused(facts: ServingFacts) -> list[Judgement]:
    return [judgement for judgement in flags_agree.judge(facts) if not judgement.holds]


def test_every_kind_that_runs_the_engine_is_here():
    profile = engine(ENGINE)
    able = {name for name, kind in KINDS.items() if profile.server in kind.spec.engine_servers}
    assert able == {"vllm", "prefill_decode", "ray_serve_vllm", "disaggregated"}
    assert "NeuronConnector" not in profile.kv_connectors, "the kind of static pairs needs it"
    assert [one.name for one in engines().values() if one.generation is profile.generation] == [ENGINE, "neuron-2.33-vllm-0.29"]


@pytest.mark.parametrize("caching", CACHING)
@pytest.mark.parametrize("length", LENGTHS)
def test_the_verdict_is_that_of_the_engine(length: int, caching: str):
    for tokens in TOKENS:
        for facts in everywhere(length, tokens, CACHING[caching]):
            expected = not refusal(facts)
            assert (not refused(facts)) == expected, (facts.kind, facts.part, tokens, facts.arguments)


@pytest.mark.parametrize("length", [*LENGTHS, 1, 2047, 2049, 131072])
def test_what_says_nothing_of_prompts_starts(length: int):
    for facts in everywhere(length, None, {}):
        assert not refusal(facts)
        assert not refused(facts)


@pytest.mark.thorough
@pytest.mark.parametrize("caching", CACHING)
def test_prefix_caching_is_turned_off_only_where_nobody_said_anything(caching: str):
    for length, tokens in product(LENGTHS, TOKENS):
        for facts in everywhere(length, tokens, CACHING[caching]):
            said = {argument for argument in facts.arguments if "prefix-caching" in argument}
            if caching == "nothing said":
                assert said == ({"--no-enable-prefix-caching"} if tokens is None and length <= 2048 else set())
            else:
                assert said == {"--enable-prefix-caching" if caching.endswith(" on") else "--no-enable-prefix-caching"}


def of_config(flags: Mapping[str, Any] | None = None, **neuron: Any) -> dict[str, Any]:
    return {"extra_args": {**(flags or {}), "additional-config": {"neuron_config": neuron}}}


BUCKETS = {
    "several lengths in segments": (8192, {"neuron": {"prompt_buckets": [1024, 2048, 4096]}}, "prompt_buckets"),
    "one length in segments": (8192, {"neuron": {"prompt_buckets": [4096]}}, None),
    "whole prompts": (8192, {"neuron": {"prompt_buckets": [4096, 8192]}, "prefix_caching": False}, None),
    "whole prompts of several lengths, cached": (8192, {"neuron": {"prompt_buckets": [2048, 8192]}}, "prompt_buckets"),
    "whole prompts and caching on": (8192, {"neuron": {"prompt_buckets": [8192]}, "prefix_caching": True}, "prompt_buckets"),
    "more tokens than a sequence has": (
        4096,
        {
            "prefix_caching": False,
            "extra_args": {
                "max-num-batched-tokens": 8192,
                "additional-config": {"neuron_config": {"num_batched_tokens_buckets": [2048, 4096]}},
            },
        },
        None,
    ),
    "buckets above the engine's own batch": (
        16384,
        {"extra_args": {"additional-config": {"neuron_config": {"num_batched_tokens_buckets": [8192]}}}},
        "additional-config",
    ),
    "two segments": (
        8192,
        {
            "extra_args": {
                "max-num-batched-tokens": 1024,
                "additional-config": {
                    "neuron_config": {"kv_segment_size_buckets": [512, 1024], "num_batched_tokens_buckets": [512, 1024]}
                },
            }
        },
        "additional-config",
    ),
    "no segments": (8192, of_config(kv_segment_size_buckets=[]), "additional-config"),
    "buckets that fall": (
        4096,
        {"prefix_caching": False, **of_config({"max-num-batched-tokens": 4096}, num_batched_tokens_buckets=[4096, 128, 4096])},
        "additional-config",
    ),
    "batches that fall": (8192, of_config(num_seqs_buckets=[4, 2, 8]), "additional-config"),
    "one segment": (
        2048,
        {
            "prefix_caching": True,
            "extra_args": {
                "max-num-batched-tokens": 1024,
                "additional-config": {"neuron_config": {"kv_segment_size_buckets": [1024]}},
            },
        },
        None,
    ),
}


@pytest.mark.parametrize("name", BUCKETS)
def test_buckets_and_segments(name: str):
    length, keys, at = BUCKETS[name]
    facts = of_vllm(length, **keys)
    assert [judgement.path[-1] for judgement in refused(facts)] == ([at] if at else [])
    assert bool(refusal(facts)) == (at is not None)


@pytest.mark.parametrize(
    ("flags", "length", "holds"),
    [
        ({"performance-mode": "throughput"}, 4096, False),
        ({"performance-mode": "throughput"}, 8192, True),
        ({"enable-chunked-prefill": False}, 4096, False),
        ({"enable-chunked-prefill": False, "enable-prefix-caching": False}, 4096, True),
    ],
)
def test_flags_that_enlarge_the_engine_s_own_batch(flags: dict[str, Any], length: int, holds: bool):
    assert (not refused(of_vllm(length, extra_args=flags))) == holds


def test_the_finding_leads_to_the_key_of_the_role():
    (found,) = refused(servers(prefill={"max_num_batched_tokens": 8192}).prefill.server)
    assert found.path == ("servers", "llama", "prefill", "max_num_batched_tokens")
    assert found.allowed == "512, 1024, 2048, 4096 tokens a step, or no prefix caching"


@pytest.mark.parametrize("model", ["TinyLlama/TinyLlama-1.1B-Chat-v1.0", "Qwen/Qwen3-8B"])
@pytest.mark.parametrize("length", [None, 128, 2048])
def test_open_keys_become_a_server_that_starts(model: str, length: int | None):
    given: dict[str, Any] = {} if length is None else {"max_model_len": length}
    stack = minimal("trn2.48xlarge", model, engine=ENGINE, **given)
    spec = parse_stack(json.dumps(stack))
    assert not [finding for finding in check_spec(spec, "us-east-2").findings if finding.rule.id == "NEU014"]
