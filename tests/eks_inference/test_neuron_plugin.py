"""Servers on vLLM's plugin for Neuron: what they get to start, and that rules refuse what the plugin refuses."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import thorough_but
from conftest import PROJECT, STACKS, recorded
from eks_inference.catalog.engines import engine
from eks_inference.catalog.models import model, models
from eks_inference.catalog.quantization import Quantization
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.memory import server_memory
from eks_inference.serving.rules.every_server import server_rules
from eks_inference.serving.rules.neuron_plugin import fp8_caches_are_read, settings_are_read, workers_find_their_interface
from eks_inference.stack.facts import stack_facts
from eks_inference.stack.reading import parse_stack
from eks_inference_tools.cost.price_book import PriceBook
from eks_inference_tools.fitting.search import Wish, search
from eks_inference_tools.fitting.stack_file import Order, stack_file
from neuron_plugin import neuron_config, refusal
from neuron_servers import ENGINE, of_ray, of_vllm
from stackgraph.recorder.bounded_yaml import compose
from vectors.nixl import pool, servers

SKIP = "NEURON_SKIP_EFA_AFFINITY"


def of_pair(**keys: Any) -> ServingFacts:
    return servers(**keys).decode.server


@pytest.mark.parametrize(
    ("facts", "skips"),
    [
        (lambda: of_vllm(), True),
        (lambda: of_vllm(on="trn2.3xlarge", tensor_parallel=4), True),
        (lambda: of_ray(), True),
        (lambda: of_pair(), False),
        (lambda: servers().prefill.server, False),
        (lambda: of_pair(serving="baseline"), True),
        (lambda: of_pair(on=pool(instance_types=["trn2u.48xlarge"])), True),
    ],
)
def test_workers_look_for_efa_only_where_it_is(facts, skips: bool):
    found = facts()
    assert found.environment.get(SKIP) == ("1" if skips else None)
    assert not refusal(found)
    assert all(judgement.holds for judgement in workers_find_their_interface.judge(found))


@pytest.mark.parametrize("given", ["0", "1", "yes"])
@pytest.mark.parametrize("make", [of_vllm, of_ray, of_pair])
def test_a_users_own_value_wins(make, given: str):
    found = make(extra_env={SKIP: given})
    (judged,) = workers_find_their_interface.judge(found)
    assert found.environment[SKIP] == given
    assert judged.holds == (not refusal(found)) == (make is of_pair or given != "0")


@pytest.mark.parametrize("make", [of_vllm, of_ray, of_pair])
def test_the_engine_waits_as_long_as_the_budget_says(make):
    found, startup = make().environment, engine(ENGINE).startup
    assert found["VLLM_NEURON_COMPILATION_TIMEOUT"] == found["NEURON_LIBTORCH_COMPILATION_TIMEOUT"] == str(startup.compile_s)
    assert found["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] == str(startup.load_s)
    assert int(found["VLLM_ENGINE_READY_TIMEOUT_S"]) >= startup.engine_s
    assert make(extra_env={"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "7"}).environment["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] == "7"


def test_other_engines_get_none_of_it():
    found = of_vllm(2048, on="inf2.8xlarge", engine="neuron-2.28-vllm-0.13", tensor_parallel=2).environment
    assert not {SKIP, "VLLM_NEURON_COMPILATION_TIMEOUT", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"} & {*found}


def test_models_get_what_the_recipe_for_their_size_sets():
    large = of_vllm(model={"id": "unsloth/Llama-3.3-70B-Instruct"})
    assert "--optimization-level=2" in large.arguments
    assert neuron_config(large.arguments) == {"num_seqs_buckets": [8]}
    assert not [one for one in of_vllm().arguments if one.startswith(("--optimization-level", "--additional-config"))]
    own = {"optimization-level": 1, "additional-config.neuron_config.num_seqs_buckets": [2, 8]}
    found = of_vllm(model={"id": "unsloth/Llama-3.3-70B-Instruct"}, extra_args=own).arguments
    assert [one for one in found if one.startswith("--optimization-level")] == ["--optimization-level=1"]
    assert neuron_config(found) == {"num_seqs_buckets": [2, 8]}


# -- whatever can run starts ----------------------------------------------------------------------------------------------------

LLAMA, QWEN, GPT_OSS = "unsloth/Llama-3.3-70B-Instruct", "Qwen/Qwen3-32B", "openai/gpt-oss-20b"
CHECKPOINTS = ("awq", "gptq", "fp8", "modelopt", "bitsandbytes")
LARGE: dict[str, Any] = {"tensor_parallel": 16, "disk_gib": 300}
"""Keys with which the largest of them fits."""

OF_THE_START = {"NEU014", "NEU027", "NEU029", "NEU030", "NEU031"}
"""Rules whose errors are refusals of the plugin."""


def said(facts: ServingFacts) -> tuple[set[str], set[str]]:
    """Returns the rules that refuse a server, and those that cannot judge it."""
    refused, open_ = set[str](), set[str]()
    for server_rule in server_rules():
        for judged in server_rule.judge(facts) if isinstance(facts, server_rule.subject) else ():
            if judged.unjudged:
                open_.add(server_rule.id)
            elif not judged.holds and (judged.severity or server_rule.severity) == "error":
                refused.add(server_rule.id)
    return refused, open_


def of_plugin(facts: ServingFacts) -> bool:
    return facts.engine.generation is engine(ENGINE).generation


@pytest.mark.parametrize("stack", STACKS)
def test_shipped_servers_start(stack: str):
    spec, region = parse_stack(PROJECT.config(PROJECT.stack_file(stack)).values["eks-inference:stack"]), "us-east-2"
    found = [one for one in stack_facts(spec, region) if isinstance(one, ServingFacts) and of_plugin(one)]
    assert [refusal(serving_facts) for serving_facts in found] == [""] * len(found)
    assert bool(found) == (stack == "trn2-nixl")


@pytest.mark.thorough
def test_the_graph_has_the_settings_that_are_judged():
    """What ``refusal`` sees of a shipped stack is what its pods get."""
    spec = parse_stack(PROJECT.config(PROJECT.stack_file("trn2-nixl")).values["eks-inference:stack"])
    judged = {one.part: one for one in stack_facts(spec, "us-east-2") if isinstance(one, ServingFacts)}
    pods = [one.inputs["spec"]["template"]["spec"] for one in recorded("trn2-nixl").resources if one.type.endswith(":Deployment")]
    engines = [pod["containers"][0] for pod in pods if pod["containers"][0]["name"] == "vllm"]
    assert len(engines) == len(judged) == 2
    for container in engines:
        facts = judged[container["ports"][0]["name"]]
        assert container["args"] == [*facts.arguments]
        assert {one["name"]: one.get("value") for one in container["env"]}.items() >= facts.environment.items()


def written(name: str) -> Iterator[ServingFacts]:
    """The servers that ``new`` would write for a model, in every way that `plan` lists."""
    wish = Wish({"id": model(name).repositories[0]}, model(name), "us-east-2", 4096, families=("trn2",), engine=ENGINE)
    for row in search(wish, PriceBook()).rows:
        text = stack_file(Order("mine", row, row.trial.source))
        spec = parse_stack(json.dumps(compose(text).plain()["config"]["eks-inference:stack"]))
        yield from (stack_fact for stack_fact in stack_facts(spec, "us-east-2") if isinstance(stack_fact, ServingFacts))


SERVED = [one.name for one in models().values() if one.architecture in engine(ENGINE).architectures]


SMALL = ("Llama-3.1-8B", "GPT-OSS-20B")


@pytest.mark.parametrize("name", thorough_but(SMALL, SERVED))
def test_what_new_writes_starts(name: str):
    found = list(written(name))
    assert all(of_plugin(serving_facts) for serving_facts in found)
    assert {refusal(serving_facts) for serving_facts in found} <= {""}


@st.composite
def drawn(draw: st.DrawFn) -> ServingFacts:
    """A server of any kind with settings of every part that the plugin checks."""
    lists = st.sampled_from([[1], [4], [8], [1, 8], [2, 4, 8], [512], [2048], [4096], [1024, 2048], [512, 1024], [], [8, 4]])
    config: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "num_seqs_buckets": lists,
                "num_batched_tokens_buckets": lists,
                "kv_segment_size_buckets": lists,
                "decode_context_length_buckets": st.sampled_from([[1024], [1000], [128, 8192]]),
                "fp8_packed_kv": st.booleans(),
                "ep_degree": st.sampled_from([0, 1, 2]),
                "mlp_dp_size": st.sampled_from([1, 2]),
                "enable_structured_outputs": st.sampled_from([True, "yes"]),
                "on_device_sampling_config": st.sampled_from([None, {"all_greedy": True}]),
                "quantization": st.sampled_from(["bf16", "mxfp4"]),
            },
        )
    )
    few = {key: config[key] for key in draw(st.permutations(sorted(config)))[: draw(st.integers(0, 2))]}
    flags: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "max-num-batched-tokens": st.sampled_from([512, 1000, 2048, 8192, 16384]),
                "enable-prefix-caching": st.booleans(),
                "kv-cache-dtype": st.sampled_from(["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"]),
                "block-size": st.sampled_from([32, 128]),
                "async-scheduling": st.booleans(),
                "enable-expert-parallel": st.just(True),
            },
        )
    )
    flags = {key: flags[key] for key in draw(st.permutations(sorted(flags)))[: draw(st.integers(0, 3))]}
    keys: dict[str, Any] = {"model": {"id": draw(st.sampled_from([LLAMA, QWEN, GPT_OSS]))}}
    keys["extra_args"] = {**flags, **({"additional-config": {"neuron_config": few}} if few else {})}
    if draw(st.booleans()):
        keys["extra_env"] = {SKIP: draw(st.sampled_from(["0", "1"]))}
    if "kv-cache-dtype" not in flags and draw(st.booleans()):
        keys["quantized_kv"] = "fp8"
    length = draw(st.sampled_from([1024, 2048, 4096, 8192, 16384, 32768]))
    match draw(st.sampled_from(["vllm", "ray", "pair"])):
        case "vllm":
            facts = of_vllm(length, **LARGE, **keys)
        case "ray":
            facts = of_ray(length, tensor_parallel=16, **keys)
        case _:
            pair = servers(max_model_len=length, **keys)
            facts = draw(st.sampled_from([pair.prefill.server, pair.decode.server]))
    if facts.model and draw(st.booleans()) and facts.model.architecture == "llama":
        quantized = replace(facts.model, quantization=Quantization(draw(st.sampled_from(CHECKPOINTS)), 8))
        facts = replace(facts, model=quantized)
    return facts


@given(drawn())
def test_what_can_run_starts_and_what_is_refused_does_not(facts: ServingFacts):
    refused, open_ = said(facts)
    ends = refusal(facts)
    if not refused and not open_:
        assert not ends, facts.arguments
    if refused & OF_THE_START:
        assert ends, (refused, facts.arguments)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, ""),
        ({"quantized_kv": "fp8"}, ""),
        ({"quantized_kv": "fp8", "extra_args": {"additional-config.neuron_config.fp8_packed_kv": False}}, "requires a packed KV"),
        ({"extra_args": {"kv-cache-dtype": "fp8_e5m2"}}, "Unsupported kv_cache_dtype"),
        ({"extra_args": {"additional-config.neuron_config.ep_degree": 2}}, "--enable-expert-parallel"),
        ({"extra_args": {"additional-config.neuron_config.lm_head_dp_size": 2}}, "Component DP"),
        ({"extra_args": {"additional-config.neuron_config.quantization": "mxfp4"}}, "not supported on TRN2"),
        ({"extra_args": {"additional-config.neuron_config.num_seqs_buckets": [4]}}, "must equal max_num_seqs"),
    ],
)
def test_rules_refuse_in_the_plugin_s_place(keys: dict[str, Any], words: str):
    facts = of_vllm(model={"id": LLAMA}, **LARGE, **keys)
    assert words in refusal(facts)
    assert bool(refusal(facts)) == bool(words) == bool(said(facts)[0] & OF_THE_START)


def test_settings_as_text_stand_beside_ours():
    text = {"additional-config": '{"neuron_config": {"max_logprobs": 5}}'}
    facts = of_vllm(model={"id": LLAMA}, **LARGE, quantized_kv="fp8", extra_args=text)
    assert neuron_config(facts.arguments).items() >= {"fp8_packed_kv": True, "num_seqs_buckets": [8], "max_logprobs": 5}.items()


def test_only_architectures_that_pack_their_cache_are_told_to():
    facts = of_vllm(model={"id": "Qwen/Qwen3-8B"}, **LARGE, extra_args={"kv-cache-dtype": "fp8"})
    assert "fp8_packed_kv" not in neuron_config(facts.arguments)
    assert "--block-size=128" not in facts.arguments


@pytest.mark.parametrize("method", CHECKPOINTS)
def test_quantized_checkpoints(method: str):
    facts = of_vllm(model={"id": LLAMA}, **LARGE)
    assert facts.model is not None
    quantized = replace(facts, model=replace(facts.model, quantization=Quantization(method, 8)))
    assert ("NEU030" in said(quantized)[0]) == (method != "modelopt")
    assert refusal(quantized)


SHAPE = {"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8}
SHAPE |= {"intermediate_size": 28672, "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
SHAPE |= {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}


@pytest.mark.parametrize("source", [{"id": "nvidia/Llama-3.3-70B-Instruct-FP8"}, {"id": "me/mine", "shape": SHAPE}])
def test_a_static_fp8_checkpoint_is_packed_without_a_word(source: dict[str, Any]):
    facts = of_vllm(16384, model=source, **LARGE)
    assert refusal(facts) == ""
    assert not said(facts)[0]
    assert neuron_config(facts.arguments) == {"fp8_packed_kv": True, "num_seqs_buckets": [8]}
    assert "--block-size=128" in facts.arguments
    memory = server_memory(facts)
    assert memory is not None
    assert memory.settings.kv_bytes == 1


@pytest.mark.parametrize(
    ("settings", "block", "changes", "expected"),
    [
        ({}, 128, {}, []),
        ({}, 64, {}, ["its blocks"]),
        ({"num_seqs_buckets": [4, 7]}, 128, {}, ["batches of [4, 7]"]),
        ({"num_seqs_buckets": 8}, 127, {}, ["its blocks", "batches of 8"]),
        ({"max_lgprobs": 5}, 128, {}, ["neuron_config.max_lgprobs"]),
        ({}, 128, {"model": None, "model_id": "a/b"}, ["a/b"]),
    ],
)
def test_what_no_source_says_of_an_fp8_cache_is_not_judged(settings: Any, block: int, changes: Any, expected: list[str]):
    facts = replace(of_vllm(16384, model={"id": LLAMA}, **LARGE, extra_args={"kv-cache-dtype": "fp8"}), **changes)
    own = tuple(one for one in facts.arguments if not one.startswith(("--additional-config", "--block-size")))
    config = json.dumps({"neuron_config": {"fp8_packed_kv": True, "num_seqs_buckets": [8], **settings}})
    facts = replace(facts, arguments=(*own, f"--additional-config={config}", f"--block-size={block}"))
    judged = [one for rule in (settings_are_read, fp8_caches_are_read) for one in rule.judge(facts)]
    assert [one.unjudged.of for one in judged if one.unjudged] == expected
