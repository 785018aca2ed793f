"""Whether a shard may end inside a group of weights that share a scale: asks the engine about models of one layer."""

import itertools
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
_MODEL = {
    "torch_dtype": "float16",
    "hidden_act": "silu",
    "hidden_size": _ALL,
    "num_hidden_layers": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": GROUP,
    "tie_word_embeddings": False,
    "vocab_size": _ALL,
    "max_position_embeddings": _ALL,
}
_DENSE = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
_SPARSE = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2}


def _grouped() -> dict[str, Any]:
    """Checkpoints with groups, by their method; a second one of a method also by its bits."""
    found: dict[str, Any] = {}
    for how in CHECKPOINTS.values():
        one = quantization(how)
        if one and one.unit == GROUP and one.scale_bits:
            found[f"{one.method}-{one.bits}" if one.method in found else one.method] = how
    return found


_GROUPED = _grouped()


def unaligned(python: Path) -> dict[str, dict[str, Any]]:
    """Returns the columns ``unaligned`` and ``unaligned_experts`` of ``catalog/engine_facts.py``."""
    with tempfile.TemporaryDirectory() as folder:
        starts = {one["id"]: one["verdict"] == "starts" for one in answers(list(_cases(Path(folder))), python)}
    dense = {name: next((parts for parts in (1, 2) if not starts[f"{name} {parts}"]), 0) for name in _GROUPED}
    experts = {
        name: {
            f"{gpu[0]}.{gpu[1]}": next((size for size in SMALLER if starts[f"{name} {size} {gpu}"]), 0)
            for gpu in GPUS
            if starts[f"{name} {GROUP} {gpu}"]
        }
        for name in _GROUPED
    }
    return {
        "unaligned": {name: parts for name, parts in dense.items() if parts},
        "unaligned_experts": {name: rows for name, rows in experts.items() if rows != experts.get(name.rpartition("-")[0])},
    }


def _cases(folder: Path) -> Iterator[dict[str, Any]]:
    for name in _GROUPED:
        for parts in (1, 2):
            widths = {**_DENSE, "intermediate_size": (_ALL + GROUP // 2) * parts}
            yield _case(folder, f"{name} {parts}", name, GPUS[1], widths, parts)
        for gpu, size in itertools.product(GPUS, (GROUP, *SMALLER)):
            yield _case(folder, f"{name} {size} {gpu}", name, gpu, {**_SPARSE, "moe_intermediate_size": _ALL + size}, 1)


def _case(folder: Path, asked: str, method: str, gpu: tuple[int, int], model: dict[str, Any], parts: int) -> dict[str, Any]:
    place = folder / asked
    place.mkdir()
    (place / "config.json").write_text(json.dumps({**_MODEL, **model, "quantization_config": _GROUPED[method]}))
    arguments = [str(place), "--tensor-parallel-size", str(parts), "--enforce-eager"]
    return {"id": asked, "gpu": {"name": "NVIDIA", "capability": gpu, "mib": 1 << 15, "count": 2}, "args": arguments}
