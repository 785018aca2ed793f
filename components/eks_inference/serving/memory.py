"""Calculates the device memory of one copy of a model: weights and KV cache on each NeuronCore or GPU.

Engines manage memory in one of three ways, depending on their generation (``catalog/generations.toml``):

- *contiguous* (vLLM on Neuron up to NxD Inference): at start, the engine reserves room for ``max_num_seqs`` sequences of
  ``max_model_len`` tokens. Weights and KV cache may take the whole memory of a core.
- *paged* (vLLM on GPUs): the engine uses the share ``gpu_memory_utilization`` of the device. What the weights leave is a pool of
  pages. Sequences share the pool or wait, so only one sequence of the maximum length has to fit.
- *paged on Neuron* (vLLM without NxD Inference): as on GPUs, but the pool is at most a fraction of that share, because its size
  is compiled into the graphs, and the engine fails below a minimum pool size.

Layers with a sliding window hold every token, except in releases that were asked (``catalog/engine_facts/``).
On GPUs, ``split.py`` says what a device of each pipeline stage holds of the weights; of stages, the fullest counts.

``memory_settings.py`` adds what else the engine takes: context, sampling, graphs. The sum is sure as far as that is known: on
GPUs within a margin from measurements, on Neuron up to a tenth of the memory, as no source tells what compiled graphs take.

Sources: NxD Inference documentation (KV heads, tensor parallel degrees), Neuron documentation 2.33 ("determine_available_memory
design"), vLLM documentation (``gpu_memory_utilization``). A measurement of the source system confirms the contiguous sum: for
Llama-3-8B over 2 cores with 10 sequences of 4096 tokens it measured 21.3 GB, and this module calculates 21.43 GB.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.engine_facts import dtype_bytes, engine_facts, pads, reserve_of, resolved_dtype
from eks_inference.catalog.engines import EngineProfile, KvPool
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model
from eks_inference.serving.choosing import USUAL_SEQUENCES
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.features import kv_in_fp8, sees
from eks_inference.serving.flags import attention_backend, flag, positions
from eks_inference.serving.memory_settings import GIB, MemorySettings, Reserved, memory_settings, weights_of_a_rank, with_features
from eks_inference.serving.split import Held, Parallel, Widths, held

TIGHT = 0.9
"""Share of the available memory above which parts that cannot be calculated may no longer fit."""

_PACKED_BYTES = 656
"""One vector of 512 numbers in FP8, four scales in FP32, and 64 numbers of positions in bfloat16."""

_STEP_TOKENS = 8192
"""Tokens in a step, where the engine's own default is unknown. A large value is safe."""


@dataclass(frozen=True)
class Limit:
    """Memory in use and the limit for it, in bytes."""

    what: str
    used: int
    available: int
    margin: int | None = None
    """How far ``used`` may be off, in both directions; None: it may be larger by a tenth of what is available."""
    least: int = 0
    """What is used in any case: of what an estimate is added to."""

    @property
    def fraction(self) -> float:
        return self.used / self.available if self.available else float("inf")

    @property
    def kept(self) -> bool:
        """Whether it is kept as far as anybody can tell: what is kept only within the margin may still be."""
        return max(self.used - (self.margin or 0), self.least) <= self.available

    @property
    def surely_kept(self) -> bool:
        """Whether it is kept even if all that is uncertain turns out large."""
        return self.fraction <= TIGHT if self.margin is None else self.used + self.margin <= self.available


@dataclass(frozen=True)
class MemoryUse:
    """Memory of one NeuronCore or GPU, in bytes, with ``sequences`` of ``max_model_len`` tokens in the KV cache."""

    model: Model
    instance: InstanceType
    engine: EngineProfile
    tensor_parallel: int
    sequences: int
    max_model_len: int
    settings: MemorySettings = field(default_factory=MemorySettings)

    def of(self, sequences: int, max_model_len: int) -> "MemoryUse":
        """Returns the memory use with other sequences."""
        return replace(self, sequences=sequences, max_model_len=max_model_len)

    def with_most(self, sequences: int) -> "MemoryUse":
        """Returns the memory use with another ``max_num_seqs``."""
        return replace(self, settings=replace(self.settings, max_num_seqs=sequences))

    @property
    def unit(self) -> str:
        """What holds one part of the model."""
        return "core" if self.instance.neuron else "GPU"

    @cached_property
    def split(self) -> Parallel:
        """How the model is split over devices."""
        return replace(self.settings.parallel, tensor=self.tensor_parallel)

    @property
    def parts(self) -> int:
        """Cores or GPUs that one copy of the model occupies."""
        return self.split.tensor * self.split.stages

    @cached_property
    def dtype(self) -> str:
        """The type that the engine computes in."""
        said, capability = self.settings.dtype, self.instance.compute_capability
        if capability is not None:
            return resolved_dtype(self.engine.vllm, said, self.model, capability)
        return self.model.dtype if said == "auto" else said

    @property
    def element_bytes(self) -> float:
        """Bytes of one element of the KV cache."""
        return self.settings.kv_bytes or dtype_bytes(self.dtype)

    @property
    def weights(self) -> int:
        """What one device holds of the weights, with its part of a draft."""
        return self._stage[0]

    @property
    def kv_one(self) -> int:
        """KV cache of one sequence on one device."""
        # Of more stages than layers, the fullest may have no layer.
        return self._stage[1] or max(kv for _, kv in self._stages)

    @property
    def kv(self) -> int:
        """KV cache of the sequences on one device. Where they keep states, CUDA graphs need a page for each of ``max_num_seqs``
        (vLLM 0.30.0, ``CompilationConfig``). Of a model that hears, the engine starts where what one sequence hears may fill a
        step (``CrossAttentionSpec``)."""
        taken = self._stage[1] * self.sequences
        if self.model.heard and self.sequences:
            heard = max(self.step_tokens, self.model.crossed)
            return max(taken, (self.max_model_len + heard) * self.kv_token // self.tensor_parallel)
        if not self.model.state_layers or self.settings.eager:
            return taken
        return max(taken, -(-self._stage[1] * self.settings.max_num_seqs // self.pages))

    @cached_property
    def _stage(self) -> tuple[int, int]:
        """Weights and KV cache of a sequence on a device of the fullest stage."""
        return max(self._stages, key=lambda stage: stage[0] + stage[1] * self.sequences)

    def of_stage(self, stage: int) -> tuple[int, int]:
        """Weights, and KV cache of a sequence, on a device of one pipeline stage."""
        return self._stages[stage]

    @cached_property
    def _stages(self) -> list[tuple[int, int]]:
        draft = self.settings.draft_bytes
        if self.held is None:
            own = self.model.weight_bytes(dtype_bytes(self.dtype), self.settings.quantized_bytes) + draft
            return [(-(-own // self.parts), -(-self.kv_sequence // self.parts))]
        layers, kv_parts = self.split.layers(self.model.layers), self.split.tensor * self.split.decode_context
        of_model, *of_draft = self._kv_sequences
        # Every group has a part of its layers in a stage, and takes as much of it as the group with the most.
        group = self.model.layers if self.beyond is None and not self.model.state_layers else self.model.group
        in_stage = [-(-group * len(layer) // self.model.layers) for layer in layers]
        kv = [-(-of_model * part // (kv_parts * group)) for part in in_stage]
        found = [(one.size, taken) for one, taken in zip(self.held, kv, strict=True)]
        last, taken = found.pop()  # which alone has the draft (vLLM, GPUModelRunner.__init__)
        return [*found, (last - -draft // self.split.tensor, taken - -sum(of_draft) // kv_parts)]

    @cached_property
    def held(self) -> tuple[Held, ...] | None:
        """What a GPU of each stage holds; None for NeuronCores, and where the layers of the model are unknown."""
        capability, settings = self.instance.compute_capability, self.settings
        if capability is None:
            return None
        quantization = self.model.quantization
        found = pads(quantization.method, capability) if quantization else None
        widths = Widths(dtype_bytes(self.dtype), settings.quantized_bytes, found)
        return held(self.model, self.split, widths)

    @cached_property
    def kv_token(self) -> int:
        """KV cache of one token on all cores together."""
        return sum(
            one.kv_bytes(1, self.tensor_parallel, self.element_bytes, scale=self.settings.kv_scale_bytes) for one in self._models
        )

    @property
    def _models(self) -> list[Model]:
        return [self.model, *([self.settings.draft] if self.settings.draft else [])]

    @cached_property
    def step_tokens(self) -> int:
        """Tokens of one step of the engine."""
        facts, memory = engine_facts(self.engine.vllm), self.instance.device_memory_gib
        if self.settings.step_tokens or facts is None or not self.instance.nvidia:
            return self.settings.step_tokens or _STEP_TOKENS
        tokens = facts.step_tokens(memory, self.instance.chip) * (2 if self.settings.longer_steps else 1)
        if self.model.heard:  # and has short sequences (vLLM 0.30.0, ``EngineArgs``)
            return min(tokens, self.settings.max_num_seqs * self.max_model_len)
        return max(tokens, self.max_model_len) if self.settings.whole_prompts else tokens

    @property
    def beyond(self) -> int | None:
        """Tokens that layers with a window hold beside it (vLLM, ``max_in_flight_tokens``); None: they hold every token."""
        facts = engine_facts(self.engine.vllm) if self.instance.nvidia else None
        if facts is None or self.settings.whole_windows:
            return None
        return self.step_tokens * ((facts.in_flight if self.settings.overlaps else 1) + self.split.stages - 1)

    @cached_property
    def kv_sequence(self) -> int:
        """KV cache of one sequence on all cores together."""
        return sum(self._kv_sequences)

    @property
    def _kv_sequences(self) -> list[int]:
        """That of the model, and that of the draft."""
        if self.model.state_layers:
            return [self.pages * self.model.group * self.page[1] * self.tensor_parallel]
        given = (self.max_model_len + self.model.crossed, self.tensor_parallel, self.element_bytes, self.beyond)
        return [model.kv_bytes(*given, scale=self.settings.kv_scale_bytes) for model in self._models]

    @cached_property
    def page(self) -> tuple[int, int]:
        """Tokens of a page, and its bytes in a layer on one device, of a model with states: a page is as large as a state or
        larger, in whole blocks of 16 tokens (vLLM 0.30.0, ``_align_hybrid_block_size``)."""
        token = self.kv_token // self.model.attention_layers // self.tensor_parallel
        block = 16 * -(-self.state // (16 * token))
        return block, block * token

    @property
    def pages(self) -> int:
        """Pages of a sequence: those of its tokens, and of each group of layers with a state as many as it keeps states."""
        groups = -(-self.model.state_layers // self.model.group)
        return -(-self.max_model_len // self.page[0]) + groups * self.settings.kept_states

    @property
    def state(self) -> int:
        """What a layer with a state keeps of a sequence on one device (vLLM 0.30.0, ``gated_delta_net_state_shape``)."""
        model, plain = self.model, dtype_bytes(self.dtype)
        kind = architectures().get(model.architecture)
        width = 4 if kind and kind.wide_state else plain
        of_heads = model.state_heads * model.state_dim * model.state_value_dim * width
        divided = (model.mixed - model.shared) * (model.conv - 1) * plain + of_heads
        return divided // self.tensor_parallel + model.shared * (model.conv - 1) * plain

    @property
    def needed(self) -> int:
        return self.weights + self.kv

    @property
    def memory(self) -> int:
        """Memory of one core or GPU."""
        return int(self.instance.memory_per_core_gib * GIB)

    @cached_property
    def capacity(self) -> int:
        """The part of ``memory`` that the engine uses."""
        return int(self.memory * self.settings.utilization) if self.engine.generation.paged else self.memory

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """All limits; the first is that of the memory as a whole."""
        beside, margin = (self.reserved.size, self.reserved.margin) if self.reserved else (0, None)
        if self.bounds is None:
            return (Limit("memory", self.needed + beside, self.capacity, margin, self.needed),)
        smallest = int(self.bounds.smallest_gib * GIB)
        return (
            Limit("memory", self.weights + max(self.kv, smallest) + beside, self.capacity, margin),
            Limit("KV pool", self.kv, int(self.capacity * self.bounds.fraction)),
        )

    @cached_property
    def reserved(self) -> Reserved | None:
        """What the engine takes beside weights and KV cache; None for an engine of which nothing is known."""
        row = reserve_of(self.engine.generation.name, self.engine.vllm)
        if row is None:
            return None
        settings, tower = self.settings, self.model.tower
        return Reserved(
            reserve=row,
            model=self.model,
            instance=self.instance,
            parts=self.split.devices,
            sequences=settings.max_num_seqs,
            step_tokens=self.step_tokens,
            eager=settings.eager,
            adapters=self.adapters or 0,
            # What the encoder's cache and one of its runs have room for (vLLM, compute_mm_encoder_budget).
            longest=self.max_model_len,
            seen=max(self.step_tokens, self._largest_medium) if tower else 0,
            tried=settings.tried,
        )

    @property
    def _largest_medium(self) -> int:
        """Tokens of the largest picture or video of a prompt, as far as that is known."""
        tower, settings = self.model.tower, self.settings
        return tower.largest(settings.videos, self.max_model_len) if tower and not settings.resized else 0

    @property
    def adapters(self) -> int | None:
        """Room for adapters on a device, in bytes; None: there are some, of unknown size."""
        ranks = self.settings.adapter_ranks
        asked = not (self.model.tower or self.model.heard)  # the engine was not asked about adapters of models that see or hear
        each = (weights_of_a_rank(self.model, self.split) if asked else None) if ranks else 0
        return None if each is None else int(ranks * each * dtype_bytes(self.dtype))

    @property
    def fits(self) -> bool:
        """Whether every limit is kept, as far as anybody can tell."""
        return all(limit.kept for limit in self.limits)

    @property
    def surely_fits(self) -> bool:
        """Whether every limit is kept even if all that is uncertain turns out large."""
        return all(limit.surely_kept for limit in self.limits)

    @property
    def bounds(self) -> KvPool | None:
        """Bounds of the KV pool, if it has any of its own."""
        return self.settings.kv_pool or self.engine.generation.kv_pool

    @property
    def fraction(self) -> float:
        """Used share of the tightest limit. Above 1, the model does not fit, unless within the margin."""
        return max(limit.fraction for limit in self.limits)

    @property
    def pool(self) -> int:
        """Memory that paged engines have for the KV cache."""
        beside = self.reserved.size if self.reserved else 0
        return min([max(self.capacity - self.weights - beside, 0), *(limit.available for limit in self.limits[1:])])

    @property
    def working(self) -> tuple[str, ...]:
        """The calculation, one line per step."""
        model, unit, settings = self.model, self.unit, self.settings
        sequences = f"{self.sequences} sequence{'' if self.sequences == 1 else 's'}"
        further = f" + index {model.index_layers} layers x {model.index_bytes} bytes" if model.index_layers else ""
        further += f" + {settings.draft.name}" if settings.draft else ""
        token = f"{self.kv_token / 1024:g} KiB"
        window = self.beyond is not None and model.window and self.max_model_len > model.window + self.beyond
        if window:
            groups = "" if model.group in (model.layers, model.window_layers) else f", in whole groups of {model.group} layers"
            token += f" ({model.window_layers} of {model.layers} layers at most {model.window} + {self.beyond} tokens{groups})"
        heard = f" and {self.model.crossed} that are heard, at first a step of {self.step_tokens}," if self.model.heard else ""
        cached = f"{token} x {sequences} x {self.max_model_len} tokens{heard}{self._kv_split}"
        if model.state_layers:
            cached = self._pages_working
        lines = [
            f"weights: {self._weights_working} = {gib(self.weights)} GiB",
            f"KV cache of a token: {self._kv_working} x {self.element_bytes:g} bytes{further} = {self.kv_token / 1024:g} KiB",
            f"KV cache: {cached} = {gib(self.kv)} GiB",
        ]
        beside = self.reserved.size if self.reserved else 0
        lines.extend(self.reserved.working if self.reserved else ())
        share = f"{self.settings.utilization:g} x {self.memory / GIB:g} = " if self.engine.generation.paged else ""
        whole = Limit("", self.needed + beside, self.capacity)
        third = f" + {gib(beside)}" if beside else ""
        lines.append(
            f"{gib(self.weights)} + {gib(self.kv)}{third} = {gib(whole.used)} GiB of {share}{self.capacity / GIB:.4g} GiB "
            f"a {unit} ({percent(whole.fraction)})"
        )
        if self.bounds:
            pool = self.limits[-1]
            lines.append(
                f"{pool.what}: {self.bounds.fraction:g} x {self.capacity / GIB:.4g} = {pool.available / GIB:.4g} GiB; "
                f"{sequences} of {self.max_model_len} tokens: {gib(pool.used)} GiB ({percent(pool.fraction)})"
            )
        if self.engine.generation.paged and self.kv_one:
            lines.append(f"pages for {self.pool / self.kv_one:.1f} sequences of {self.max_model_len} tokens at once")
        return tuple(lines)

    @property
    def _weights_working(self) -> str:
        """The numbers of weights by their size, and how they are split."""
        model, settings = self.model, self.settings
        if model.quantization:
            converted, size = model.quantized, f"{float(model.quantization.bits_per_weight) / 8:.4g}"
        else:
            converted = model.parameters - model.embeddings if settings.quantized_bytes else 0
            size = str(settings.quantized_bytes)
        terms = [f"{(model.parameters - converted) / 1e9:.2f} billion x {dtype_bytes(self.dtype)} bytes"]
        terms += [f"{converted / 1e9:.2f} billion x {size} bytes"] if converted else []
        terms += [f"draft {gib(settings.draft_bytes)} GiB"] if settings.draft_bytes else []
        terms += [f"tower {model.tower.weights / 1e9:.2f} billion x {dtype_bytes(self.dtype)} bytes"] if model.tower else []
        terms += [f"{part}: not counted" for part in model.uncounted]
        total = terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"
        if self.held is None or self.split.devices == 1:
            return f"{total} / {self._units(self.parts)}"
        fullest = max(self.held, key=lambda one: one.size)
        named = {"experts": fullest.experts, "divided": fullest.divided, "whole": fullest.whole}
        stage = "" if self.split.stages == 1 else " of the fullest stage"
        terms = " + ".join(f"{what} {gib(size)}" for what, size in named.items() if size)
        return f"{total} over {self._units(self.split.devices)}, on each{stage}: {terms}"

    @property
    def _pages_working(self) -> str:
        """The pages of sequences whose layers keep tokens or states."""
        (block, size), model = self.page, self.model
        layers = self._stage[1] // self.pages // size
        graphs = "" if self.settings.eager else f", at least {self.settings.max_num_seqs} pages for CUDA graphs"
        return (
            f"{self.pages} pages ({self.max_model_len} tokens by {block}; states of {model.state_layers} of {model.layers})"
            f" x {self.sequences} x {layers} layers x {size / 2**20:.4g} MiB{graphs}"
        )

    @property
    def _kv_split(self) -> str:
        layers = self.model.layers
        most = max(map(len, self.split.layers(layers)))
        stage = f" x {most} of {layers} layers" if self.split.stages > 1 and self.held else ""
        context = f" / {self.split.decode_context} parts of a context" if self.split.decode_context > 1 else ""
        return f"{stage} / {self._units(self.tensor_parallel if self.held else self.parts)}{context}"

    def _units(self, count: int) -> str:
        return f"{count} {self.unit}{'' if count == 1 else 's'}"

    @property
    def _kv_working(self) -> str:
        """The elements of one token in the KV cache."""
        model, held = self.model, self.model.kv_heads_at(self.tensor_parallel)
        layers = model.attention_layers
        if model.kv_rank:
            copies = f" x {held} copies" if held > 1 else ""
            return f"{model.layers} layers x ({model.kv_rank} + {model.rope_dim}){copies}"
        heads = f"{held} KV heads" + (f" ({model.kv_heads} repeated)" if held > model.kv_heads else "")
        return f"2 x {layers} layers x {heads} x {model.head_dim}"


@lru_cache  # each rule asks for it
def server_memory(server: ServingFacts) -> MemoryUse | None:
    """Returns the memory that a server needs: for its whole batch, or, if paged, for one sequence of the maximum length.

    None when it is unknown: the catalog does not know the model, its weights are quantized to other than 8 bits, or the engine
    chooses length or degree itself.
    """
    settings = memory_settings(server.engine, server.arguments, server.environment, server.model)
    if server.model is None or settings is None or not server.tensor_parallel or not server.max_model_len:
        return None
    if _fp8_cache(server):
        settings = replace(settings, kv_bytes=1)
    if server.model.value_dim and not server.model.kv_rank:
        # Back ends for values narrower than keys keep the type of the arithmetic (vLLM 0.30.0, MiMoV2Attention).
        settings = replace(settings, kv_bytes=None)
    if _packs(server):
        settings = replace(settings, kv_bytes=_PACKED_BYTES / server.model.kv_width)
    served = server.engine.served(server.model)
    return MemoryUse(
        model=_with_eyes(replace(served, max_positions=positions(server.model, server.arguments)), server),
        instance=server.instance,
        engine=server.engine,
        tensor_parallel=server.tensor_parallel,
        sequences=1 if server.engine.generation.paged else server.max_num_seqs,
        max_model_len=server.max_model_len,
        settings=with_features(replace(settings, max_num_seqs=server.max_num_seqs or USUAL_SEQUENCES), server.features),
    )


def _fp8_cache(server: ServingFacts) -> bool:
    chosen = server.features.chosen if server.features else {}
    return kv_in_fp8(server.engine, flag(server.arguments, "kv-cache-dtype") or "", server.model, chosen)


def _packs(server: ServingFacts) -> bool:
    """Whether sparse attention keeps an 8-bit latent vector with its scales (vLLM 0.30.0, ``fp8_ds_mla``)."""
    capability, model = server.instance.compute_capability, server.model
    if capability is None or model is None or not model.index_dim:
        return False
    packing = ("FLASHMLA_SPARSE", *([None] if capability < (10, 0) else []))
    return capability >= (12, 0) or (_fp8_cache(server) and attention_backend(server.arguments) in packing)


def _with_eyes(model: Model, server: ServingFacts) -> Model:
    return model if sees(server.arguments, model) else replace(model, tower=None, uncounted=())


def gib(size: float) -> str:
    """Formats bytes as GiB with two decimals."""
    return f"{size / GIB:.2f}"


def percent(fraction: float, digits: int = 0) -> str:
    return f"{fraction * 100:.{digits}f} %"
