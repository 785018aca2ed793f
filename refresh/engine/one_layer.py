"""Which kernels quantized weights get, and whether a shard may end inside a group: asks the engine about models of one layer."""

import itertools
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from eks_inference.catalog.quantization import quantization
from refresh.engine.asking import answers
from refresh.engine.checkpoints import CHECKPOINTS, EXPERTS_ONLY, GPUS

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


_GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "torch_dtype": "bfloat16",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
_READ = [(one, how) for how in (*CHECKPOINTS.values(), EXPERTS_ONLY) if (one := quantization(how))]


def _grouped() -> dict[str, Any]:
    """Checkpoints with groups, by their method; one of a method with other bits also by those."""
    found: dict[str, Any] = {}
    for one, how in _READ:
        if one.unit == GROUP:
            found.setdefault(one.method if one.bits == 4 or one.method == "fp8" else f"{one.method}-{one.bits}", how)
    return found


_GROUPED = _grouped()


def of_quantized(python: Path) -> dict[str, dict[str, Any]]:
    """Returns the columns of ``catalog/engine_facts.py`` about quantized weights."""
    with tempfile.TemporaryDirectory() as folder:
        starts = {answer["id"]: answer["verdict"] == "starts" for answer in answers(list(_cases(Path(folder))), python)}
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
        **_kernels(python),
        "unaligned": {name: parts for name, parts in dense.items() if parts},
        "unaligned_experts": {name: rows for name, rows in experts.items() if rows != experts.get(name.rpartition("-")[0])},
    }


def _kernels(python: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Kernels of linear layers, and of experts, by the form of the weights and the GPU. Empty: the engine refuses."""
    with tempfile.TemporaryDirectory() as folder:
        asked = [(one.form, how, _GPT_OSS if one.experts_only else _SPARSE, gpu) for one, how in _READ for gpu in GPUS]
        found = _asked(python, Path(folder) / "experts", asked)
        # What the configuration refuses, it refuses without experts, too.
        plain = [(form, how, _DENSE, gpu) for form, how, _, gpu in asked if found[form, gpu] is None]
        dense = _asked(python, Path(folder) / "dense", plain) if plain else {}
    tables: dict[str, dict[str, dict[str, str]]] = {"kernels": {}, "expert_kernels": {}}
    for (form, gpu), methods in found.items():
        for column, of_experts in (("kernels", False), ("expert_kernels", True)):
            given = dense[form, gpu] if methods is None and not of_experts else methods
            tables[column].setdefault(form, {})[f"{gpu[0]}.{gpu[1]}"] = _kernel(given or [], of_experts)
    # A form without any kernel is one that the release does not know, or only experts have.
    return {column: {form: row for form, row in table.items() if any(row.values())} for column, table in tables.items()}


def _asked(python: Path, folder: Path, asked: list[Any]) -> dict[tuple[str, tuple[int, int]], list[str] | None]:
    """Methods of the layers of each model; none where the configuration is refused, None where the layers are."""
    folder.mkdir()
    sizes = {"intermediate_size": _ALL, "moe_intermediate_size": _ALL}
    cases = [_case(folder, f"{form} {gpu}", how, gpu, {**model, **sizes}, 1) for form, how, model, gpu in asked]
    said = {answer["id"]: answer for answer in answers(cases, python)}
    found = {(form, gpu): said[f"{form} {gpu}"] for form, _, _, gpu in asked}
    # Once the layers are built they have their kernels, whatever comes after.
    return {key: one.get("kernels", None if one["stage"] == "model" else []) for key, one in found.items()}


def _kernel(methods: Sequence[str], of_experts: bool) -> str:
    """What was chosen, or the method that has no choice."""
    methods = [one for one in methods if ("MoE" in one) == of_experts and "KVCache" not in one and "Unquantized" not in one]
    chosen = sorted({name for method in methods for name in method.split(":")[1:]})
    return ", ".join(chosen or methods[:1])


def _cases(folder: Path) -> Iterator[dict[str, Any]]:
    for name, how in _GROUPED.items():
        for parts in (1, 2):
            widths = {**_DENSE, "intermediate_size": (_ALL + GROUP // 2) * parts}
            yield _case(folder, f"{name} {parts}", how, GPUS[1], widths, parts)
        for gpu, size in itertools.product(GPUS, (GROUP, *SMALLER)):
            yield _case(folder, f"{name} {size} {gpu}", how, gpu, {**_SPARSE, "moe_intermediate_size": _ALL + size}, 1)


def _case(folder: Path, asked: str, how: Any, gpu: tuple[int, int], model: dict[str, Any], parts: int) -> dict[str, Any]:
    place = folder / asked
    place.mkdir()
    (place / "config.json").write_text(json.dumps({**_MODEL, **model, "quantization_config": how}))
    arguments = [str(place), "--tensor-parallel-size", str(parts), "--enforce-eager", "--allow-deprecated-quantization"]
    return {"id": asked, "gpu": {"name": "NVIDIA", "capability": gpu, "mib": 1 << 15, "count": 2}, "args": arguments}
