"""How many weights a decoder has, by the structure of its architecture (``architectures.toml``). Pure.

A formula counts what an engine loads to generate text: embedding, layers, final norm and output layer. It leaves out vision and
audio towers and extra layers for speculation (``num_nextn_predict_layers``), which are checkpoints of their own to an engine.
"""

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal, TypeVar

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
    expert_hidden: int = 0
    """Width of what experts read, where a projection leads to it and one back; 0: that of a layer."""
    full_heads: int = 0
    full_kv_heads: int = 0
    full_head_dim: int = 0
    """Heads of layers without a window, and their width, where those with one have others; 0: they have the same."""
    full_every: int = 0
    """Every so many layers one attends to all tokens; the others keep a state of fixed size (gated DeltaNet). 0: all attend."""
    pattern: str = ""
    """What each layer has, a letter each, where no rule says it: ``*`` attention to all tokens, ``W`` to a window, ``M`` a state,
    ``E`` experts alone, ``-`` an MLP alone."""
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

    @cached_property
    def mixers(self) -> str:
        """What each layer reads earlier tokens with: a letter of ``pattern`` each."""
        every = self.full_every
        usual = ("M" * (every - 1) + "*") * (self.layers // every) + "M" * (self.layers % every) if every else "*" * self.layers
        return self.pattern or usual

    @property
    def state_layers(self) -> int:
        """Layers that keep a state, and no keys and values."""
        return self.mixers.count("M")

    @property
    def attention_layers(self) -> int:
        """Layers that keep keys and values."""
        return self.mixers.count("*") + self.mixers.count("W")

    def kinds(self) -> list[tuple[str, bool]]:
        """Of each layer, its letter, and whether it has experts. Layers without experts come first, if no pattern says it, as in
        every model that has some of both and was checked."""
        dense = 0 if "E" in self.mixers else self.layers - self.expert_layers
        return [(one, number >= dense and bool(self.expert_layers)) for number, one in enumerate(self.mixers)]

    @property
    def mixed(self) -> int:
        """Width of what the convolution of a layer with a state reads: queries, keys and values."""
        return 2 * self.state_keys * self.state_dim + self.state_heads * self.state_value_dim

    @property
    def shared(self) -> int:
        """What every device has of it: the one group of queries and keys, where all heads have the same."""
        return 2 * self.state_dim if self.state_keys == 1 else 0


L = TypeVar("L", bound=Layers)


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
    parts = (part.count * count for one, count in Counter(model.kinds()).items() for part in layer(model, kind, *one))
    return sum(parts) + sum(part.count for part in encoder(model, kind))


def layer(model: Layers, kind: Architecture, mixer: str, sparse: bool) -> tuple[Part, ...]:
    """One layer, by its letter: with experts (``sparse``), or with one MLP."""
    routed = (*_experts(model, kind), *_mlp(model, kind, model.shared_mlp), Part(model.hidden * model.experts, "whole", False))
    rest = routed if sparse else _mlp(model, kind, model.mlp)
    norms = kind.norms + (kind.expert_norms if sparse else 0)
    if mixer in "E-":
        mixing = ()
    else:
        mixing, rest = _mixers(model, kind, mixer), () if kind.single else rest
    return (*mixing, Part(norms * norm(model, kind), "whole", False), *rest)


def spared(model: Layers, kind: Architecture, attention: bool, numbers: Container[int]) -> int:
    """Number of weights in linear layers that a quantization leaves: all ``attention``, or what layers of these numbers have."""
    mixers = enumerate(model.mixers)
    left = Counter(one for number, one in mixers if (attention and one in "*W") or (number in numbers and one in "*WM"))
    return sum(count * part.count for one, count in left.items() for part in _mixers(model, kind, one) if part.linear)


def encoder(model: Layers, kind: Architecture) -> tuple[Part, ...]:
    """What hears: layers that attend to themselves, two convolutions, positions and a norm (vLLM 0.30.0, ``WhisperEncoder``)."""
    if not model.encoder_layers:
        return ()
    layers = (*_grouped_attention(model, kind), *_mlp(model, kind, model.mlp), Part(2 * norm(model, kind), "whole", False))
    others = model.hidden * (3 * (model.mel + model.hidden) + 2 + model.heard) + norm(model, kind)
    return (*(replace(part, count=model.encoder_layers * part.count) for part in layers), Part(others, "whole", False))


def norm(model: Layers, kind: Architecture) -> int:
    """One norm as wide as a layer."""
    return model.hidden * (2 if kind.norm_bias else 1)


def _mixers(model: Layers, kind: Architecture, mixer: str) -> tuple[Part, ...]:
    if mixer == "M":
        return _state(model, kind)
    if kind.latent:
        return (*_latent_attention(model), *_index(model))
    parts = _grouped_attention(unwindowed(model, mixer), kind)
    return parts * 2 if model.heard else parts  # to what is written, and to what is heard


def unwindowed(model: L, mixer: str) -> L:
    """The model with the heads that a layer of that letter has."""
    heads, keys, width = model.full_heads, model.full_kv_heads, model.full_head_dim
    if mixer != "*" or not (heads or keys or width):
        return model
    return replace(model, heads=heads or model.heads, kv_heads=keys or model.kv_heads, head_dim=width or model.head_dim)


def _state(model: Layers, kind: Architecture) -> tuple[Part, ...]:
    """Gated DeltaNet: projections of what is mixed, of the gate, of two numbers a head, and back; the convolution, two numbers a
    head and a norm (vLLM 0.30.0, ``QwenGatedDeltaNetAttention``). Mamba-2: one number a head is projected, three are its own, the
    convolution has a bias and the norm is as wide as all heads (``MambaMixer2``)."""
    values, mixed = model.state_heads * model.state_value_dim, model.mixed - model.shared
    projected, own, further = (1, 3, mixed + values) if kind.mamba else (2, 2, 0)
    return (
        Part(model.hidden * (mixed + 2 * values + projected * model.state_heads), "heads"),
        Part(mixed * model.conv + own * model.state_heads + further, "heads", False),
        Part(model.hidden * model.shared, "whole"),
        Part(model.shared * (model.conv + 1) if kind.mamba else model.state_value_dim, "whole", False),
    )


def _grouped_attention(model: Layers, kind: Architecture) -> tuple[Part, ...]:
    """Attention with heads of its own for queries and as many or fewer for keys and values (MHA, GQA, MQA)."""
    queries, keys, value = model.heads * model.head_dim, model.kv_heads * model.head_dim, model.value_dim or model.head_dim
    written = model.kv_heads * value
    qkv, output = _biased(model, kind, "qkv"), _biased(model, kind, "output")
    return (
        Part(model.hidden * ((2 if kind.output_gate else 1) * queries + model.heads * value), "heads"),
        Part(queries * qkv + (model.heads if kind.sinks else 0), "heads", False),
        Part(model.hidden * (keys + written), "kv_heads"),
        Part((keys + written) * qkv, "kv_heads", False),
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
    width, matrices, wide = model.expert_mlp or model.mlp, 3 if kind.gated else 2, model.expert_hidden or model.hidden
    bias = (2 * width + model.hidden) * _biased(model, kind, "experts")
    return (
        Part(model.experts * matrices * wide * width, "experts"),
        Part(model.experts * bias, "experts", False),
        Part(2 * model.hidden * model.expert_hidden, "whole"),
    )


def _biased(model: Layers, kind: Architecture, part: str) -> bool:
    return model.biased and part in kind.biases
