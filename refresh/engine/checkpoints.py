"""What the engine is asked about: GPUs, and what the config.json of quantized checkpoints says, as published ones do."""

from collections.abc import Mapping
from typing import Any


def _compressed(form: str, weights: dict[str, Any], inputs: dict[str, Any] | None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "output_activations": None, "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "ignore": ["lm_head"],
        "quantization_status": "compressed",
        "kv_cache_scheme": None,
        "format": form,
        "config_groups": {"group_0": group},
    }


def _tensor(
    bits: int, kind: str, strategy: str, *, dynamic: object = False, group: int | None = None, symmetric: bool = True
) -> dict[str, Any]:
    return {
        "num_bits": bits,
        "type": kind,
        "strategy": strategy,
        "dynamic": dynamic,
        "symmetric": symmetric,
        "group_size": group,
        "actorder": None,
        "observer": "minmax",
        "observer_kwargs": {},
        "block_structure": None,
    }


GPUS = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0))
"""Compute capabilities of the GPUs of EC2."""

_QUANTIZED = ["_proj", "fc1", "fc2"]
"""Parts of the names of quantized layers; without such a list the engine looks for it in the headers of the weights."""


def _gptq(bits: int) -> dict[str, Any]:
    said = {"quant_method": "gptq", "bits": bits, "group_size": 128, "desc_act": False, "sym": True}
    return {**said, "modules_in_block_to_quantize": _QUANTIZED}


CHECKPOINTS: Mapping[str, Mapping[str, Any]] = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "fp8-blocks": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True},
    "gptq": _gptq(4),
    "gptq-int8": _gptq(8),
    "compressed-tensors-fp8": _compressed(
        "float-quantized", _tensor(8, "float", "channel"), _tensor(8, "float", "token", dynamic=True)
    ),
    "compressed-tensors-int8": _compressed(
        "int-quantized", _tensor(8, "int", "channel"), _tensor(8, "int", "token", dynamic=True)
    ),
    "compressed-tensors-int4": _compressed("pack-quantized", _tensor(4, "int", "group", group=128), None),
    "compressed-tensors-int4-zeros": _compressed("pack-quantized", _tensor(4, "int", "group", group=128, symmetric=False), None),
    "compressed-tensors-nvfp4": _compressed(
        "nvfp4-pack-quantized",
        _tensor(4, "float", "tensor_group", group=16),
        _tensor(4, "float", "tensor_group", dynamic="local", group=16),
    ),
    "fbgemm-fp8": {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]},
    "modelopt-fp8": {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": None, "ignore": ["lm_head"]},
    "modelopt-nvfp4": {
        "quant_method": "modelopt_fp4",
        "quant_algo": "NVFP4",
        "group_size": 16,
        "kv_cache_scheme": None,
        "ignore": ["lm_head"],
    },
    "bitsandbytes": {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "bnb_4bit_compute_dtype": "bfloat16",
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
    },
}
"""By a name of ours: the method, and what in it decides about kernels."""

EXPERTS_ONLY = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"]}
"""As the models of GPT-OSS have it, and no others."""
