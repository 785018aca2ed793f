"""How many weights a decoder has, by the structure of its architecture (``architectures.toml``). Pure.

A formula counts what an engine loads to generate text: embedding, layers, final norm and output layer. It leaves out vision and
audio towers and extra layers for speculation (``num_nextn_predict_layers``), which are checkpoints of their own to an engine.
"""

from dataclasses import dataclass

from eks_inference.catalog.architectures import Architecture


@dataclass(frozen=True, kw_only=True)
class Layers:
    """The numbers that say how large the layers of a decoder are."""

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


def of_layers(model: Layers, kind: Architecture) -> int:
    """Number of weights of all layers."""
    attention = latent_attention(model) if kind.latent else grouped_attention(model, kind)
    dense = mlp(model, kind, model.mlp)
    sparse = experts(model, kind) + mlp(model, kind, model.shared_mlp) + model.hidden * model.experts
    dense_layers = model.layers - model.expert_layers
    return model.layers * (attention + kind.norms * norm(model, kind)) + dense_layers * dense + model.expert_layers * sparse


def norm(model: Layers, kind: Architecture) -> int:
    """One norm as wide as a layer."""
    return model.hidden * (2 if kind.norm_bias else 1)


def grouped_attention(model: Layers, kind: Architecture) -> int:
    """Attention of one layer with heads of its own for queries and as many or fewer for keys and values (MHA, GQA, MQA)."""
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    biases = (queries + 2 * keys) * _biased(model, kind, "qkv") + model.hidden * _biased(model, kind, "output")
    norms = 2 * model.head_dim if kind.head_norms else 0
    return 2 * model.hidden * (queries + keys) + biases + norms + (model.heads if kind.sinks else 0)


def latent_attention(model: Layers) -> int:
    """Attention of one layer whose keys and values come from one latent vector (MLA; DeepSeek-V2, section 2.1)."""
    query = model.heads * (model.nope_dim + model.rope_dim)
    queries = (model.hidden + query + 1) * model.q_rank if model.q_rank else model.hidden * query
    down = model.hidden * (model.kv_rank + model.rope_dim) + model.kv_rank
    up = model.kv_rank * model.heads * (model.nope_dim + model.value_dim)
    return queries + down + up + model.heads * model.value_dim * model.hidden


def mlp(model: Layers, kind: Architecture, width: int) -> int:
    """One MLP of that width; none has width 0."""
    matrices = 3 if kind.gated else 2
    bias = ((matrices - 1) * width + model.hidden) * _biased(model, kind, "mlp") if width else 0
    return matrices * model.hidden * width + bias


def experts(model: Layers, kind: Architecture) -> int:
    """All routed experts of one layer."""
    width = model.expert_mlp or model.mlp
    bias = (2 * width + model.hidden) * _biased(model, kind, "experts")
    return model.experts * (mlp(model, kind, width) + bias)


def _biased(model: Layers, kind: Architecture, part: str) -> bool:
    return model.biased and part in kind.biases
