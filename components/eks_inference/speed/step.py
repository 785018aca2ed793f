"""The time of one step of an engine, by a roofline. Pure.

A step reads the weights (of experts those that its tokens reach) and the KV cache of its sequences, multiplies, and exchanges the
results of each layer between the devices of a copy. Bytes are those of ``serving/memory.py``. Which share of a device's peaks is
reached, and what a step takes beside, are few constants for each accelerator, fitted to measurements (``catalog/speeds.toml``).

On Neuron a step of decoding costs the batch that was compiled, whatever number of sequences is in it, and prompts are computed
in steps of their own.
"""

from dataclasses import dataclass, replace
from math import log2
from statistics import median

from eks_inference.catalog.engine_facts import dtype_bytes
from eks_inference.catalog.models import APART, Model
from eks_inference.catalog.speeds import Chip, Constants, Measured, own, speed
from eks_inference.serving.memory import MemoryUse

_EXCHANGES = 2
"""Sums over all devices in a layer: after attention and after the MLP."""
QUEUED = 8
"""Prefills that a first token takes before it counts as queued."""
_OWN_RANGE = (0.76, 1.32)
"""Factors on a time that is predicted from one measurement of the same model, accelerator and split at another load: nine of ten
others of ``measured.csv`` lie between, by source, model, accelerator, engine and precision (a test calculates them)."""


@dataclass(frozen=True)
class Work:
    """What one device reads and computes in a step; of pipeline stages the sum, as a token passes all of them."""

    weights: float
    """Bytes of weights that every step reads."""
    experts: float
    """Bytes of all routed experts."""
    reached: float
    """Share of the experts of a layer that one token reaches; 0 without experts."""
    cache: float
    """Bytes of KV cache that a token of a context takes, in layers without a window."""
    windowed: float
    """The same in layers with a window."""
    window: int
    """Tokens that these look back."""
    products: float
    """Floating-point operations for a token, in products with weights."""
    head: float
    """Those of the output layer, for a token that is sampled."""
    attention: float
    """Those of attention, for a pair of tokens, in layers without a window."""
    windowed_attention: float
    """The same in layers with a window."""
    exchanged: float
    """Bytes that a device exchanges for a token."""
    layers: int
    tensor: int
    """Devices, or cores, that share a layer."""
    stages: int
    ranks: int
    """Copies of all but the experts, each with its part of the sequences."""
    arithmetic: str
    """Type of the elements of products."""


@dataclass(frozen=True)
class StepTimes:
    """How long steps of one server take."""

    work: Work
    chip: Chip
    constants: Constants
    range: tuple[float, float] = (0.5, 2.0)
    """Factors on a time, between which nine of ten measurements lie that the constants were not fitted to."""
    off: float = 1.0
    """Times as long as predicted that a step takes, by a user's own measurements."""
    parts: int = 1
    """Parts of a device with its share of the peaks each: NeuronCores."""
    compiled_batch: int | None = None
    """Sequences that a compiled step always computes. None: as many as there are."""
    chunk: int = 8192
    """Tokens of prompts in one step, at most."""
    separate: bool = False
    """Whether prompts are computed in steps of their own."""

    @property
    def request_seconds(self) -> float:
        """What a request takes beside its steps until its first token."""
        return self.constants.request_ms / 1e3

    def seconds(self, *, decoding: int, context_tokens: int, prefill_tokens: int, prefill_pairs: float | None = None) -> float:
        """One step: ``decoding`` sequences get a token each and read ``context_tokens`` of KV cache in all, and
        ``prefill_tokens`` of prompts are computed. ``prefill_pairs`` are these with the tokens before each of them in its prompt,
        those of earlier steps included; None: they are one prompt from its start."""
        if not decoding and not prefill_tokens:
            return 0.0
        batch = self.compiled_batch if decoding and self.compiled_batch else decoding
        context = context_tokens * batch / decoding if decoding else 0.0
        if self.separate and decoding and prefill_tokens:
            return self._seconds(batch, context, 0) + self._seconds(0, 0, prefill_tokens, prefill_pairs)
        return self._seconds(batch, context, prefill_tokens, prefill_pairs)

    def between_tokens(self, users: float, prompt: float, answer: float) -> float:
        """Mean time between tokens while so many users wait for one answer each: their prompts are computed in between."""
        batch = self.compiled_batch or users
        context, prompts = batch * (prompt + answer / 2), max(users - 1, 0) / answer
        step = self._seconds(batch, context, 0)
        if self.separate:
            return step + prompts * self._seconds(0, 0, prompt)
        chunk = min(prompt, self.chunk)
        return step + prompts * prompt / chunk * (self._seconds(batch, context, chunk, chunk * prompt / 2) - step)

    def first_token(self, prompt: float, prompts: float = 1) -> float:
        """Time until the first token of a prompt, or of several at once, where nothing else is computed."""
        tokens = prompt * prompts
        chunk = tokens if self.separate else min(tokens, self.chunk)
        return self.request_seconds + tokens / chunk * self._seconds(0, 0, chunk, chunk * prompt / 2)

    def floor(self, *, decoding: int, context_tokens: int, prefill_tokens: int) -> float:
        """The same at the peaks of the devices and without anything beside: no step is faster."""
        weights, experts, cache, products, _ = self._parts(decoding, context_tokens, prefill_tokens)
        return max(weights + experts + cache, products)

    def walls(self, decoding: float, context: float) -> dict[str, float]:
        """What a step that only decodes takes, by what takes it. Read and computed at once: the longer of the two."""
        read, products, cache, exchange, host = self._walls(decoding, context, 0)
        found = {
            "bandwidth" if read > products else "compute": max(read, products),
            "KV": cache,
            "exchange": exchange,
            "host": host,
        }
        batch = self.compiled_batch or decoding
        return found | {"padding": self._seconds(batch, context * batch / decoding, 0) - sum(found.values())}

    def _seconds(self, decoding: float, context: float, prompt: float, pairs: float | None = None) -> float:
        read, products, cache, exchange, host = self._walls(decoding, context, prompt, pairs)
        return max(read, products) + cache + exchange + host

    def _walls(
        self, decoding: float, context: float, prompt: float, pairs: float | None = None
    ) -> tuple[float, float, float, float, float]:
        """Seconds to read weights, to compute, for the KV cache, for the exchange and beside."""
        weights, experts, cache, products, exchanged = self._parts(decoding, context, prompt, pairs)
        own, work = self.constants, self.work
        hops = log2(work.tensor * work.ranks) if work.tensor * work.ranks > 1 else 0.0
        reached = own.compute if work.arithmetic == "bf16" else own.narrow
        beside = (
            own.step_ms / 1e3 + (own.layer_us + own.exchange_us * hops) / 1e6 * work.layers + own.sequence_us / 1e6 * decoding
        )
        read = weights / own.weights + experts / own.experts
        off = self.off
        return off * read, off * products / reached, off * cache / own.cache, off * exchanged / own.link, off * beside

    def _parts(
        self, decoding: float, context: float, prompt: float, pairs: float | None = None
    ) -> tuple[float, float, float, float, float]:
        """Seconds for weights, experts, KV cache, products and exchange, at the peaks of a device."""
        work, chip = self.work, self.chip
        part = work.ranks * work.stages
        pairs = (prompt * prompt / 2 if pairs is None else pairs) / part
        decoding, context, prompt = decoding / part, context / part, prompt / part
        bandwidth, tokens = chip.bandwidth_gb_s * 1e9 / self.parts, decoding + prompt
        reached = 1 - (1 - work.reached) ** (tokens * work.ranks) if work.experts else 0.0
        seen = min(context, work.window * decoding)
        cache = work.cache * context + work.windowed * seen
        peak = chip.tflops.get(work.arithmetic, chip.tflops["bf16"]) * 1e12 / self.parts
        attention = work.attention * (pairs + context) + work.windowed_attention * (min(pairs, work.window * prompt) + seen)
        return (
            work.weights / bandwidth,
            work.experts * reached / bandwidth,
            cache / bandwidth,
            (work.products * tokens + work.head * max(decoding, min(prompt, 1))) / peak
            + attention / (chip.tflops["bf16"] * 1e12 / self.parts),
            work.exchanged * tokens / (chip.link_gb_s * 1e9 / self.parts),
        )


def step_times(use: MemoryUse) -> StepTimes | str:
    """Returns how long the steps of a server take; why it is unknown, as a text, where nobody measured the devices or knows what
    the model reads, or it only reads."""
    found = speed(use.instance)
    if use.model.task in APART:
        return "nobody measured models that hear" if use.model.heard else "it writes no tokens"
    if found is None:
        return f"{use.instance.chip or use.instance.name} was not measured"
    if use.model.index_dim:
        return f"sparse attention, which {use.model.name} has, was not measured"
    if use.model.experts and not use.model.experts_used:
        return f"the catalog does not know how many experts of {use.model.name} a token reaches"
    times = replace(of_memory(use, found.chip, found.constants), range=found.range(experts=use.model.experts > 0))
    served = (use.model.name, found.name, use.tensor_parallel)  # files do not tell of stages and ranks
    mine = [one for one in own() if (one.model, one.device, one.tensor) == served and one.tensor == use.split.devices]
    if not mine:
        return times
    # What an engine makes of a machine, it also makes where it quantizes; the range is only that of what was measured.
    plain = replace(use, settings=replace(use.settings, quantized_bytes=None))
    before = of_memory(plain, found.chip, found.constants)
    off = median((one.itl_ms or 0) / 1e3 / before.between_tokens(_served(one, before), one.prompt, one.answer) for one in mine)
    return replace(times, off=off, range=_OWN_RANGE if plain == use else times.range)


def _served(row: Measured, times: StepTimes) -> float:
    """Users whose requests the engine worked on at once (Little's law). First tokens that come later than a queue of prompts
    explains waited for a place in the batch."""
    waited = max((row.ttft_ms or 0) / 1e3 - QUEUED * times.first_token(row.prompt), 0.0)
    return max(row.users * (1 - waited / (waited + (row.itl_ms or 0) / 1e3 * row.answer)), 1.0)


def of_memory(use: MemoryUse, chip: Chip, constants: Constants) -> StepTimes:
    """Returns the same with constants of anybody."""
    neuron = use.instance.neuron
    return StepTimes(
        work_of(use),
        chip,
        constants,
        parts=use.instance.cores_per_device or 1,
        compiled_batch=use.settings.max_num_seqs if neuron else None,
        chunk=use.step_tokens,
        separate=neuron,
    )


def work_of(use: MemoryUse) -> Work:
    """Returns what a device reads and computes, from the memory that a server takes."""
    model, split = use.model, use.split
    plain, parts = dtype_bytes(use.dtype), split.tensor
    read = 0 if model.tied_embeddings else model.vocabulary * (model.embedding_width or model.hidden)
    if use.held is None:
        total = model.weight_bytes(plain, use.settings.quantized_bytes)
        size = float(model.quantization.bits_per_weight) / 8 if model.quantization else use.settings.quantized_bytes or plain
        experts = model.expert_weights * size / parts
        weights = (total - read * plain) / parts - experts
    else:
        experts = sum(held.experts for held in use.held)
        weights = sum(held.divided + held.whole for held in use.held) - read * plain / parts
    full = use.kv_token / parts / split.decode_context
    whole, windowed = (
        (count * one.kv_heads_at(parts) * one.kv_width, 2 * count * one.heads * _width(one)) for one, count in model.attending
    )
    looks = windowed[0] / (whole[0] + windowed[0] or 1) if model.window else 0.0  # share of the cache in layers with a window
    used = model.experts_used / model.experts if model.experts else 0.0
    head = model.vocabulary * (model.embedding_width or model.hidden)
    active = model.parameters - model.embeddings - model.expert_weights * (1 - used)
    states = 2 * use.state * model.state_layers  # each step reads and writes them once a sequence, like a window of one token
    return Work(
        weights=weights,
        experts=experts,
        reached=used,
        cache=full * (1 - looks),
        windowed=full * looks + states,
        window=model.window or bool(states),
        products=2 * active / parts,
        head=2 * head / parts,
        attention=whole[1] / parts,
        windowed_attention=windowed[1] / parts,
        exchanged=2 * (parts - 1) / parts * _EXCHANGES * model.layers * model.hidden * 2,
        layers=model.layers,
        tensor=parts,
        stages=split.stages,
        ranks=split.ranks,
        arithmetic=arithmetic(model, use.settings.quantized_bytes),
    )


def _width(model: Model) -> int:
    """Numbers of a query and a value of one head."""
    return (
        model.nope_dim + model.rope_dim + model.value_dim
        if model.kv_rank
        else model.head_dim + (model.value_dim or model.head_dim)
    )


def arithmetic(model: Model, quantized_bytes: int | None) -> str:
    """The type of the elements of products: that of the weights, where activations have it too."""
    found = model.quantization
    if quantized_bytes == 1 or (found and found.bits == 8 and found.method != "bitsandbytes"):
        return "fp8"
    return "fp4" if found and found.bits == 4 and found.scale_bits == 8 and found.group == 16 else "bf16"
