"""KV caches in FP8: when an engine keeps one, and what its generation needs for it. Pure; no pulumi."""

from collections.abc import Mapping
from typing import Any

from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.features import documented
from eks_inference.catalog.models import Model


def checkpoint_method(engine: EngineProfile, model: Model | None, features: Mapping[str, str]) -> str:
    """Returns how the checkpoint is quantized: by its config.json, or by a feature that only such a checkpoint has."""
    if model and model.quantization:
        return model.quantization.method
    chosen = documented(engine.name).get("quantized_weights", {}).get(features.get("quantized_weights", ""))
    return chosen.checkpoint if chosen else ""


def kv_in_fp8(engine: EngineProfile, kv_cache_dtype: str, model: Model | None, features: Mapping[str, str]) -> bool:
    """Whether the KV cache is in FP8: by ``--kv-cache-dtype``, or where that says nothing by the checkpoint."""
    if kv_cache_dtype not in ("", "auto"):
        return kv_cache_dtype.startswith("fp8")
    return checkpoint_method(engine, model, features) in engine.fp8_kv_checkpoints


def fp8_kv_settings(engine: EngineProfile, model: Model | None, max_num_seqs: int) -> dict[str, Any]:
    """Returns the engine settings that such a KV cache needs; empty where it needs none, or no document has them."""
    known, plugin = engine.generation.fp8_kv, engine.generation.settings
    if known is None or plugin is None or (model and model.architecture not in known.architectures):
        return {}
    return {"block-size": known.block_size, plugin.flag: {plugin.key: {known.packed: True, known.batches: [max_num_seqs]}}}
