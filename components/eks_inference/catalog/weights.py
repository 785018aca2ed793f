"""How many weights a decoder has, by the structure of its architecture (``architectures.toml``). Pure.

A formula counts what an engine loads to generate text: embedding, layers, final norm and output layer. It leaves out vision and
audio towers and extra layers for speculation (``num_nextn_predict_layers``), which are checkpoints of their own to an engine.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from eks_inference.catalog.architectures import Architecture

STATES = ("state_heads", "state_keys", "state_dim", "state_value_dim", "conv")
"""Numbers that decide the size of a state."""


@dataclass(frozen=True, kw_only=True)
class Layers:
    """The numbers that decide the size of a decoder's layers."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    """Width of the MLP."""
    biased: bool = False
    """Whether the parts that may have a bias have it (``Architecture.biases``)."""
    experts: int = 0
    """Routed experts of a layer; 0: the model has none."""
    experts_used: int = 0
    """Routed experts of a layer that one token reaches; 0: unknown, or the model has none."""
    expert_mlp: int = 0
    """Width of one expert; 0: ``mlp``."""
    shared_mlp: int = 0
    """Width of all shared experts of a layer together."""
    expert_layers: int = 0
    """Layers with experts; the others have an MLP of width ``mlp``."""
    q_rank: int = 0
    kv_rank: int = 0
    nope_dim: int = 0
    rope_dim: int = 0
    value_dim: int = 0
    """Latent attention (MLA): ranks of queries (0: not compressed) and keys, and parts of a head."""
    index_heads: int = 0
    index_dim: int = 0
    index_layers: int = 0
    """The index of sparse attention (DSA): its heads, their width, and the layers that have one; the others use that before."""
    full_every: int = 0
    """Every so many layers one attends to all tokens; the others keep a state of fixed size (gated DeltaNet). 0: all attend."""
    state_heads: int = 0
    state_keys: int = 0
    state_dim: int = 0
    state_value_dim: int = 0
    conv: int = 0
    """Layers with a state: heads of values and of keys, widths of a head of keys and of values, tokens of the convolution."""
    encoder_layers: int = 0
    heard: int = 0
    mel: int = 0
    """What hears (Whisper): its layers, the positions of 30 seconds, which every layer of the decoder attends to, and the bands
    of a spectrum. 0: nothing."""

    @property
    def state_layers(self) -> int:
        """Layers that keep a state, and no keys and values."""
        return self.layers - self.layers // self.full_every if self.full_every else 0

    def has_state(self, layer: int) -> bool:
        """Whether the layer of that number, from 0, keeps a state."""
        return bool(self.full_every) and (layer + 1) % self.full_every > 0

    @property
    def mixed(self) -> int:
        """Width of what the convolution of a layer with a state reads: queries, keys and values."""
        return 2 * self.state_keys * self.state_dim + self.state_heads * self.state_value_dim


@dataclass(frozen=True)
class Part:
    """Weights of a layer that an engine splits alike among the devices of a copy."""

    count: int
    split: Literal["heads", "kv_heads", "width", "experts", "whole"]
    """What is divided; ``whole``: every device holds them all."""
    linear: bool = True
    """Whether they are the matrix of a linear layer, which a quantization converts."""


def of_layers(model: Layers, kind: Architecture) -> int:
    """Number of weights of all layers, with those of what hears."""
    dense, sparse = (_count(layer(model, kind, sparse=one)) for one in (False, True))
    states = model.state_layers * (_count(_state(model)) - _count(_attention(model, kind)))
    return (model.layers - model.expert_layers) * dense + model.expert_layers * sparse + states + _count(encoder(model, kind))


def _count(parts: Iterable[Part]) -> int:
    return sum(part.count for part in parts)


def layer(model: Layers, kind: Architecture, *, sparse: bool, state: bool = False) -> tuple[Part, ...]:
    """One layer: with experts (``sparse``), or with one MLP; with attention, or with a ``state``."""
    attention = _state(model) if state else _attention(model, kind)
    routed = (*_experts(model, kind), *_mlp(model, kind, model.shared_mlp), Part(model.hidden * model.experts, "whole", False))
    norms = Part(kind.norms * norm(model, kind), "whole", False)
    attention *= 2 if model.heard else 1  # to what is written, and to what is heard
    return (*attention, norms, *(routed if sparse else _mlp(model, kind, model.mlp)))


def encoder(model: Layers, kind: Architecture) -> tuple[Part, ...]:
    """What hears: layers that attend to themselves, two convolutions, positions and a norm (vLLM 0.30.0, ``WhisperEncoder``)."""
    if not model.encoder_layers:
        return ()
    layers = (*_attention(model, kind), *_mlp(model, kind, model.mlp), Part(2 * norm(model, kind), "whole", False))
    others = model.hidden * (3 * (model.mel + model.hidden) + 2 + model.heard) + norm(model, kind)
    return (*(replace(one, count=model.encoder_layers * one.count) for one in layers), Part(others, "whole", False))


def attention(model: Layers, kind: Architecture) -> int:
    """Number of weights in the linear layers of all attention."""
    one = layer(model, kind, sparse=False)
    return model.layers * sum(part.count for part in one if part.linear and part.split not in ("width", "experts"))


def norm(model: Layers, kind: Architecture) -> int:
    """One norm as wide as a layer."""
    return model.hidden * (2 if kind.norm_bias else 1)


def _attention(model: Layers, kind: Architecture) -> tuple[Part, ...]:
    return (*_latent_attention(model), *_index(model)) if kind.latent else _grouped_attention(model, kind)


def _state(model: Layers) -> tuple[Part, ...]:
    """Gated DeltaNet: projections of what is mixed, of the gate, of two numbers a head, and back; the convolution, two numbers a
    head and a norm (vLLM 0.30.0, ``QwenGatedDeltaNetAttention``)."""
    values = model.state_heads * model.state_value_dim
    return (
        Part(model.hidden * (model.mixed + 2 * values + 2 * model.state_heads), "heads"),
        Part(model.mixed * model.conv + 2 * model.state_heads, "heads", False),
        Part(model.state_value_dim, "whole", False),
    )


def _grouped_attention(model: Layers, kind: Architecture) -> tuple[Part, ...]:
    """Attention with heads of its own for queries and as many or fewer for keys and values (MHA, GQA, MQA)."""
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    qkv, output = _biased(model, kind, "qkv"), _biased(model, kind, "output")
    return (
        Part((3 if kind.output_gate else 2) * model.hidden * queries, "heads"),
        Part(queries * qkv + (model.heads if kind.sinks else 0), "heads", False),
        Part(2 * model.hidden * keys, "kv_heads"),
        Part(2 * keys * qkv, "kv_heads", False),
        Part(model.hidden * output + (2 * model.head_dim if kind.head_norms else 0), "whole", False),
    )


def _latent_attention(model: Layers) -> tuple[Part, ...]:
    """Attention whose keys and values come from one latent vector, which every device computes (MLA; DeepSeek-V2, 2.1)."""
    query = model.heads * (model.nope_dim + model.rope_dim)
    up = model.kv_rank * model.heads * (model.nope_dim + model.value_dim)
    return (
        Part((model.q_rank or model.hidden) * query + up + model.heads * model.value_dim * model.hidden, "heads"),
        Part(model.hidden * (model.q_rank + model.kv_rank + model.rope_dim), "whole"),
        Part(model.q_rank + model.kv_rank, "whole", False),
    )


def _index(model: Layers) -> tuple[Part, ...]:
    """What an index adds to a layer, on average (vLLM 0.30.0, ``DeepseekV32Indexer``: only its queries are quantized)."""
    queries = model.q_rank * model.index_heads * model.index_dim
    keys = model.hidden * (model.index_dim + model.index_heads) + 2 * model.index_dim
    share = Fraction(model.index_layers, model.layers)
    return Part(int(queries * share), "whole"), Part(int(keys * share), "whole", False)


def _mlp(model: Layers, kind: Architecture, width: int) -> tuple[Part, ...]:
    """One MLP of that width; none has width 0."""
    matrices, biased = 3 if kind.gated else 2, bool(width) and _biased(model, kind, "mlp")
    return (
        Part(matrices * model.hidden * width, "width"),
        Part((matrices - 1) * width * biased, "width", False),
        Part(model.hidden * biased, "whole", False),
    )


def _experts(model: Layers, kind: Architecture) -> tuple[Part, ...]:
    """All routed experts."""
    width, matrices = model.expert_mlp or model.mlp, 3 if kind.gated else 2
    bias = (2 * width + model.hidden) * _biased(model, kind, "experts")
    return Part(model.experts * matrices * model.hidden * width, "experts"), Part(model.experts * bias, "experts", False)


def _biased(model: Layers, kind: Architecture, part: str) -> bool:
    return model.biased and part in kind.biases
