"""Quantized checkpoints: the size of a weight with its scales, by the ``quantization_config`` of config.json. Pure.

Sources: vLLM documentation, "Quantization", and the formats of AutoAWQ, GPTQ, compressed-tensors, ModelOpt (FP8 has one scale a
tensor: aws-neuron-sdk 81ce03ae, vllm-neuron/docs/model-recipes/llama-3.md) and the OCP specification of microscaling formats
(MXFP4: 32 elements share a scale of 8 bits).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeGuard

_SCALE_BITS = 16
_FLOAT_BITS = 32
_FLOAT4_SCALE_BITS = 8
"""NVFP4 has scales in FP8."""


@dataclass(frozen=True)
class Quantization:
    """How a checkpoint is quantized. All linear layers are, except the output layer, or only the routed experts."""

    method: str
    """``quant_method`` in config.json."""
    bits: int
    """Bits of a weight."""
    group: int = 0
    """Weights that share a scale; 0: a whole channel or tensor does, whose scales count for nothing."""
    scale_bits: int = 0
    """Bits of what such a group shares: its scale, and its zero point where there is one."""
    experts_only: bool = False
    plain_attention: bool = False
    """Whether the checkpoint leaves the layers of attention as they are."""
    integer_activations: bool = False
    """Whether the arithmetic is that of 8-bit integers, for activations too."""
    partly: bool = False
    """Whether the checkpoint names layers that it leaves as they are, beside those that nobody quantizes."""

    plain_layers: frozenset[int] = frozenset()
    """Layers, from 0, whose attention or state the checkpoint leaves as it is, where it does so in some only."""
    plain_states: bool = False
    """Whether it leaves layers with a state as they are in a way that nobody counts."""
    fp8_cache: bool = False
    """Whether vLLM keeps the KV cache in FP8 without a flag, because the checkpoint says so."""

    @property
    def form(self) -> str:
        """What kernels differ by: the method, and what of its weights."""
        parts = [self.method]
        parts += [str(self.bits)] if self.method in ("gptq", "compressed-tensors") else []
        if self.method == "compressed-tensors" and self.bits == 4 and self.scale_bits != _SCALE_BITS:
            parts.append("floats" if self.scale_bits == _FLOAT4_SCALE_BITS else "zeros")
        parts += ["integers"] if self.integer_activations else ["blocks"] if self.method == "fp8" and self.group else []
        return "-".join(parts)

    @property
    def bits_per_weight(self) -> Fraction:
        """Bits of one weight with its part of the scale."""
        return self.bits + Fraction(self.scale_bits if self.group else 0, self.group or 1)

    @property
    def unit(self) -> int:
        """Weights of one row of a matrix that share a scale; 0: all do, or nobody knows. Blocks of fp8 are squares."""
        side = math.isqrt(self.group)
        return self.group if self.method != "fp8" else side if side * side == self.group else 0

    def size(self, weights: int) -> int:
        """Size of so many weights, in bytes, rounded up."""
        return -int(-weights * self.bits_per_weight // 8)


METHODS = ("fp8", "fbgemm_fp8", "awq", "gptq", "mxfp4", "int8", "compressed-tensors", "bitsandbytes", "modelopt", "modelopt_fp4")
"""Methods of known size."""


_NEVER = re.compile(r"(lm_head|gate|router|norm|embed_tokens|embed_out|bias|indexers_proj|eh_proj)$")
"""Layers that no checkpoint quantizes, whatever the method."""
_ATTENTION = re.compile(r"self_attn(\W*$|\.\w{1,4}_proj)")
"""Its layers, in the names and patterns of checkpoints; not what indexes or normalises it."""
_STATE = re.compile(r"linear_attn(\W*$|\.(in_proj(_qkvz?|_z)?|out_proj)$)|mixer\.(in_proj|out_proj|[qkvo]_proj)$")
"""Layers with a state; those of an architecture that calls all its layers mixers."""
_NUMBERED = re.compile(r"layers\.(\d+)\.mixer\.(?!conv)")


def quantization(config: Mapping[str, Any]) -> Quantization | None:
    """Returns what a ``quantization_config`` says; None when the size of a weight cannot be told from it."""
    nested = config.get("quantization")  # ModelOpt's own file (vLLM, ModelOptQuantConfigBase.from_config)
    config = {"quant_method": "modelopt", **nested} if isinstance(nested, dict) else config
    found = _whole(config)
    spared = config.get("ignore") or config.get("modules_to_not_convert") or config.get("exclude_modules")
    spared = [str(one) for one in spared if not _NEVER.search(str(one))] if isinstance(spared, list) else []
    if found is None:
        return None
    found = replace(found, fp8_cache=_fp8_cache(config))
    if not spared:
        return found
    plain = any(_ATTENTION.search(one) and "vis" not in one for one in spared)
    only = found.experts_only or (plain and any("shared_expert" in one for one in spared))
    states = [one for one in spared if _STATE.search(one)]
    numbered = [_NUMBERED.search(state) for state in states]
    return replace(
        found,
        partly=True,
        plain_attention=plain and not only,
        experts_only=only,
        plain_layers=frozenset(int(one[1]) for one in numbered if one),
        plain_states=bool(states) and not only and None in numbered,
    )


def _fp8_cache(config: Mapping[str, Any]) -> bool:
    """vLLM 0.30.0, ``get_kv_cache_quant_algo_string``; ``Attention`` of checkpoints in compressed-tensors."""
    scheme, algorithm = config.get("kv_cache_scheme"), config.get("kv_cache_quant_algo")
    floats = isinstance(scheme, dict) and scheme.get("num_bits") == 8 and scheme.get("type") == "float"
    modelopt = str(config.get("quant_method")).startswith("modelopt")
    return (floats and (modelopt or config.get("quant_method") == "compressed-tensors")) or (modelopt and algorithm == "FP8")


def _whole(config: Mapping[str, Any]) -> Quantization | None:
    method, bits = config.get("quant_method"), config.get("bits", config.get("w_bit", 4))
    group = config.get("group_size", config.get("q_group_size", 128))
    match method:
        case "fp8" | "fbgemm_fp8":
            block = config.get("weight_block_size")
            sides = block if isinstance(block, list) and len(block) == 2 and all(_positive(side) for side in block) else None
            return Quantization(method, 8, sides[0] * sides[1] if sides else 0, _FLOAT_BITS if sides else 0)
        case "int8":
            return Quantization(method, 8)
        case "modelopt" if config.get("quant_algo") == "FP8":
            return Quantization(method, 8)
        case "modelopt" | "modelopt_fp4" if config.get("quant_algo") == "NVFP4":
            return Quantization("modelopt_fp4", 4, 16, _FLOAT4_SCALE_BITS)
        case "mxfp4":
            return Quantization(method, 4, 32, 8, experts_only=True)
        case "awq" | "gptq" if _positive(bits) and bits <= 8 and isinstance(group, int):
            return Quantization(method, bits, max(group, 0), _SCALE_BITS + bits if group > 0 else 0)
        case "bitsandbytes" if config.get("load_in_8bit") is True:
            return Quantization(method, 8)
        case "bitsandbytes" if config.get("load_in_4bit") is True:
            return Quantization(method, 4, 64, 8 if config.get("bnb_4bit_use_double_quant") is True else _FLOAT_BITS)
        case "compressed-tensors":
            return _compressed(config)
        case _:
            return None


def _compressed(config: Mapping[str, Any]) -> Quantization | None:
    """compressed-tensors: groups of layers, each with the format of its weights. All groups must have the same."""
    groups = config.get("config_groups")
    found = {_grouped(group) for group in groups.values()} if isinstance(groups, dict) else set()
    return found.pop() if len(found) == 1 else None


def _grouped(one: Any) -> Quantization | None:
    weights = one.get("weights") if isinstance(one, dict) else None
    if not isinstance(weights, dict):
        return None
    bits, size = weights.get("num_bits"), weights.get("group_size")
    if not _positive(bits) or bits > 8:
        return None
    activations = one.get("input_activations")
    integers = bits == 8 and weights.get("type") == "int" and isinstance(activations, dict) and activations.get("type") == "int"
    grouped = _positive(size)
    floats = bits == 4 and weights.get("type") == "float"
    scale = _FLOAT4_SCALE_BITS if floats else _SCALE_BITS if weights.get("symmetric", True) else _SCALE_BITS + bits
    return Quantization(
        "compressed-tensors",
        bits,
        size if grouped else 0,
        scale if grouped else 0,
        integer_activations=integers,
    )


def _positive(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
