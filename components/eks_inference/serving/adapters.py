"""How large LoRA adapters are on a GPU. Pure.

vLLM reserves room for ``max_loras`` adapters of ``max_lora_rank`` beside each linear layer and each expert, and in some
architectures beside embedding and output layer: the factor A is as wide as what the layer reads, the factor B as what it writes.
A device holds its part of what the devices of a copy divide. Source: vllm 0.30.0, vllm/lora/layers; tests have what the engine
itself reserves.
"""

from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.models import Model
from eks_inference.serving.split import Parallel, expert_width, experts_of_a_device


def weights_of_a_rank(model: Model, split: Parallel) -> int | None:
    """Numbers that a device of the fullest stage holds of one adapter, for each unit of its rank. None: unknown."""
    kind = architectures().get(model.architecture)
    padded = model.quantization is not None and model.quantization.experts_only  # as the kernel of the experts is
    if kind is None or kind.encoder or kind.latent or model.pattern or model.state_layers or model.uncounted or padded:
        return None
    wide, parts, ups = model.hidden, split.tensor, 2 if kind.gated else 1
    read_by_qkv, read_by_ups = (1, 1) if kind.fused else (3, ups)

    def mlp(width: int, reads: int = read_by_ups) -> int:
        return reads * wide + ups * width + width + wide

    queries, keys = model.heads * model.head_dim // parts, max(model.kv_heads // parts, 1) * model.head_dim
    attention = read_by_qkv * wide + (queries + 2 * keys) + queries + wide
    router = wide + model.experts
    shared = mlp(model.shared_mlp // parts) if model.shared_mlp else 0
    routed = experts_of_a_device(model, split) * mlp(expert_width(model, split), ups)
    dense = model.layers - model.expert_layers
    fullest = max(
        sum(attention + (mlp(model.mlp // parts) if one < dense else router + shared + routed) for one in stage)
        for stage in split.layers(model.layers)
    )
    return fullest + (2 * (wide + model.vocabulary) if kind.adapted_tables else 0)
