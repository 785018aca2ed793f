"""Features of engines: from a key of the server to the engine's flags, what rules refuse, and what memory they take."""

import json
from typing import Any

import pytest

from eks_inference.catalog.engines import engine, engines
from eks_inference.catalog.features import documented, feature_sets
from eks_inference.catalog.instances import instance_type
from eks_inference.catalog.vllm_arguments import vllm_releases
from eks_inference.faults import SpecError
from eks_inference.place.placement import Placement
from eks_inference.rules import Judgement, left_open
from eks_inference.serving.features import EngineFeatures, NeuronTuning, OpenAiFeatures
from eks_inference.serving.flag_values import takes
from eks_inference.serving.flags import flag
from eks_inference.serving.memory import GIB, server_memory
from eks_inference.serving.ray_serve.rules import serving_facts as ray_facts
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec
from eks_inference.serving.rules import any_accelerator
from eks_inference.serving.rules.engine_features import (
    disk_of_a_pod_holds_the_model,
    features_are_documented,
    parsers_are_known,
    what_features_name_is_there,
)
from eks_inference.serving.rules.every_server import server_rules
from eks_inference.serving.rules.neuron import flags_agree
from eks_inference.serving.triton import plan as triton_plan
from eks_inference.serving.triton.rules import serving_facts as triton_facts
from eks_inference.serving.triton.spec import TritonServerSpec
from eks_inference.serving.vllm import plan as vllm_plan
from eks_inference.serving.vllm.facts import serving_facts as vllm_facts
from eks_inference.serving.vllm.spec import VllmServerSpec
from handles import placement
from servers import environment_of
from stackgraph.problems import ProgramError
from variants import recorded_with
from vectors.serving import gpu, trn2

CUDA, INF2, TRN2, TRITON = "cuda-vllm-0.30", "neuron-2.28-vllm-0.13", "neuron-2.32-vllm-0.24", "triton-26.08-vllm-0.27"
SHAPES = {CUDA: "g6e.xlarge", INF2: "inf2.48xlarge", TRN2: "trn2.48xlarge"}
DRAFT = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"


def vllm(name: str, **features: Any) -> VllmServerSpec:
    return VllmServerSpec.model_validate(
        {
            "kind": "vllm",
            "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
            "engine": name,
            "pool": "p",
            "tensor_parallel": 1 if name == CUDA else 8,
            "max_num_seqs": 4,
            "max_model_len": 4000,
            **features,
        }
    )


def triton(**features: Any) -> TritonServerSpec:
    return TritonServerSpec.model_validate(
        {"kind": "triton", "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}, "pool": "p", "devices": 1, **features}
    )


def ray(**features: Any) -> RayServeVllmSpec:
    return RayServeVllmSpec.model_validate(
        {
            "kind": "ray_serve_vllm",
            "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
            "image": "registry.example/vllm-ray:1",
            "head": {"pool": "h"},
            "worker": {"pool": "w", "instance_type": "inf2.48xlarge"},
            "tensor_parallel": 8,
            "max_num_seqs": 4,
            "max_model_len": 4000,
            **features,
        }
    )


def place(name: str) -> Placement:
    return Placement("p", instance_type(name), {})


def flags_of(spec: VllmServerSpec) -> list[str]:
    """Returns the flags that a feature adds or takes away."""
    plain = vllm(spec.engine)
    return [engine_flag for engine_flag in spec.engine_flags if engine_flag not in plain.engine_flags]


def compiled(**settings: Any) -> str:
    return f"--additional-config={json.dumps({'override_neuron_config': settings})}"


def packed(sequences: int) -> str:
    """The settings of an FP8 KV cache of vLLM's plugin."""
    return f"--additional-config={json.dumps({'neuron_config': {'fp8_packed_kv': True, 'num_seqs_buckets': [sequences]}})}"


EAGLE = {"method": "eagle3", "model": DRAFT, "num_speculative_tokens": 3}
SPECULATION = {"method": "eagle3", "draft": DRAFT, "tokens": 3}


@pytest.mark.parametrize(
    ("name", "features", "flags"),
    [
        (CUDA, {"dtype": "bfloat16"}, ["--dtype=bfloat16"]),
        (CUDA, {"dtype": "auto"}, []),
        (CUDA, {"prefix_caching": False}, ["--no-enable-prefix-caching"]),
        (TRN2, {"prefix_caching": True}, ["--enable-prefix-caching"]),
        (
            INF2,
            {"prefix_caching": True},
            # 4000 / 32 = 125 blocks a sequence.
            [
                "--enable-prefix-caching",
                "--block-size=32",
                "--num-gpu-blocks-override=500",
                compiled(is_prefix_caching=True, is_block_kv_layout=True, pa_num_blocks=500, pa_block_size=32),
            ],
        ),
        (CUDA, {"quantized_weights": "fp8"}, ["--quantization=fp8"]),
        # Such checkpoints have an FP8 KV cache too, which has to be packed.
        (TRN2, {"quantized_weights": "fp8"}, ["--block-size=128", packed(4)]),
        (TRN2, {"quantized_kv": "fp8"}, ["--block-size=128", packed(4), "--kv-cache-dtype=fp8"]),
        (
            INF2,
            {"quantized_weights": "int8", "quantized_checkpoint": "/models/int8"},
            [
                compiled(
                    quantized=True,
                    quantization_dtype="int8",
                    quantization_type="per_tensor_symmetric",
                    quantized_checkpoints_path="/models/int8",
                )
            ],
        ),
        (CUDA, {"quantized_kv": "fp8"}, ["--kv-cache-dtype=fp8"]),
        (INF2, {"quantized_kv": "fp8"}, [compiled(kv_cache_quant=True)]),
        (CUDA, {"speculation": SPECULATION}, [f"--speculative-config={json.dumps(EAGLE)}"]),
        (INF2, {"speculation": SPECULATION}, [f"--speculative-config={json.dumps({**EAGLE, 'max_model_len': 4000})}"]),
        (
            CUDA,
            {"speculation": {"method": "ngram", "tokens": 5}},
            ['--speculative-config={"method": "ngram", "num_speculative_tokens": 5}'],
        ),
        (INF2, {"tool_parser": "llama3_json"}, ["--enable-auto-tool-choice", "--tool-call-parser=llama3_json"]),
        (CUDA, {"chat_template": "/chat.jinja"}, ["--chat-template=/chat.jinja"]),
        (
            INF2,
            {"neuron": {"fused_qkv": True, "async_mode": False, "prompt_buckets": [512, 4000], "length_buckets": [4000]}},
            [compiled(fused_qkv=True, async_mode=False, context_encoding_buckets=[512, 4000], token_generation_buckets=[4000])],
        ),
        (
            TRN2,
            {"neuron": {"prompt_buckets": [512, 2048], "batch_buckets": [1, 4]}},
            [
                "--max-num-batched-tokens=2048",
                '--additional-config={"neuron_config": {"num_batched_tokens_buckets": [512, 2048], "num_seqs_buckets": [1, 4]}}',
            ],
        ),
        # A user's settings of the compiler stand beside ours.
        (
            INF2,
            {"quantized_kv": "fp8", "extra_args": {"additional-config.override_neuron_config.k_cache_transposed": True}},
            [compiled(kv_cache_quant=True, k_cache_transposed=True)],
        ),
    ],
)
def test_features_become_the_flags_that_the_engine_documents(name: str, features: dict[str, Any], flags: list[str]) -> None:
    assert flags_of(vllm(name, **features)) == flags


def test_a_feature_replaces_the_profile_s_own_flags() -> None:
    flags = vllm(INF2, prefix_caching=True).engine_flags
    assert "--no-enable-prefix-caching" not in flags
    assert "--num-gpu-blocks-override=4" not in flags
    assert "--num-gpu-blocks-override=504" in vllm(INF2, prefix_caching=True, max_model_len=4001).engine_flags  # 4 of 126 blocks


def test_features_reach_the_pods_of_every_kind() -> None:
    spec = vllm(INF2, quantized_kv="fp8")
    arguments = vllm_plan.arguments(spec, instance_type(SHAPES[INF2]))
    assert flag(arguments, "additional-config") == '{"override_neuron_config": {"kv_cache_quant": true}}'
    assert vllm_plan.environment(spec, placement("inf2.48xlarge"))["XLA_HANDLE_SPECIAL_SCALAR"] == "1"
    environment = environment_of(ray(quantized_kv="fp8", tool_parser="pythonic"))
    assert "--tool-call-parser=pythonic" in json.loads(environment["ENGINE_ARGS"])
    assert environment["XLA_HANDLE_SPECIAL_SCALAR"] == "1"
    settings = triton_plan.engine_settings(
        triton(prefix_caching=False, quantized_weights="fp8", quantized_kv="fp8", dtype="float16"), instance_type("g6e.xlarge")
    )
    assert settings.items() >= {
        "enable_prefix_caching": False, "quantization": "fp8", "kv_cache_dtype": "fp8", "dtype": "float16"
    }.items()  # fmt: skip


@pytest.mark.parametrize(
    "facts",
    [
        vllm_facts(vllm(INF2, quantized_kv="fp8"), place("inf2.48xlarge"), scheduler=True),
        ray_facts(ray(quantized_kv="fp8"), place("inf2.48xlarge"), scheduler=True),
        triton_facts(triton(quantized_kv="fp8"), place("g6e.xlarge")),
    ],
    ids=lambda one: one.kind,
)
def test_rules_see_the_features_of_every_kind(facts: Any) -> None:
    assert facts.features.chosen == {"quantized_kv": "fp8"}


@pytest.mark.parametrize("profile", [one for one in engines().values() if documented(one.name)], ids=lambda one: one.name)
def test_settings_of_features_are_arguments_of_the_release(profile: Any) -> None:
    release = vllm_releases()[profile.vllm]
    values = {
        "block_size": 32,
        "blocks": 4,
        "max_model_len": 64,
        "tokens": 3,
        "largest_prompt": 64,
        "adapters": 2,
        "largest_rank": 16,
    }
    texts = dict.fromkeys(("draft", "quantized_checkpoint", "tool_parser", "chat_template"), "a")
    lists = {key: [64] for key in ("prompt_buckets", "length_buckets", "batch_buckets")}
    for feature, choices in documented(profile.name).items():
        for choice in choices.values():
            for name, value in choice.settings({**values, **texts, **lists}).items():
                argument = release.flags.get(name) if profile.standalone else release.keys.get(name.replace("-", "_"))
                # Triton has no API for chats.
                assert argument or (not profile.standalone and feature in ("tool_parser", "chat_template")), name
                assert argument is None or takes(argument, value, as_flag=profile.standalone), name


def test_every_set_is_of_engines_of_the_catalog_and_every_feature_is_a_key() -> None:
    names = [name for feature_set in feature_sets() for name in feature_set.engines]
    assert sorted(names) == sorted(set(names) & engines().keys())
    for feature_set in feature_sets():
        for feature in feature_set.choices:
            top, _, inner = feature.partition(".")
            assert top in VllmServerSpec.model_fields
            assert not inner or inner in OpenAiFeatures.model_fields[top].annotation.__args__[0].model_fields  # type: ignore[union-attr]


# -- what is refused ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ({"quantized_kv": "fp8", "extra_args": {"kv-cache-dtype": "auto"}}, "kv-cache-dtype: keys of the server set this too"),
        ({"prefix_caching": True, "extra_args": {"no-enable-prefix-caching": True}}, "enable-prefix-caching"),
        (
            {
                "neuron": {"fused_qkv": True},
                "engine": INF2,
                "extra_args": {"additional-config.override_neuron_config.fused_qkv": 0},
            },
            "additional-config.override_neuron_config.fused_qkv",
        ),
        ({"neuron": {"fused_qkv": True}, "engine": INF2, "extra_args": {"additional-config": "{}"}}, "additional-config"),
        ({"speculation": {"method": "ngram", "tokens": 3, "draft": "a/b"}}, "ngram has no draft"),
        ({"speculation": {"method": "eagle", "tokens": 3}}, "eagle needs one"),
        ({"neuron": {"prompt_buckets": [2, 1]}}, "in rising order"),
        ({"neuron": {"prompt_buckets": [2, 2]}}, "each once"),
        ({"neuron": {"length_buckets": [0, 1]}}, "greater than or equal to 1"),
        ({"neuron": {"batch_buckets": []}}, "1 or more"),
        ({"chat_template": "templates/chat.jinja"}, "neither the absolute path of a file nor Jinja"),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_read(features: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        vllm(**{"name": features.pop("engine", CUDA), **features})


def broken(spec: VllmServerSpec) -> list[Judgement]:
    facts = vllm_facts(spec, place(SHAPES[spec.engine]), scheduler=True)
    return [judgement for judgement in features_are_documented.judge(facts) if not judgement.holds]


@pytest.mark.parametrize(
    ("name", "features", "key", "allowed", "fix"),
    [
        (TRN2, {"speculation": {"method": "ngram", "tokens": 3}}, "speculation", "eagle3", f"{CUDA}, cuda-vllm-0.33, {TRITON}"),
        (TRN2, {"neuron": {"fused_qkv": True}}, "neuron.fused_qkv", "nothing", INF2),
        (INF2, {"neuron": {"batch_buckets": [4]}}, "neuron.batch_buckets", "nothing", TRN2),
        (INF2, {"quantized_weights": "fp8"}, "quantized_weights", "int8", TRN2),
        (INF2, {"quantized_weights": "int8"}, "quantized_checkpoint", "", "give quantized_checkpoint"),
        (CUDA, {"quantized_weights": "int8"}, "quantized_weights", "fp8", INF2),
    ],
)
def test_a_feature_without_documents_is_refused(name: str, features: dict[str, Any], key: str, allowed: str, fix: str) -> None:
    (judgement,) = broken(vllm(name, **features))
    assert ".".join(map(str, judgement.path)) == key
    assert judgement.allowed == allowed
    assert fix in judgement.fix


@pytest.mark.parametrize(
    ("name", "tuning", "key"),
    [(INF2, {"length_buckets": [2048]}, "length_buckets"), (TRN2, {"batch_buckets": [2]}, "batch_buckets")],
)
def test_buckets_that_end_too_early_are_refused_at_their_key(name: str, tuning: dict[str, Any], key: str) -> None:
    facts = vllm_facts(vllm(name, neuron=tuning), place(SHAPES[name]), scheduler=True)
    (judgement,) = (judgement for judgement in flags_agree.judge(facts) if not judgement.holds)
    assert judgement.path == ("neuron", key)


def test_a_feature_of_some_architectures_is_refused_for_others() -> None:
    """On Trn2 only Llama keeps its KV cache in fp8; other models ignore the setting."""
    for id_, holds in (("meta-llama/Llama-3.1-8B-Instruct", True), ("Qwen/Qwen3-32B", False), ("openai/gpt-oss-20b", False)):
        facts = vllm_facts(vllm(TRN2, model={"id": id_}, quantized_kv="fp8"), place(SHAPES[TRN2]), scheduler=True)
        assert all(judgement.holds for judgement in features_are_documented.judge(facts)) == holds


def test_a_parser_of_a_plugin_is_left_open() -> None:
    facts = vllm_facts(
        vllm(CUDA, tool_parser="ours", extra_args={"tool-parser-plugin": "/x.py"}), place("g6e.xlarge"), scheduler=False
    )
    (judgement,) = parsers_are_known.judge(facts)
    assert judgement.unjudged
    assert judgement.path == ("tool_parser",)


# -- memory ---------------------------------------------------------------------------------------------------------------------


def use(name: str, **features: Any) -> Any:
    return server_memory(vllm_facts(vllm(name, **features), place(SHAPES[name]), scheduler=True))


@pytest.mark.parametrize(("name", "features"), [(CUDA, {}), (TRN2, {}), (INF2, {"quantized_checkpoint": "/int8"})])
def test_quantized_weights_take_a_byte_but_embedding_and_output_layer(name: str, features: dict[str, Any]) -> None:
    quantized = use(name, quantized_weights="int8" if features else "fp8", **features)
    embeddings = 2 * 128256 * 4096
    wanted = embeddings * 2 + (quantized.model.parameters - embeddings)
    beside = 2 * 128 * 131072 + 65 * 4096 if quantized.held else 0  # tables of positions; norms stay in two bytes
    assert quantized.weights == -(-(wanted + beside) // quantized.parts)
    assert "(1.05 billion x 2 bytes + 6.98 billion x 1 bytes)" in quantized.working[0]


@pytest.mark.parametrize("name", [CUDA, TRN2, INF2])
def test_a_quantized_cache_takes_half(name: str) -> None:
    assert use(name, quantized_kv="fp8").kv * 2 == use(name).kv


def test_a_draft_takes_weights_and_a_cache_of_its_own() -> None:
    plain = use(CUDA)
    sized = use(CUDA, speculation={**SPECULATION, "draft_gib": 1.5})
    assert sized.weights - plain.weights == int(1.5 * GIB)
    assert sized.kv == plain.kv
    small = use(CUDA, speculation={"method": "draft_model", "draft": "meta-llama/Llama-3.2-1B", "tokens": 3})
    assert small.weights - plain.weights == small.settings.draft.weight_bytes()
    assert small.kv_token - plain.kv_token == small.settings.draft.kv_bytes_per_token()
    assert "Llama-3.2-1B" in small.working[1]
    assert use(CUDA, speculation={"method": "ngram", "tokens": 3}).needed == plain.needed


@pytest.mark.parametrize(
    ("speculation", "open_"),
    [(SPECULATION, True), ({**SPECULATION, "draft_gib": 1}, False), ({"method": "ngram", "tokens": 3}, False)],
)
def test_a_draft_of_unknown_size_leaves_the_memory_open(speculation: dict[str, Any], open_: bool) -> None:
    facts = vllm_facts(vllm(CUDA, speculation=speculation), place("g6e.xlarge"), scheduler=False)
    assert any(judgement.unjudged and judgement.path == ("speculation",) for judgement in any_accelerator.memory(facts)) is open_


def test_features_of_the_shipped_engines_break_no_other_rule() -> None:
    for name in SHAPES:
        features: dict[str, Any] = {"prefix_caching": True, "quantized_kv": "fp8", "tool_parser": "llama3_json"}
        facts = vllm_facts(vllm(name, devices=1 if name == CUDA else 4, **features), place(SHAPES[name]), scheduler=True)
        errors = [
            judgement.message
            for rule in server_rules()
            for judgement in rule.judge(facts)
            if not judgement.holds and (judgement.severity or rule.severity) == "error"
        ]
        assert errors == []


def test_an_engine_without_documents_has_no_features() -> None:
    assert EngineFeatures(quantized_kv="fp8").feature_settings("neuron-2.18-vllm-0.3", max_model_len=1, max_num_seqs=1) == {}
    assert engine("neuron-2.18-vllm-0.3").retired


@pytest.mark.parametrize(
    ("features", "of"),
    [
        ({"chat_template": "/templates/mine.jinja"}, "chat_template"),
        ({"quantized_checkpoint": "/weights/int8"}, "quantized_checkpoint"),
        ({"speculation": {"method": "draft_model", "tokens": 3, "draft": "x/y", "draft_gib": 1}}, "x/y"),
    ],
)
def test_what_only_vllm_can_find_is_left_open(features: Any, of: str) -> None:
    facts = gpu(features=OpenAiFeatures.model_validate(features))
    assert [not_judged.of for not_judged in left_open(what_features_name_is_there.judge(facts))] == [of]


def test_weights_that_nobody_converts_have_to_be_published_so() -> None:
    facts = trn2(engine=engine("neuron-2.32-vllm-0.24"), features=OpenAiFeatures(quantized_weights="fp8"))
    assert any("does not convert it" in one.message for one in features_are_documented.judge(facts) if not one.holds)


def test_a_bucket_is_a_graph_to_compile() -> None:
    with pytest.raises(SpecError, match="65 buckets are 65 graphs to compile"):
        NeuronTuning(prompt_buckets=tuple(range(1, 66)))
    assert NeuronTuning(prompt_buckets=tuple(range(1, 65))).prompt_buckets


def test_a_draft_of_the_catalog_has_its_size_there() -> None:
    small = {"method": "draft_model", "tokens": 3, "draft": "NousResearch/Llama-2-13b-chat-hf", "draft_gib": 0.01}
    use = server_memory(gpu(features=OpenAiFeatures.model_validate({"speculation": small})))
    assert use is not None
    assert use.settings.draft_bytes > 20 * 2**30


def test_a_gated_draft_asks_for_the_token() -> None:
    draft = {"method": "draft_model", "tokens": 3, "draft": "meta-llama/Llama-3.2-1B-Instruct"}
    server = {"model": {"id": "NousResearch/Meta-Llama-3-8B-Instruct"}, "dtype": None, "speculation": draft}
    with pytest.raises(ProgramError, match=r"draft meta-llama/Llama-3\.2-1B-Instruct of server 'llama2-a' is not public"):
        recorded_with({"servers": {"llama2-a": {key: value for key, value in server.items() if value}}}, "inf2-llama2")


@pytest.mark.parametrize(("snapshot", "left"), [(True, ["facebook/opt-350m"]), (False, [])])
def test_weights_in_other_files_are_left_open_where_safetensors_are_wanted(snapshot: bool, left: list[str]) -> None:
    assert [not_judged.of for not_judged in left_open(disk_of_a_pod_holds_the_model.judge(gpu(snapshot=snapshot)))] == left


def test_a_parser_that_nothing_uses_refuses_nothing() -> None:
    (found,) = parsers_are_known.judge(gpu(arguments=("--tool-call-parser=hermess",)))
    assert (found.holds, found.severity) == (False, "warning")
    assert "nothing uses it" in found.message
