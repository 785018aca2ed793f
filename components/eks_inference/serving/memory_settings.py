"""What an engine takes of one core or GPU beside weights and KV cache, LoRA adapters included, and what flags, environment and
features say about it. Pure.

vLLM reserves room for ``max_loras`` adapters of ``max_lora_rank`` beside each linear layer and each expert, and in some
architectures beside embedding and output layer: the factor A is as wide as what the layer reads, the factor B as what it writes.
A device holds its part of what the devices of a copy divide. Source: vllm 0.30.0, vllm/lora/layers; tests have what the engine
itself reserves.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.engine_facts import Reserve, dtype_bytes
from eks_inference.catalog.engines import EngineProfile, KvPool
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model, find_model
from eks_inference.serving.choosing import USUAL_SEQUENCES
from eks_inference.serving.features import EngineFeatures, most
from eks_inference.serving.flag_values import size
from eks_inference.serving.flags import flag, number, object_flag, plugin_settings, switched
from eks_inference.serving.split import Parallel, expert_width, experts_of_a_device, parallel

# vLLM on GPUs runs the largest step that its settings allow, samples as many sequences as it may hold, and leaves the rest of its
# share to the KV cache. Its peak is that of sampling, which neither length of sequences nor split of the model changes, plus the
# hidden states of the step. The terms and their sources are data: ``catalog/reserves.toml``. docs/memory.md has measurements.

GIB = 1024**3
_FLOAT_BYTES = 4
_HIDDEN_BYTES = 2
_TOWER_WORK = "tower at work"
_INDEX_WORK = "index at work"
_HEARING = "encoder at work"
_INDEX_SEQUENCES = 40
"""Sequences whose keys an index gathers at once, beside 0.5 GiB of scores (vLLM 0.30.0, ``get_max_prefill_buffer_size``)."""


@dataclass(frozen=True)
class Term:
    """One part of what an engine takes."""

    what: str
    size: float
    """In bytes."""
    factors: str = ""
    """How the size is computed; empty where it is a figure of the catalog."""


@dataclass(frozen=True)
class Reserved:
    """What one core or GPU holds beside weights and KV cache."""

    reserve: Reserve
    model: Model
    instance: InstanceType
    parts: int
    """Cores or GPUs that one copy of the model occupies."""
    sequences: int
    """Sequences at once (``--max-num-seqs``)."""
    step_tokens: int
    """Tokens of one step (``--max-num-batched-tokens``)."""
    eager: bool = False
    """Whether the engine runs without CUDA graphs (``--enforce-eager``)."""
    adapters: int = 0
    """Bytes of the room for adapters."""
    longest: int = 0
    """Tokens of the longest sequence (``--max-model-len``)."""
    seen: int = 0
    """Tokens of pictures or of a video that the engine works on at once; 0: it takes none."""
    tried: bool = True
    """Whether it works on as many when it starts."""

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        return tuple(term for term in self._terms() if term.size)

    def _terms(self) -> Iterator[Term]:
        row, model = self.reserve, self.model
        context = row.several_gpus_gib if self.parts > 1 else row.one_gpu_gib
        yield Term("CUDA context", context * GIB)
        physical = self.instance.physical_cores_per_device / (self.instance.cores_per_device or 1)
        yield Term("runtime", row.physical_core_gib * physical * GIB)
        if row.sampler_copies:
            yield Term(
                "sampling",
                row.sampler_copies * self.sequences * model.vocabulary * _FLOAT_BYTES + row.sampler_gib * GIB,
                f"{row.sampler_copies:g} x {self.sequences} sequences x {model.vocabulary} x {_FLOAT_BYTES} bytes"
                + (f" + {row.sampler_gib:g} GiB" if row.sampler_gib else ""),
            )
            yield Term(
                "hidden states",
                self.step_tokens * model.hidden * _HIDDEN_BYTES,
                f"{self.step_tokens} tokens x {model.hidden} x {_HIDDEN_BYTES} bytes",
            )
        yield from self._of_pictures()
        if model.index_layers:
            keys = f"{_INDEX_SEQUENCES} x {self.longest} tokens x {model.index_bytes} bytes + 0.5 GiB"
            yield Term(_INDEX_WORK, _INDEX_SEQUENCES * self.longest * model.index_bytes + GIB / 2, keys)
        if model.heard:
            width = model.mlp + 4 * model.hidden
            factors = f"{self.step_tokens} tokens x {width} x {_HIDDEN_BYTES} bytes"
            yield Term(_HEARING, self.step_tokens * width * _HIDDEN_BYTES, factors)
        yield Term("CUDA graphs", 0 if self.eager else row.graphs_gib * GIB)
        yield Term("adapters", self.adapters)

    def _of_pictures(self) -> Iterator[Term]:
        """First the tower computes its largest picture, then the decoder its largest step: the larger of both counts."""
        tower = self.model.tower
        if tower is None or not self.seen:
            return
        made = self.seen * tower.levels + self.step_tokens * (tower.levels - 1)
        yield Term("pictures", made * tower.hidden * _HIDDEN_BYTES, f"{made} embeddings x {tower.hidden} x {_HIDDEN_BYTES} bytes")
        step = self.sequences * self.model.vocabulary * _FLOAT_BYTES * self.reserve.sampler_copies
        beyond = self.seen * tower.activation_bytes - step if self.tried else 0
        yield Term(_TOWER_WORK, max(beyond, 0), f"{self.seen} tokens x {tower.activation_bytes} bytes, less sampling")

    @cached_property
    def size(self) -> int:
        """The sum in bytes."""
        return int(sum(term.size for term in self.terms))

    @property
    def margin(self) -> int | None:
        """How far the sum may be off, in bytes; None: unknown. Of towers, indexes and encoders, which nobody
        measured, half the work is in it."""
        if self.reserve.margin_gib is None:
            return None
        work = sum(term.size for term in self.terms if term.what in (_TOWER_WORK, _INDEX_WORK, _HEARING))
        return int(self.reserve.margin_gib * GIB + work / 2)

    @property
    def working(self) -> tuple[str, ...]:
        """The calculation, one line; none where nothing is known."""
        if not self.terms:
            return ()
        terms = [f"{term.what} {term.factors + ' = ' if term.factors else ''}{term.size / GIB:.2f}" for term in self.terms]
        sum_ = f" = {self.size / GIB:.2f} GiB" if len(terms) > 1 else " GiB"
        margin = "" if self.margin is None else f", within {self.margin / GIB:.3g} GiB"
        return (f"beside weights and KV cache: {' + '.join(terms)}{sum_}{margin}",)


_QUANTIZED_BYTES = {
    "fp8": 1,
    "fp8_per_block": 1,
    "fp8_per_channel": 1,
    "fp8_per_tensor": 1,
    "int8": 1,
    "int8_per_channel_weight_only": 1,
}
"""Size of one weight by quantization, without its scales (vLLM documentation, "Online Quantization")."""

_KEPT_WHOLE = ("kv-transfer-config", "kv-events-config", "disable-hybrid-kv-cache-manager", "disable-sliding-window")
"""Flags with which vLLM keeps every token of every layer (``VllmConfig``: the hybrid KV cache manager is then off)."""

_CACHE_BYTES = {"fp8": 1, "int8": 1, "int4": 0.5, "nvfp4": 0.5625}
"""Bytes of an element by how the type of the KV cache begins; 16 elements of NVFP4 share a scale of a byte."""
_CACHE_SCALE_BYTES = 4
"""Bytes beside each head, for types that end with ``_per_token_head``."""

_WITHOUT_OVERLAP = ("ngram", "[ngram]", "suffix", "medusa", "mlp_speculator", "custom_class")
"""Speculation beside which steps do not overlap (``VllmConfig.__post_init__``)."""

_MOST_TOKENS = 1 << 40
"""The most tokens in a step. Larger values mean the same, and arithmetic with them overflows."""


@dataclass(frozen=True)
class MemorySettings:
    """Settings of a user that affect the calculation. The defaults are those of the engines."""

    dtype: str = "auto"
    """Type of weights and arithmetic (``--dtype``)."""
    quantized_bytes: int | None = None
    """Bytes of one weight that a quantization converts; None: there is none."""
    draft_bytes: int = 0
    """Weights of a draft model, split like the model's."""
    draft: Model | None = None
    """The shape of the draft model, which has a KV cache of its own. None: there is none, or its shape is unknown."""
    kv_bytes: float | None = None
    """Bytes of one element of the KV cache; None: as the arithmetic has it."""
    kv_scale_bytes: int = 0
    """Bytes of the scale that each head of a token has in it."""
    utilization: float = 0.90
    """Share of the device that paged engines use. vLLM's default was 0.90 and is now 0.92: the smaller value is safe."""
    parallel: Parallel = field(default_factory=Parallel)
    """How the model is split beside tensor parallelism."""
    kv_pool: KvPool | None = None
    """Bounds of the KV pool; None: those of the engine's generation, if it has any."""
    step_tokens: int | None = None
    """Tokens that one step of the engine computes (``--max-num-batched-tokens``); None: as many as the engine's default is."""
    longer_steps: bool = False
    """Whether that default is twice as long (``--performance-mode=throughput``)."""
    whole_prompts: bool = False
    """Whether a step computes a prompt as a whole (``--no-enable-chunked-prefill``): the default is then no shorter than one."""
    max_num_seqs: int = USUAL_SEQUENCES
    """Sequences at once, which the engine samples together."""
    eager: bool = False
    """Whether the engine runs without CUDA graphs (``--enforce-eager``)."""
    overlaps: bool = True
    """Whether a step is scheduled while another is computed (``--async-scheduling``)."""
    whole_windows: bool = False
    """Whether layers with a window hold every token, because something else reads the KV cache."""
    kept_states: int = 2
    """States of a sequence: with prefix caching a second, as it was at the end of a page (vLLM, ``mamba_cache_mode`` align)."""
    adapter_ranks: int = 0
    """Ranks of all adapters that a GPU has room for (``--max-loras`` times ``--max-lora-rank``)."""
    videos: bool = True
    """Whether requests may have a video (``--limit-mm-per-prompt``)."""
    resized: bool = False
    """Whether pictures have another size than the model's own, and nobody knows which (``--mm-processor-kwargs``)."""
    tried: bool = True
    """Whether the engine tries the largest picture when it starts (``--skip-mm-profiling``)."""


def memory_settings(
    engine: EngineProfile, arguments: Sequence[str], environment: Mapping[str, str], model: Model | None = None
) -> MemorySettings | None:
    """Returns what flags and environment of an engine set; None when they name a quantization of unknown size.

    A flag may name the quantization that the checkpoint of ``model`` has anyway, also with its kernel (``awq_marlin``).
    """
    defaults = MemorySettings()
    compiled = plugin_settings(engine, arguments) or {}  # NxD Inference feature guide, "Quantization"
    quantization = flag(arguments, "quantization") or ("int8" if compiled.get("quantized") else None)
    if quantization and model and model.quantization and quantization.startswith(model.quantization.method):
        quantization = None
    if quantization and quantization not in _QUANTIZED_BYTES:
        return None
    dtype = flag(arguments, "dtype") or "auto"
    cache = "fp8" if compiled.get("kv_cache_quant") else flag(arguments, "kv-cache-dtype") or "auto"
    utilization = number(flag(arguments, "gpu-memory-utilization"), defaults.utilization)
    loras, rank = (int(number(flag(arguments, name), default)) for name, default in (("max-loras", 1), ("max-lora-rank", 16)))
    bounds, drafts = engine.generation.kv_pool, object_flag(arguments, "speculative-config").get("method")
    return MemorySettings(
        dtype=dtype,
        quantized_bytes=_QUANTIZED_BYTES[quantization] if quantization else None,
        kv_bytes=None if cache == "auto" else _cache_bytes(cache),
        kv_scale_bytes=_CACHE_SCALE_BYTES if cache.endswith("_per_token_head") else 0,
        utilization=min(utilization, 1.0),
        parallel=parallel(arguments, 1),
        eager=bool(switched(arguments, "enforce-eager", False)),
        step_tokens=int(min(max(size(flag(arguments, "max-num-batched-tokens") or "") or 0, 0), _MOST_TOKENS)) or None,
        longer_steps=flag(arguments, "performance-mode") == "throughput",
        whole_prompts=not switched(arguments, "enable-chunked-prefill", True),
        overlaps=switched(arguments, "async-scheduling", drafts not in _WITHOUT_OVERLAP),
        adapter_ranks=loras * rank if switched(arguments, "enable-lora", False) else 0,
        kept_states=2 if switched(arguments, "enable-prefix-caching", True) else 1,
        videos=most(arguments, "video") > 0,
        resized=flag(arguments, "mm-processor-kwargs") is not None,
        tried=not switched(arguments, "skip-mm-profiling", False),
        whole_windows=any(flag(arguments, name) is not None for name in _KEPT_WHOLE),
        kv_pool=bounds
        and replace(
            bounds,
            fraction=min(number(environment.get(bounds.fraction_variable), bounds.fraction), 1.0),
            smallest_gib=number(environment.get(bounds.smallest_variable), bounds.smallest_gib),
        ),
    )


def _cache_bytes(cache: str) -> float:
    return next((size for name, size in _CACHE_BYTES.items() if cache.startswith(name)), dtype_bytes(cache))


def with_features(settings: MemorySettings, features: EngineFeatures | None) -> MemorySettings:
    """Adds what no flag tells: a checkpoint that is quantized itself, and the size of a draft model."""
    if features is None:
        return settings
    if features.quantized_weights:
        settings = replace(settings, quantized_bytes=_QUANTIZED_BYTES[features.quantized_weights])
    if features.speculation and features.speculation.draft:
        draft = find_model(features.speculation.draft)
        settings = replace(settings, draft_bytes=features.draft_bytes, draft=draft)
    return settings


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
