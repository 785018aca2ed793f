"""What one release says of itself: ``python -m refresh.engine.facts LIBCUDA``, whose last line is JSON. No model is built."""

import functools
import gc
import importlib.metadata
import inspect
import json
import os
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from refresh.engine import stand_ins
from refresh.engine.checkpoints import GPUS

stand_ins.load(Path(sys.argv[1]))

import torch  # noqa: E402
import vllm.config.model  # noqa: E402
import vllm.reasoning  # noqa: E402
from vllm.config import VllmConfig, set_current_vllm_config  # noqa: E402
from vllm.config.cache import CacheDType  # noqa: E402
from vllm.config.load import LoadConfig  # noqa: E402
from vllm.config.quantization import resolve_quantization_config  # noqa: E402
from vllm.model_executor.layers import quantization  # noqa: E402
from vllm.model_executor.model_loader.weight_utils import get_quant_config  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402
from vllm.v1.attention.backends.registry import AttentionBackendEnum  # noqa: E402

HEADS = (64, 72, 80, 96, 112, 120, 128, 192, 256, 512)
LATENT = 576
"""Width of what models with latent attention keep."""
KV_TYPES = [one for one in CacheDType.__args__ if not one.endswith("_ds_mla") and one not in ("fp8_inc",)]
OTHERS = ("AMX", "CPU", "CUSTOM", "HPC", "NO_", "ROCM", "TORCH", "TRITON_FLASH", "XPU")
"""How names of back ends begin that are for other hardware or absent packages, or that models choose by themselves."""
NEEDS = {"sinks": "has_sink", "images": "use_mm_prefix", "prefill_context": "use_pcp", "decode_context": "use_dcp"}


def main() -> None:
    methods = {name: found for name in quantization.QUANTIZATION_METHODS if (found := _method(name))}
    print(
        json.dumps(
            {
                "release": importlib.metadata.version("vllm"),
                "deprecated": sorted(quantization.DEPRECATED_QUANTIZATION_METHODS),
                "no_float16": sorted(sys.modules["vllm.config.model"]._FLOAT16_NOT_SUPPORTED_MODELS),
                "of_checkpoints": sorted(name for name, (*_, read) in methods.items() if read),
                "reasoning_parsers": sorted(vllm.reasoning._REASONING_PARSERS_TO_REGISTER),
                "quantization": {name: {gpu: dtypes} for name, (gpu, dtypes, _) in sorted(methods.items()) if dtypes},
                "attention": {name: row for one in AttentionBackendEnum if (row := _back_end(one)) for name in (one.name,)},
            }
        )
    )


def _named(dtypes: Any) -> list[str]:
    return sorted(str(dtype).removeprefix("torch.") for dtype in dtypes)


def _method(name: str) -> tuple[str, list[str], bool] | None:
    """The oldest GPUs of EC2 that a quantization takes, its types of arithmetic, and whether it needs what a checkpoint says."""
    try:
        found = quantization.get_quantization_config(name)
    except Exception as error:
        print(f"without {name}: {error}", file=sys.stderr)
        return None
    ask = found.get_supported_act_dtypes
    # Some are methods of what a checkpoint configures, of which they read nothing.
    dtypes = _named(ask() if inspect.ismethod(ask) else ask(None))
    gpu = next(f"{major}.{minor}" for major, minor in GPUS if major * 10 + minor >= found.get_min_capability())
    plain = types.SimpleNamespace(hf_config=None, hf_overrides={}, model=os.curdir, quantization=name, revision=None)
    plain.quantization_config = resolve_quantization_config(name, None)
    try:
        get_quant_config(plain, LoadConfig())
    except Exception:
        return gpu, dtypes, True
    return gpu, dtypes, False


def _on(gpu: tuple[int, int], caches: Iterable[Any]) -> torch.dtype:
    """Makes the machine's GPUs other ones, and returns their half precision."""
    stand_ins.HERE.capability = gpu
    for cached in caches:
        cached.cache_clear()
    return torch.float16 if gpu < (8, 0) else torch.bfloat16


def _caches() -> list[Any]:
    return [one for one in gc.get_objects() if isinstance(one, functools._lru_cache_wrapper)]


def _back_end(one: AttentionBackendEnum) -> dict[str, Any] | None:
    if one.name.startswith(OTHERS) or one.name.endswith("DIFFKV"):
        return None
    try:
        made = one.get_class()
        latent, sparse = made.is_mla(), made.is_sparse()
        if made.is_ssm() or (sparse and not latent) or not made.supports_attn_type("decoder"):
            return None
    except Exception as error:
        print(f"without {one.name}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
        return None
    heads = (LATENT,) if latent else HEADS
    kv: dict[str, list[str]] = {}
    needs: dict[str, list[str]] = {name: [] for name in NEEDS}
    taken: set[int] = set()
    dtypes: set[torch.dtype] = set()
    caches, takes = _caches(), inspect.signature(made.validate_configuration).parameters
    for gpu in GPUS:
        half, here = _on(gpu, caches), f"{gpu[0]}.{gpu[1]}"

        def says(head: int, dtype: torch.dtype, kv_type: str | None, **need: bool) -> bool:
            block = next(iter(made.get_supported_kernel_block_sizes()), None)
            asked = dict.fromkeys(("use_per_head_quant_scales", *NEEDS.values()), False) | {"use_sparse": sparse} | need
            return not made.validate_configuration(
                head_size=head,
                dtype=dtype,
                kv_cache_dtype=kv_type,
                block_size=block if isinstance(block, int) else None,
                use_mla=latent,
                device_capability=DeviceCapability(*gpu),  # noqa: B023 - called in this turn of the loop
                attn_type="decoder",
                **{name: value for name, value in asked.items() if name in takes},  # releases before 0.30 ask less
            )

        sizes = [head for head in heads if says(head, half, "auto")]
        if not sizes:
            kv |= {here: []} if kv else {}
            continue
        taken.update(sizes)
        head = 128 if 128 in sizes else sizes[0]
        kv[here] = [
            one
            for one in KV_TYPES
            if (one != "bfloat16" or gpu >= (8, 0)) and says(head, half, one) and _is_made(made, latent, head, one)
        ]
        dtypes.update(one for one in (torch.float16, torch.bfloat16, torch.float32) if says(head, one, "auto"))
        for name, argument in NEEDS.items():
            if argument in takes and says(head, half, "auto", **{argument: True}):
                needs[name].append(here)
    if not kv:
        return None
    return {
        "latent": latent,
        "sparse": sparse,
        "dtypes": _named(dtypes),
        "also": {name: gpus if NEEDS[name] in takes else None for name, gpus in needs.items()},
        "head_sizes": [] if latent or taken == set(HEADS) else sorted(taken),
        "kv": kv,
    }


def _is_made(back_end: Any, latent: bool, head: int, kv_type: str) -> bool:
    """Whether the class takes the type of the KV cache, which some find out when they are made only."""
    if not kv_type.startswith("fp8"):
        return True
    further = dict.fromkeys(("q_lora_rank", "kv_b_proj", "indexer", "q_pad_num_heads"), None) | {
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "qk_head_dim": 192,
        "v_head_dim": 128,
    }
    try:
        back_end.get_impl_cls()(
            num_heads=8,
            head_size=head,
            scale=head**-0.5,
            num_kv_heads=1 if latent else 8,
            alibi_slopes=None,
            sliding_window=None,
            kv_cache_dtype=kv_type,
            logits_soft_cap=None,
            attn_type="decoder",
            kv_sharing_target_layer_name=None,
            **(further if latent else {}),
        )
    except Exception as error:
        refused = "KV cache" in str(error)
        if not refused:
            print(f"{back_end.__name__} with {kv_type}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return not refused
    return True


with set_current_vllm_config(VllmConfig()):
    main()
