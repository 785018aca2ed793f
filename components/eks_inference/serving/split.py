"""How an engine splits one model over devices, and what each of them then holds of its weights. Pure.

Source: vLLM 0.30.0, ``ParallelConfig``, ``FusedMoEParallelConfig.make``, ``get_pp_indices``, and the layers of its models. What
is not divided (norms, routers, the down-projections of latent attention, tables of rotary positions) is on every device.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

from eks_inference.catalog import weights
from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.engine_facts import Capability, EngineFacts, Pads
from eks_inference.catalog.models import Model
from eks_inference.catalog.quantization import Quantization
from eks_inference.serving.flags import flag, number, switched

_VOCABULARY_UNIT = 64
"""What vLLM rounds the rows of embedding and output layer up to."""
_SMALLEST_GROUP = 32


FLAGS = ("pipeline-parallel-size", "data-parallel-size", "prefill-context-parallel-size")
"""Flags that split a model over more GPUs than tensor parallelism does."""


@dataclass(frozen=True)
class Parallel:
    """How many parts a model is split into, each way."""

    tensor: int = 1
    stages: int = 1
    """Pipeline stages, each with some of the layers (``--pipeline-parallel-size``)."""
    ranks: int = 1
    """Copies of all but the experts, which the ranks share (``--data-parallel-size``)."""
    prefill_context: int = 1
    """Parts of a prompt that GPUs of their own process (``--prefill-context-parallel-size``)."""
    decode_context: int = 1
    """Parts of the KV cache of a sequence, among the GPUs of ``tensor`` (``--decode-context-parallel-size``)."""
    expert: bool = False
    """Whether a device holds whole experts, and not a part of each (``--enable-expert-parallel``)."""

    @property
    def devices(self) -> int:
        """Devices of one pod."""
        return self.tensor * self.stages * self.ranks * self.prefill_context

    @property
    def sharing_experts(self) -> int:
        """Devices that the experts of a layer are on."""
        return self.tensor * self.ranks * self.prefill_context

    def layers(self, count: int) -> list[range]:
        """The layers of each stage: what is left over goes to stages before the last."""
        stages = min(self.stages, count + 2)  # more have no layer, as the first and the last of so many
        sizes = [count // stages] * stages
        for late in range(2, count % stages + 2):
            sizes[-late] += 1
        return [range(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]


def parallel(arguments: Sequence[str], tensor: int) -> Parallel:
    """Returns how the flags of vLLM split a model."""

    def size(name: str) -> int:
        return max(int(number(flag(arguments, name), 1)), 1)

    stages, ranks, prefill = map(size, FLAGS)
    return Parallel(
        tensor=tensor,
        stages=stages,
        ranks=ranks,
        prefill_context=prefill,
        decode_context=size("decode-context-parallel-size"),
        expert=bool(switched(arguments, "enable-expert-parallel", False)),
    )


@dataclass(frozen=True)
class Widths:
    """Sizes of weights."""

    plain: int
    """Bytes of one that is not quantized."""
    online: int | None = None
    """Bytes of one that the engine converts when it loads it; None: it converts none."""
    pads: Pads | None = None
    """What the kernel of a checkpoint's experts adds to them."""


@dataclass(frozen=True)
class Held:
    """What one device of a stage holds of the weights, in bytes."""

    experts: int
    """Its part of the routed experts."""
    divided: int
    """Its part of what is divided otherwise."""
    whole: int
    """What each device holds whole."""

    @property
    def size(self) -> int:
        return self.experts + self.divided + self.whole


@lru_cache
def held(model: Model, split: Parallel, widths: Widths) -> tuple[Held, ...] | None:
    """Returns what a device of each stage holds; None for a model of whose layers nobody wrote a formula."""
    kind = architectures().get(model.architecture)
    if kind is None:
        return None
    found = model.quantization
    spared = found.plain_layers if found else frozenset[int]()
    kinds = [(*one, number in spared) for number, one in enumerate(model.kinds())]
    sizes = {}
    for mixer, sparse, left in set(kinds):
        one = replace(weights.unwindowed(model, mixer), quantization=None if left else found)
        sizes[mixer, sparse, left] = _sizes(one, split, widths, weights.layer(model, kind, mixer, sparse))
    rotary, positions = kind.rotary_tables * model.max_positions * (model.rope_dim or model.head_dim // kind.rotated), 0
    if kind.learned_positions is not None:
        rotary, count = 0, model.max_positions + kind.learned_positions
        positions = (_padded(count) // split.tensor if kind.encoder else count) * model.hidden  # encoders: VocabParallelEmbedding
    width = model.embedding_width or model.hidden
    table = _padded(model.vocabulary) * width * widths.plain // (1 if kind.hears else split.tensor)
    hearing = _sizes(model, split, widths, weights.encoder(model, kind))
    projection = width * model.hidden if width != model.hidden else 0
    found = []
    stages = split.layers(model.layers)
    for stage, there in enumerate(stages):
        first, last = stage == 0, stage == len(stages) - 1
        layers = [sum(sizes[kinds[number]][column] for number in there) for column in range(3)]
        untied = not model.tied_embeddings
        tables = int(first or (last and not untied)) + int(last and untied)
        if kind.tables_everywhere or kind.embedding_everywhere:
            tables = 1 + int(untied and (last or kind.tables_everywhere))
        whole = rotary + first * (positions + projection) + last * (projection + weights.norm(model, kind))
        divided = tables * table
        if model.tower:  # in every stage (vLLM 0.30.0, __init__ of the models)
            divided += model.tower.divided * widths.plain // split.tensor
            whole += model.tower.whole
        found.append(Held(layers[0], layers[1] + divided + hearing[1], layers[2] + whole * widths.plain + hearing[2]))
    return tuple(found)


def _padded(rows: int) -> int:
    return -(-rows // _VOCABULARY_UNIT) * _VOCABULARY_UNIT


def _sizes(model: Model, split: Parallel, widths: Widths, parts: Sequence[weights.Part]) -> tuple[int, int, int]:
    """Experts, divided and whole weights of one layer on one device."""
    experts = divided = whole = 0
    for part in parts:
        size = part.count * _bits(model, split, widths, part) / 8
        if part.split == "experts":
            experts += int(size * _share_of_experts(model, split) * _grown(model, split, widths, part))
        elif part.split == "whole":
            whole += int(size)
        else:
            copies = model.kv_heads_at(split.tensor) if part.split == "kv_heads" else 1
            divided += int(size * copies / ((model.kv_heads if part.split == "kv_heads" else 1) * split.tensor))
    return experts, divided, whole


def _bits(model: Model, split: Parallel, widths: Widths, part: weights.Part) -> Fraction:
    quantization = model.quantization
    if not part.linear:
        return Fraction(8 * widths.plain)
    if quantization is None:
        return Fraction(8 * (widths.online or widths.plain))
    if part.split != "experts":
        plain = quantization.experts_only or (quantization.plain_attention and part.split != "width")
        return Fraction(8 * widths.plain) if plain else quantization.bits_per_weight
    return _refined(quantization, model, split).bits_per_weight


def _refined(quantization: Quantization, model: Model, split: Parallel) -> Quantization:
    """Groups of experts become smaller until they divide a shard (``MoeWNA16Method``, which keeps no zero points of GPTQ)."""
    group, width = quantization.group, expert_width(model, split)
    while quantization.method in ("awq", "gptq") and group > _SMALLEST_GROUP and (width % group or model.hidden % group):
        group //= 2
    zeros = quantization.bits if quantization.method == "gptq" and group < quantization.group else 0
    return replace(quantization, group=group, scale_bits=quantization.scale_bits - zeros)


def expert_width(model: Model, split: Parallel) -> int:
    """Width of one expert on a device."""
    width = model.expert_mlp or model.mlp
    return width if split.expert else -(-width // split.sharing_experts)


def experts_of_a_device(model: Model, split: Parallel) -> int:
    """Experts of a layer that a device has, whole or a part of each."""
    return -(-model.experts // split.sharing_experts) if split.expert else model.experts


def _share_of_experts(model: Model, split: Parallel) -> Fraction:
    return Fraction(experts_of_a_device(model, split), model.experts * (1 if split.expert else split.sharing_experts))


def _grown(model: Model, split: Parallel, widths: Widths, part: weights.Part) -> float:
    return widths.pads.grown(model.hidden, expert_width(model, split)) if widths.pads and part.linear else 1


def inputs_in_groups(
    model: Model, split: Parallel, facts: EngineFacts, capability: Capability
) -> Iterator[tuple[str, int, int, int]]:
    """Yields the layers that are refused if a part of their inputs ends inside a group of weights that share a scale.

    What, its width, its parts, and the weights of a group.
    """
    found, unit = model.quantization, model.quantization.unit if model.quantization else 0
    if found is None or not unit:
        return
    refused_from = facts.unaligned.get(found.method)
    for what, width, parts in (
        ("inputs of the layers", model.hidden, 1),
        ("compressed queries", model.q_rank, 1),
        ("compressed keys", model.kv_rank, 1),
        ("inputs of the attention's output", model.heads * (model.value_dim or model.head_dim), split.tensor),
        ("inputs of the MLP's output", model.mlp if model.expert_layers < model.layers else 0, split.tensor),
        ("inputs of the shared experts' output", model.shared_mlp, split.tensor),
    ):
        if width and refused_from and parts >= refused_from:
            yield what, width, parts, unit
    if model.kv_rank and found.method == "fp8" and refused_from and split.tensor >= refused_from:
        yield "outputs of the layer of keys and values", model.heads * (model.nope_dim + model.value_dim), split.tensor, unit
    smallest = facts.expert_group(found, capability)
    if model.experts and smallest is not None:
        parts = 1 if split.expert else split.sharing_experts
        yield "inputs of an expert's output", model.expert_mlp or model.mlp, parts, min(smallest or unit, unit)
