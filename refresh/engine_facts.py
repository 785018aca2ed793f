"""What vLLM's own start-up code does on each GPU: kernels, attention, types (PYTHON: of an environment of `make engine`).

A row a release, of the release that the environment has; the others stay as they are.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from refresh import ROOT
from refresh.engine.asking import answers
from refresh.engine.checkpoints import CHECKPOINTS

FILE = ROOT / "components" / "eks_inference" / "catalog" / "engine_facts.json"

GPUS = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0")
"""Compute capabilities of the GPUs of EC2."""
KV_TYPES = ("auto", "fp8", "fp8_e5m2", "nvfp4", "int8_per_token_head")
_PLAIN = {
    "hidden_size": 2048,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 4096,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}


def _llama(**other: Any) -> dict[str, Any]:
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **_PLAIN, **other}


MODELS: Mapping[str, Mapping[str, Any]] = {
    "dense": _llama(),
    "experts": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        **_PLAIN,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 1024,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
    },
    "latent": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        **{key: value for key, value in _PLAIN.items() if key != "head_dim"},
        "num_key_value_heads": 16,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 1024,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "greedy",
        "scoring_func": "softmax",
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    },
    "sinks": {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        **_PLAIN,
        "head_dim": 64,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 128,
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
        },
    },
    "softcap": {
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        **_PLAIN,
        "head_dim": 256,
        "sliding_window": 1024,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256,
        "final_logit_softcapping": 30.0,
        "attn_logit_softcapping": 50.0,
        "tie_word_embeddings": True,
    },
}
"""A small model of each kind of attention and of layer."""
HEADS = (64, 80, 96, 128, 192, 256, 512)
"""Widths of a head."""
_FACTS = """
import json, sys
from pathlib import Path
from refresh.engine import stand_ins
stand_ins.load(Path(sys.argv[1]))
import importlib.metadata, vllm.config.model
from vllm.model_executor.models import ModelRegistry
no_half = sys.modules["vllm.config.model"]._FLOAT16_NOT_SUPPORTED_MODELS
print(json.dumps([importlib.metadata.version("vllm"), sorted(no_half), sorted(ModelRegistry.get_supported_archs())]))
"""


def table(python: str) -> str:
    found = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    release, row = derived(Path(python))
    found[release] = row
    return json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False) + "\n"


def derived(python: Path) -> tuple[str, dict[str, Any]]:
    """Returns the release and its row."""
    said = subprocess.run(
        [python, "-c", _FACTS, python.parents[1] / "libcuda.so.1"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    release, no_float16, architectures = json.loads(said.stdout.splitlines()[-1])
    with tempfile.TemporaryDirectory() as folder:
        cases = {case["id"]: case for case in _cases(Path(folder))}
        found = {one["id"]: one for one in answers(cases.values(), python)}
    row: dict[str, Any] = {"no_float16": no_float16, "architectures": architectures}
    for name in cases:
        table_, *keys, gpu = name.split("|")
        _put(row, [table_, *keys], gpu, _told(table_, found[name]))
    return release, row


def _told(table_: str, found: Mapping[str, Any]) -> str:
    """The kernel or back end that was chosen, or why the engine does not start."""
    if found["verdict"] != "starts":
        return f"no: {found.get('error', 'died').partition('Value error, ')[2] or found.get('error', 'died')}".split("\n")[0][
            :160
        ]
    if table_ == "weights":
        return " ".join(one for one in found["kernels"] if one not in _UNQUANTIZED and "KVCache" not in one) or "none"
    return " ".join([found["dtype"], *found["backends"]])


_UNQUANTIZED = ("UnquantizedEmbeddingMethod", "UnquantizedLinearMethod", "UnquantizedFusedMoEMethod")


def _put(row: dict[str, Any], keys: list[str], gpu: str, told: str) -> None:
    for key in keys:
        row = row.setdefault(key, {})
    row[told] = f"{row[told]} {gpu}" if told in row else gpu


def _cases(folder: Path) -> Iterator[dict[str, Any]]:
    def case(name: str, gpu: str, config: Mapping[str, Any], *flags: str) -> dict[str, Any]:
        place = folder / name.replace("|", "-")
        place.mkdir(exist_ok=True)
        (place / "config.json").write_text(json.dumps(config))
        machine = {"name": "NVIDIA", "capability": [int(one) for one in gpu.split(".")], "mib": 80 << 10, "count": 1}
        return {"id": f"{name}|{gpu}", "gpu": machine, "args": [str(place), "--max-model-len", "2048", *flags], "env": {}}

    for gpu in GPUS:
        for model, config in MODELS.items():
            for kv in KV_TYPES:
                yield case(f"attention|{model}|{kv}", gpu, config, "--kv-cache-dtype", kv)
        for width in HEADS:
            yield case(f"heads|{width}", gpu, _llama(head_dim=width))
        for model in ("dense", "experts"):
            yield case(f"weights|{model}|online-fp8", gpu, MODELS[model], "--quantization", "fp8")
            for name, checkpoint in CHECKPOINTS.items():
                for dtype in ("bfloat16", "float16") if model == "dense" else ("auto",):
                    key = f"weights|{model}|{name}" + (f"|{dtype}" if dtype != "auto" else "")
                    yield case(key, gpu, {**MODELS[model], "quantization_config": checkpoint}, "--dtype", dtype)
