"""A config.json for any model of the catalog, of which only the shape is kept. The engine's own code reads it."""

import re
from collections.abc import Mapping
from typing import Any

from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.config_json import KEYS, model_of_config
from eks_inference.catalog.models import Model
from refresh.engine.checkpoints import CHECKPOINTS
from refresh.towers import configs

CLASSES = {
    "bert": "BertModel",
    "chatglm": "ChatGLMModel",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma4": "Gemma4ForConditionalGeneration",
    "glm4": "Glm4ForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "hy_v3": "HYV3ForCausalLM",
    "ernie4_5_moe": "Ernie4_5_MoeForCausalLM",
    "seed_oss": "SeedOssForCausalLM",
    "mimo_v2_flash": "MiMoV2FlashForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "gemma3": "Gemma3ForConditionalGeneration",
    "gemma3_text": "Gemma3ForCausalLM",
    "llama4": "Llama4ForConditionalGeneration",
    "mistral3": "Mistral3ForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
    "glm": "GlmForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "granite": "GraniteForCausalLM",
    "granitemoe": "GraniteMoeForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "kimi_k25": "KimiK25ForConditionalGeneration",
    "llama": "LlamaForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "opt": "OPTForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen3_next": "Qwen3NextForCausalLM",
    "roberta": "RobertaModel",
    "whisper": "WhisperForConditionalGeneration",
    "xlm-roberta": "XLMRobertaModel",
}
_LATENT = {"n_group": 1, "topk_group": 1, "moe_layer_freq": 1, "scoring_func": "softmax"}
_SIGMOID = {"topk_method": "noaux_tc", "scoring_func": "sigmoid"}
_THETA = {"rope_theta": 5000000, "swa_rope_theta": 10000, "partial_rotary_factor": 0.334}
_MIMO = {**_THETA, "add_swa_attention_sink_bias": True, "sliding_window_size": 128, "attention_chunk_size": 128}
_ROBERTA = {"pad_token_id": 1, "type_vocab_size": 1, "position_embedding_type": "absolute"}
FURTHER: Mapping[str, Mapping[str, Any]] = {
    "deepseek_v2": {**_LATENT, "topk_method": "greedy", "norm_topk_prob": False, "routed_scaling_factor": 1.0},
    "deepseek_v3": {**_LATENT, **_SIGMOID},
    "deepseek_v32": {**_LATENT, **_SIGMOID, "index_topk": 2048},
    "glm_moe_dsa": {**_LATENT, **_SIGMOID, "index_topk": 2048, "indexer_rope_interleave": True},
    "kimi_k2": {**_LATENT, **_SIGMOID},
    "kimi_k25": {**_LATENT, **_SIGMOID},
    "gemma2": {"hidden_activation": "gelu_pytorch_tanh", "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0},
    "gemma3_text": {"hidden_activation": "gelu_pytorch_tanh"},
    "glm4": {"partial_rotary_factor": 0.5},
    "glm4_moe_lite": {**_LATENT, **_SIGMOID},
    "granitemoehybrid": {"position_embedding_type": "nope", "mamba_conv_bias": True, "mamba_expand": 2},
    "hy_v3": {"qk_norm": True, "route_norm": True, "router_scaling_factor": 2.826},
    "glm4_moe": {"n_group": 1, "topk_group": 1, "use_qk_norm": True, "partial_rotary_factor": 0.5},
    "minimax_m2": {"use_qk_norm": True, "use_routing_bias": True, "scoring_func": "sigmoid", "rotary_dim": 64},
    "mimo_v2_flash": {**_SIGMOID, "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "layernorm_epsilon": 1e-5, **_MIMO},
    "nemotron_h": {"mlp_hidden_act": "relu2", "use_conv_bias": True, "n_group": 1, "topk_group": 1, "norm_topk_prob": True},
    "mistral": {"sliding_window": None},
    "mixtral": {"sliding_window": None},
    "opt": {"do_layer_norm_before": True, "activation_function": "relu"},
    "phi3": {"pad_token_id": 3},
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}
"""Keys that no formula of ours reads, and that an engine needs."""
_WORDS: Mapping[str, Mapping[str, Any]] = {
    "layer_types": {"*": "full_attention", "W": "sliding_attention", "M": "mamba"},
    "hybrid_layer_pattern": {"*": 0, "W": 1},
}
_MXFP4 = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
}
_CHECKPOINTS = {
    **CHECKPOINTS,
    "compressed-tensors": CHECKPOINTS["compressed-tensors-int4"],
    "modelopt": CHECKPOINTS["modelopt-fp8"],
    "modelopt_fp4": CHECKPOINTS["modelopt-nvfp4"],
    "mxfp4": _MXFP4,
}
_ATTENTION = ("re:.*self_attn.*",)
_ALL_BUT_EXPERTS = (*_ATTENTION, "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*")


def config_of(model: Model) -> dict[str, Any]:
    """Returns the config.json whose shape is that of the model."""
    kind = architectures()[model.architecture]
    names = {**KEYS, **kind.keys}
    found: dict[str, Any] = {
        "model_type": model.architecture,
        "architectures": [_class(model)],
        "torch_dtype": model.dtype,
        "tie_word_embeddings": model.tied_embeddings,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    usual = KEYS if "full_kv_heads" in names else {}  # layers without a window have the heads of the others, if no key says so
    for name, key in [*usual.items(), *names.items()]:
        if value := getattr(model, name, None):
            found[key] = value
    if kind.positions_in_all:
        found["max_position_embeddings"] += kind.learned_positions
    if model.task == "rerank":
        found["id2label"] = {"0": "LABEL_0"}
    if kind.hears:
        found |= {"encoder_attention_heads": model.heads, "encoder_ffn_dim": model.mlp, "is_encoder_decoder": True}
    if kind.latent:
        found |= {"num_key_value_heads": model.heads, "head_dim": None, "q_lora_rank": model.q_rank or None}
    if kind.indexed:
        found["index_topk_pattern"] = "F" * model.index_layers + "S" * (model.layers - model.index_layers)
    if "shared_experts" in names and model.expert_mlp:
        found[names["shared_experts"]] = 1 if "shared_mlp" in names else model.shared_mlp // model.expert_mlp
    if "dense_layers" in names:
        found[names["dense_layers"]] = model.layers - model.expert_layers
    elif "expert_step" in names:
        found[names["expert_step"]] = model.layers // (model.expert_layers or model.layers)
    if kind.experts_switch:
        found[kind.experts_switch] = bool(model.experts)
    if "expert_list" in names:
        found[names["expert_list"]] = [int(sparse) for _, sparse in model.kinds()]
    if model.pattern:
        key, words = kind.pattern[0], _WORDS.get(kind.pattern[0])
        found[key] = [words[one] for one in model.pattern] if words else model.pattern
    if kind.bias_key:
        found[kind.bias_key] = model.biased
    if model.window and not model.pattern:
        rest = model.layers - model.window_layers
        every = model.layers // rest if rest else 0
        full = range(every - 1, model.layers, every) if every else ()
        found["layer_types"] = ["full_attention" if one in full else "sliding_attention" for one in range(model.layers)]
    if model.quantization:
        method = model.quantization.method
        blocks = method == "fp8" and model.quantization.group
        said = dict(_CHECKPOINTS["fp8-blocks" if blocks else method])
        spared = _ATTENTION if model.quantization.plain_attention else _ALL_BUT_EXPERTS if model.quantization.experts_only else ()
        if spared and method != "mxfp4":
            said["ignore"] = [*said["ignore"], *spared]
        found["quantization_config"] = said
    told = {key: value for key, value in found.items() if value is not None or key == "q_lora_rank"}  # absent, it is 1536
    made = {**FURTHER.get(model.architecture, {}), **told}
    return _with_eyes(model.tower.name, made) if model.tower else made


def _with_eyes(tower: str, made: dict[str, Any]) -> dict[str, Any]:
    """The file of the model that the tower is known of, with another decoder."""
    there = dict(configs())[tower]
    outer = {key: there[key] for key in ("architectures", "model_type")}
    plain = {key: value for key, value in there.items() if key != "quantization_config"}
    if "text_config" not in there:
        return {**plain, **made, **outer}
    text = {**there["text_config"], **made, "model_type": there["text_config"]["model_type"]}
    return {**plain, **outer, "text_config": {key: value for key, value in text.items() if key != "architectures"}}


def _class(model: Model) -> str:
    """What makes embeddings of a decoder's states is published with the decoder's class."""
    name = CLASSES[model.architecture]
    return re.sub(r"Model$", "ForSequenceClassification", name) if model.task in ("rerank", "classify") else name


def differences(model: Model) -> dict[str, tuple[Any, Any]]:
    """What our own reader does not find again in it."""
    read = model_of_config(model.name, config_of(model))
    return {
        name: (getattr(model, name), getattr(read, name))
        for name in (
            *("architecture", "dtype", "tied_embeddings", "expert_layers", "shared_mlp", "window_layers", *KEYS),
            *(() if model.writes else ("task",)),  # a decoder that makes embeddings has the file of one that chats
        )
        if getattr(model, name) != getattr(read, name)
    }
