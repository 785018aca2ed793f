"""Whether a shard may end inside a group of weights that share a scale: asks the engine about models of one layer."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eks_inference.catalog.quantization import quantization
from refresh.engine.asking import answers
from refresh.engine.checkpoints import CHECKPOINTS, GPUS

GROUP = 128
SMALLER = (32, 64)
"""Parts of a group that an engine may make of it."""
_ALL = 1024
_GROUPED = {
    found.method: how for how in CHECKPOINTS.values() if (found := quantization(how)) and found.unit == GROUP and found.scale_bits
}
_MODEL = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "torch_dtype": "float16",
    "hidden_act": "silu",
    "hidden_size": _ALL,
    "num_hidden_layers": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": GROUP,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
    "vocab_size": _ALL,
    "max_position_embeddings": _ALL,
}


def unaligned(python: Path) -> dict[str, dict[str, Any]]:
    """Returns the columns ``unaligned`` and ``unaligned_experts`` of ``catalog/engine_facts.py``."""
    with tempfile.TemporaryDirectory() as folder:
        starts = {one["id"]: one["verdict"] == "starts" for one in answers(list(_cases(Path(folder))), python)}
    dense = {name: next((parts for parts in (1, 2) if not starts[f"{name} dense {parts}"]), 0) for name in _GROUPED}
    experts = {
        name: {
            f"{gpu[0]}.{gpu[1]}": next((size for size in SMALLER if starts[f"{name} experts {size} {gpu}"]), 0) for gpu in GPUS
        }
        for name in _GROUPED
    }
    return {"unaligned": {name: parts for name, parts in dense.items() if parts}, "unaligned_experts": experts}


def _cases(folder: Path) -> Iterator[dict[str, Any]]:
    for name in _GROUPED:
        for parts in (1, 2):
            yield _case(folder, f"{name} dense {parts}", name, GPUS[1], (_ALL + GROUP // 2) * parts, parts)
        for gpu in GPUS:
            for size in SMALLER:
                yield _case(folder, f"{name} experts {size} {gpu}", name, gpu, _ALL + size, 0)


def _case(folder: Path, asked: str, method: str, gpu: tuple[int, int], width: int, dense: int) -> dict[str, Any]:
    widths = {"intermediate_size": width, "moe_intermediate_size": width, "mlp_only_layers": [0] if dense else []}
    place = folder / asked.replace(" ", "-")
    place.mkdir()
    (place / "config.json").write_text(json.dumps({**_MODEL, **widths, "quantization_config": _GROUPED[method]}))
    arguments = [str(place), "--tensor-parallel-size", str(max(dense, 1)), "--enforce-eager"]
    return {"id": asked, "gpu": {"name": "NVIDIA", "capability": gpu, "mib": 1 << 15, "count": 2}, "args": arguments}
