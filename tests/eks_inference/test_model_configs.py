"""Shapes read from config.json: counts against published ones, and what a file from anywhere may hold."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.config_json import NoFormulaError, keys_read, model_of_config, parse, shape_keys
from eks_inference.catalog.models import Model, find_model, model, models, quantized_from
from eks_inference.catalog.quantization import Quantization, quantization
from eks_inference.faults import SpecError
from eks_inference.serving.split import Parallel, Widths, held
from eks_inference_tools.cli import main
from golden import assert_golden
from known_models import EVIDENCE, FOLDER, SERVED, config_of, counted, document

PUBLISHED = [name for name, row in EVIDENCE.items() if "published" in row]
KIB = 1024


LLAMA = config_of("Llama-3.2-3B")


def faults(config: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        model_of_config("theirs", config)
    return {str(fault.path[0]): f"{fault.message}; {fault.given}; {fault.allowed}" for fault in caught.value.faults}


def outcome(name: str, config: dict[str, Any]) -> Model | SpecError:
    try:
        return model_of_config(name, config)
    except SpecError as error:
        return error


# ---------------------------------------------------------------------------------------------------------- evidence


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_count_is_the_published_one(name: str):
    """Within 1 %, or within the last digit where the published count is shorter than that."""
    row, (_, computed) = EVIDENCE[name], counted(name)
    assert row["published_by"]
    if digit := row.get("last_digit"):
        assert abs(computed - row["published"]) <= digit / 2
    else:
        assert computed == pytest.approx(row["published"], rel=0.01)


def test_what_was_set_aside_is_what_was_chosen_first():
    chosen = (FOLDER / "set_aside.txt").read_text("utf-8").split("\n\n")[1].splitlines()
    assert {name for name, row in EVIDENCE.items() if row.get("set_aside")} == set(chosen)
    assert len(chosen) == 12


@pytest.mark.parametrize("name", [name for name, row in EVIDENCE.items() if row.get("set_aside")])
def test_the_result_of_what_was_set_aside_is_that_of_the_formulas(name: str):
    """No formula was changed afterwards to fit them."""
    told = (FOLDER / "set_aside.txt").read_text("utf-8").partition("as it was")[2]
    (line,) = (line for line in told.splitlines() if line.startswith(f"{name} "))
    percent = float(line.split()[1])
    published = EVIDENCE[name].get("trial", EVIDENCE[name]["published"])
    assert (model_of_config(name, config_of(name)).parameters / published - 1) * 100 == pytest.approx(percent, abs=0.006)


def test_the_page():
    assert_golden("../../docs/known-models.md", document())


@pytest.mark.parametrize("name", [one for one in SERVED["models"] if not find_model(one)])
def test_a_name_that_is_not_known_leads_to_every_way_out(name: str, capsys: pytest.CaptureFixture[str]):
    assert main(["plan", "--model", name, "--instance", "p5.48xlarge"]) == 2
    said = capsys.readouterr().err
    assert not [way for way in ("--hub", "--config", "--catalog") if way not in said]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("Qwen/Qwen3-32B-AWQ", "Qwen/Qwen3-32B"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "Qwen/Qwen2.5-7B-Instruct"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "meta-llama/Llama-3.3-70B-Instruct"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "meta-llama/Meta-Llama-3.1-8B-Instruct"),
        ("unsloth/Llama-3.1-8B-Instruct-bnb-4bit", "meta-llama/Llama-3.1-8B-Instruct"),
        ("Qwen/Qwen3.5-9B-FP8", ""),
        ("ours/Qwen3-32B", ""),
        ("ours/Qwen3-32B-FP8000", ""),
    ],
)
def test_a_quantization_is_known_by_the_name_of_its_model(name: str, plain: str):
    assert quantized_from(name) == plain


def test_every_file_has_its_row_and_every_row_its_origin():
    assert {path.stem for path in FOLDER.glob("*.json")} == {name for name, row in EVIDENCE.items() if "config" not in row}
    assert all(row["repository"] and row["commit"] and row["path"] for row in EVIDENCE.values())


@pytest.mark.parametrize("name", sorted(set(EVIDENCE) & set(models())))
def test_a_row_of_the_catalog_is_what_its_config_says(name: str):
    row, read = model(name), model_of_config(name, config_of(name))
    assert row.parameters == read.parameters
    assert row.kv_bytes(50_000, 8, 2, 8192) == read.kv_bytes(50_000, 8, 2, 8192)
    assert (row.architecture, row.heads, row.tower) == (read.architecture, read.heads, read.tower)


def test_thirty_models_have_a_row():
    assert len(models()) >= 30
    assert all(one.architecture in architectures() for one in models().values())


# ------------------------------------------------------------------------------------------------- KV cache and weights


@pytest.mark.parametrize(
    ("name", "kib"),
    [
        ("Llama-3.2-3B", 2 * 28 * 8 * 128 * 2 / KIB),
        ("DeepSeek-V3", 61 * (512 + 64) * 2 / KIB),
        ("GPT-OSS-120B", 2 * 36 * 8 * 64 * 2 / KIB),
        ("GLM-4-9B", 2 * 40 * 2 * 128 * 2 / KIB),
    ],
)
def test_a_token_takes_what_its_attention_keeps(name: str, kib: float):
    one = model_of_config(name, config_of(name))
    assert one.kv_bytes_per_token() == kib * KIB
    assert one.kv_bytes_per_token(bytes_per_element=1) * 2 == one.kv_bytes_per_token()


def test_every_core_holds_the_latent_vector():
    deepseek = model_of_config("d", config_of("DeepSeek-V3"))
    assert deepseek.kv_bytes_per_token(8) == 8 * deepseek.kv_bytes_per_token()


def test_layers_with_a_window_hold_the_window_and_a_step():
    """vLLM 0.30.0 itself counts 2300.9 MiB for 131072 tokens on each of 8 H100: 52 layers are six groups of 10."""
    gemma = model_of_config("g", config_of("Gemma-3-27B"))
    assert (gemma.window, gemma.window_layers) == (1024, 52)
    layer = 2 * 16 * 128 * 2
    assert gemma.kv_bytes(100_000) == 62 * layer * 100_000
    assert gemma.kv_bytes(100_000, beyond=8192) == layer * (10 * 100_000 + 60 * (1024 + 8192))
    assert gemma.kv_bytes(131072, 8, beyond=16384) / 8 / 2**20 == pytest.approx(2300, abs=1)
    assert gemma.kv_bytes(5_000, beyond=8192) == layer * 70 * 5_000
    assert replace(gemma, window_layers=28).group == 34  # no two groups of 28
    assert replace(gemma, window_layers=62).kv_bytes(5_000, beyond=8192) == gemma.kv_bytes(5_000)


@pytest.mark.parametrize(
    ("changes", "window", "layers"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, 4096, 28),
        ({"model_type": "mistral", "sliding_window": None}, 0, 0),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 20}, 0, 0),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 20}, 4096, 8),
        ({"model_type": "gemma2", "sliding_window": 4096}, 4096, 14),
        (
            {"model_type": "gpt_oss", "sliding_window": 128, "num_local_experts": 4, "layer_types": ["sliding_attention"] * 3},
            128,
            3,
        ),
    ],
)
def test_which_layers_have_the_window(changes: dict[str, Any], window: int, layers: int):
    one = model_of_config("m", LLAMA | changes)
    assert (one.window, one.window_layers) == (window, layers)


def test_of_gpt_oss_only_experts_are_quantized():
    one = model_of_config("s", config_of("GPT-OSS-120B"))
    of_experts = 36 * 128 * (3 * 2880 * 2880 + 2 * 2880 + 2880)
    assert one.expert_weights == of_experts
    assert one.weight_bytes() == (one.parameters - of_experts) * 2 + of_experts * 17 // 32


@pytest.mark.parametrize(
    ("said", "bits", "experts_only"),
    [
        ({"quant_method": "fp8"}, Fraction(8), False),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + Fraction(32, 128 * 128), False),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + Fraction(20, 128), False),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, Fraction(8), False),
        ({"quant_method": "mxfp4"}, 4 + Fraction(8, 32), True),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, Fraction(8), False),
        ({"quant_method": "int8"}, Fraction(8), False),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4, "group_size": 128}}}},
            4 + Fraction(16, 128),
            False,
        ),
    ],
)
def test_a_quantized_weight_takes_its_bits_and_a_part_of_the_scale(said: dict[str, Any], bits: Fraction, experts_only: bool):
    found = quantization(said)
    assert found is not None
    assert (found.bits_per_weight, found.experts_only) == (bits, experts_only)


NVFP4 = {"quant_algo": "NVFP4", "group_size": 16}
_OF_LAYERS = ("model.layers.0.self_attn*", "model.layers.0.self_attn.q_a_proj", "re:.*self_attn.*", "model.layers.*.self_attn")


@pytest.mark.parametrize(
    ("said", "method", "kept"),
    [
        ({"quant_method": "modelopt", **NVFP4, "ignore": ["lm_head"]}, "modelopt_fp4", "nothing"),
        ({"producer": {"name": "modelopt"}, "quantization": NVFP4}, "modelopt_fp4", "nothing"),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, "modelopt", "nothing"),
        *(({"quantization": {**NVFP4, "exclude_modules": ["lm_head", one]}}, "modelopt_fp4", "attention") for one in _OF_LAYERS),
        ({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.self_attn.kv_a_layernorm"]}, "fp8", "nothing"),
        ({"quant_method": "fp8", "ignore": ["model.vision_tower.layers.0.self_attn.q_proj"]}, "fp8", "nothing"),
        ({"quant_method": "fp8", "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*"]}, "fp8", "all but experts"),
    ],
)
def test_what_a_checkpoint_leaves_as_it_is_keeps_its_size(said: dict[str, Any], method: str, kept: str):
    """Names and patterns as in the checkpoints of nvidia, moonshotai and zai-org."""
    one = model_of_config("m", config_of("Qwen3-235B-A22B") | {"quantization_config": said})
    assert one.quantization
    attention = 94 * 2 * (64 + 4) * 128 * 4096
    plain = {"nothing": 0, "attention": attention, "all but experts": one.parameters - one.embeddings - one.expert_weights}[kept]
    assert (one.quantization.method, one.parameters - one.embeddings - one.quantized) == (method, plain)
    assert one.weight_bytes() == (one.embeddings + plain) * 2 + one.quantization.size(one.quantized)
    stages = held(one, Parallel(tensor=4), Widths(plain=2)) or ()
    on_all = 4 * sum(stage.experts + stage.divided + stage.whole for stage in stages)
    assert on_all == pytest.approx(one.weight_bytes(), rel=0.01)
    assert held(replace(one, architecture="unheard-of"), Parallel(tensor=4), Widths(plain=2)) is None


def test_what_nobody_quantizes_is_not_left_out_by_a_checkpoint():
    names = [
        "self_attn.indexers_proj",
        "self_attn.indexer.k_norm.bias",
        "mlp.gate.e_score_correction_bias",
        "eh_proj",
    ]  # GLM-5-FP8
    block = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": names}
    assert quantization(block) == Quantization("fp8", 8, 16384, 32)


def test_a_quantized_checkpoint_keeps_embedding_and_output_layer():
    plain, awq = (
        model_of_config("m", LLAMA | extra)
        for extra in ({}, {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}})
    )
    converted = plain.parameters - plain.embeddings
    assert awq.weight_bytes() == plain.embeddings * 2 + Quantization("awq", 4, 128, 20).size(converted)
    assert awq.weight_bytes(quantized_bytes=1) == awq.weight_bytes()


# ------------------------------------------------------------------------------------------------------- files of others


def test_an_architecture_without_a_formula_is_not_guessed():
    with pytest.raises(NoFormulaError, match=r"model_type: this architecture has no formula here.*qwen4_moe.*nearest: qwen3"):
        model_of_config("m", LLAMA | {"model_type": "qwen4_moe"})
    with pytest.raises(NoFormulaError, match="this architecture has no formula here"):
        model_of_config("m", {"model_type": "idefics3", "text_config": LLAMA | {"model_type": "llama"}})


def test_a_quantization_of_unknown_size_is_not_guessed():
    groups = (
        {"g": 4},
        {"g": {"weights": {"num_bits": 9}}},
        {"g": {"weights": {"num_bits": 4}}, "h": {"weights": {"num_bits": 8}}},
    )
    grouped = ({"quant_method": "compressed-tensors", "config_groups": each} for each in groups)
    for said in (
        {"quant_method": "exl2"},
        {"quant_method": "awq", "bits": 99},
        {"quant_method": "compressed-tensors"},
        ["fp8"],
        *grouped,
    ):
        with pytest.raises(NoFormulaError, match=r"quantization_config\.quant_method: the size of weights"):
            model_of_config("m", LLAMA | {"quantization_config": said})


def test_every_fault_is_told_with_its_key():
    found = faults(LLAMA | {"hidden_size": "3072", "num_hidden_layers": 10**9, "vocab_size": True, "intermediate_size": None})
    assert set(found) == {"hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size"}
    assert found["hidden_size"] == 'not such a number; "3072"; a number from 1 to 20000000'
    assert found["num_hidden_layers"].endswith("a number from 1 to 1000")
    assert found["intermediate_size"].startswith("this key is required and missing")


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": -50},
        {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": True},
        {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 10**40},
        {"model_type": "gemma2", "sliding_window_pattern": -1},
        {"model_type": "gemma3_text", "_sliding_window_pattern": "6"},
        {"model_type": "gemma2", "layer_types": "sliding_attention"},
    ],
)
def test_layers_with_a_window_that_cannot_be_counted_are_a_fault(changes: dict[str, Any]):
    """Whoever counted more of them than there are layers would find room for any number of sequences."""
    assert set(faults(LLAMA | {"sliding_window": 4096} | changes)) == {[*changes][-1]}


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        (
            "Llama-3.2-3B",
            {"torch_dtype": "int3"},
            'the type of weights is none that is known; "int3"; bfloat16, float16, float32',
        ),
        ("Llama-3.2-3B", {"tie_word_embeddings": "yes"}, 'neither true nor false; "yes"; true, false'),
        ("Qwen3-30B-A3B", {"mlp_only_layers": ["0"]}, 'not a list of layers; ["0"]; numbers of layers from 0'),
        ("Whisper-Large-v3-Turbo", {"encoder_ffn_dim": 7}, "the encoder differs from the decoder; 7; as decoder_ffn_dim"),
    ],
)
def test_a_value_that_no_formula_takes_is_told_with_those_that_it_takes(name: str, changes: dict[str, Any], told: str):
    ((key, _),) = changes.items()
    assert faults(config_of(name) | changes) == {key: told}


def test_the_type_of_weights_is_told_at_the_key_that_says_it():
    config = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}
    assert [*faults(config | {"dtype": "int3"})] == ["dtype"]
    assert model_of_config("m", config | {"dtype": "float16", "tie_word_embeddings": None}).dtype == "float16"


@pytest.mark.parametrize(
    ("name", "changes", "layers"),
    [
        ("DeepSeek-V2-Lite", {"moe_layer_freq": 1}, 26),
        ("DeepSeek-V2-Lite", {"moe_layer_freq": 2}, 13),
        ("DeepSeek-V2-Lite", {"moe_layer_freq": 2, "first_k_dense_replace": 0}, 14),
        ("DeepSeek-V2-Lite", {"moe_layer_freq": 5, "first_k_dense_replace": 0}, 6),
        ("ERNIE-4.5-21B-A3B", {"moe_layer_interval": 2}, 14),
        ("Qwen3-30B-A3B", {"decoder_sparse_step": 5}, 9),
        ("Qwen3-30B-A3B", {"mlp_only_layers": [0, 47]}, 46),
    ],
)
def test_layers_with_experts_are_counted_as_the_engine_makes_them(name: str, changes: dict[str, Any], layers: int):
    """DeepSeek counts every so many layers from 0, the others from 1 (vLLM 0.30.0, deepseek_v2.py, ernie45_moe.py)."""
    assert model_of_config("m", config_of(name) | changes).expert_layers == layers


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"hybrid_override_pattern": None}, "hybrid_override_pattern"),
        ({"hybrid_override_pattern": "MX*E"}, "hybrid_override_pattern"),
        ({"hybrid_override_pattern": "ME" * 26}, "hybrid_override_pattern"),
        ({"hybrid_override_pattern": [["M"], "*"]}, "hybrid_override_pattern"),
        ({"hybrid_override_pattern": None, "layers_block_type": 7}, "layers_block_type"),
        ({"num_hidden_layers": 51}, "num_hidden_layers"),
    ],
)
def test_what_each_layer_has_is_read_or_a_fault(changes: dict[str, Any], key: str):
    assert key in faults(config_of("Nemotron-3-Nano-30B-A3B") | changes)


def test_parts_that_no_formula_counts_are_not_guessed():
    large = config_of("Gemma-4-31B")
    small = large | {"text_config": large["text_config"] | {"hidden_size_per_layer_input": 256}}
    with pytest.raises(NoFormulaError, match=r"hidden_size_per_layer_input: what it adds to gemma4 has no formula here"):
        model_of_config("m", small)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, {"fp8_cache": True}),
        ({"quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, {"fp8_cache": True}),
        ({"quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "int"}}, {}),
        (
            {"quant_algo": "NVFP4", "exclude_modules": ["backbone.layers.4.mixer.in_proj", "backbone.layers.0.mixer.conv1d"]},
            {"partly": True, "plain_layers": frozenset({4})},
        ),
        ({"quant_algo": "FP8", "ignore": ["model.layers.0.linear_attn.out_proj"]}, {"partly": True, "plain_states": True}),
    ],
)
def test_what_a_checkpoint_says_of_cache_and_single_layers(said: dict[str, Any], found: dict[str, Any]):
    read = quantization({"quant_method": "modelopt", **said})
    assert read is not None
    plain = Quantization("modelopt", 8) if said["quant_algo"] == "FP8" else Quantization("modelopt_fp4", 4, 16, 8)
    assert read == replace(plain, **found)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"layer_types": ["linear_attention", "full_attention"] * 24}, "layer_types"),
        ({"layer_types": "linear_attention"}, "layer_types"),
        ({"num_hidden_layers": 3}, "num_hidden_layers"),
        ({"full_attention_interval": -4}, "full_attention_interval"),
        ({"linear_num_value_heads": 0}, "linear_num_value_heads"),
        ({"linear_conv_kernel_dim": None}, "linear_conv_kernel_dim"),
    ],
)
def test_layers_with_a_state_that_cannot_be_counted_are_a_fault(changes: dict[str, Any], key: str):
    assert set(faults(config_of("Qwen3-Next-80B-A3B") | changes)) == {key}


def test_a_fault_leads_to_no_other():
    assert set(faults(LLAMA | {"num_attention_heads": 0})) == {"num_attention_heads"}


def test_heads_that_do_not_divide_are_a_fault():
    assert "a part of 24" in faults(LLAMA | {"num_key_value_heads": 7})["num_key_value_heads"]
    gemma = config_of("Gemma-4-31B")["text_config"] | {"num_global_key_value_heads": 7}
    assert "a part of 32" in faults(gemma)["num_global_key_value_heads"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "nul", '"a"', "[" * 100_000, "{}" * 2, "\ud800".encode("utf-8", "surrogatepass"), b"\xff\xfe"]
)
def test_a_text_that_is_no_object_is_a_fault(text: str | bytes):
    with pytest.raises(SpecError, match="allowed: a JSON object"):
        parse(text)


def test_a_huge_file_is_a_fault():
    with pytest.raises(SpecError, match="too large"):
        parse(" " * (1 << 21))


LONG = 10**8
"""Tokens: longer than any window."""
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**30) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.sampled_from(sorted(EVIDENCE)),
    st.dictionaries(
        st.sampled_from(sorted(keys_read())),
        VALUES,
        max_size=4,
    ),
)
def test_any_values_give_a_model_or_faults(name: str, changes: dict[str, Any]):
    found = outcome(name, config_of(name) | changes)
    if isinstance(found, SpecError):
        assert all(fault.path and fault.allowed for fault in found.faults)
    else:
        assert found.parameters > 0
        assert 0 <= found.window_layers <= found.layers
        assert int(found.writes) <= found.kv_bytes(LONG, beyond=8192) <= 1.5 * found.kv_bytes(LONG)
        seeing = found.tower.weights if found.tower else 0
        assert 0 < found.weight_bytes() <= 2 * (found.parameters + seeing) + 1


@pytest.mark.parametrize("name", sorted(EVIDENCE))
def test_the_keys_of_the_shape_are_all_that_is_read(name: str):
    config = config_of(name)
    assert model_of_config(name, json.loads(json.dumps(shape_keys(config)))) == model_of_config(name, config)


@given(st.sampled_from(sorted(EVIDENCE)), st.integers(1, 200_000), st.integers(1, 200_000), st.integers(0, 20_000))
def test_more_tokens_never_take_less(name: str, tokens: int, more: int, beyond: int):
    one = model_of_config(name, config_of(name))
    assert one.kv_bytes(tokens, beyond=beyond) <= one.kv_bytes(tokens + more, beyond=beyond)
    assert one.kv_bytes(tokens) <= one.kv_bytes(tokens + more)
