"""Device memory of one copy of a model: weights and KV cache on each NeuronCore or GPU. Arithmetic, nothing measured.

Engines deal with the memory in one of three ways, which their generation says (``catalog/generations.toml``):

- *contiguous* (vLLM on Neuron up to NxD Inference): room for ``max_num_seqs`` sequences of ``max_model_len`` tokens is set aside
  when the engine starts. The whole memory of a core is there for weights and KV cache.
- *paged* (vLLM on GPUs): ``gpu_memory_utilization`` of the device is there; what the weights leave is a pool of pages. Sequences
  share it or wait, so that only one of the longest has to fit.
- *paged on Neuron* (vLLM without NxD Inference): as on GPUs, but the pool is at most a fraction of that share, because its size
  is compiled into the graphs, and the engine gives up below a smallest pool.

Left out are activations, scratchpads, collectives and the compiled graphs (about 96 MB a core): above nine tenths of what there
is, nobody can say without trying.

Sources: NxD Inference documentation (KV heads, tensor parallel degrees), Neuron documentation 2.33 ("determine_available_memory
design"), vLLM documentation (``gpu_memory_utilization``). The contiguous sum was checked against a measurement of the source
system for Llama-3-8B, over 2 cores with 10 sequences of 4096 tokens: 21.3 GB there, 21.43 GB here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.generations import KvPool
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import flag, number

GIB = 1024**3

TIGHT = 0.9
"""Share of what there is above which the parts nobody can calculate may not fit any more."""

_ELEMENT_BYTES = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}


@dataclass(frozen=True)
class MemorySettings:
    """What a user can change about the arithmetic. The defaults are the engines'."""

    parameter_bytes: int | None = None
    """Bytes of one weight; None: as published."""
    element_bytes: int = 2
    """Bytes of one element of the KV cache."""
    utilization: float = 0.90
    """Share of the device that paged engines use. vLLM's default is 0.90, of late 0.92: the smaller is the safe one."""
    stages: int = 1
    """Stages of a pipeline (``--pipeline-parallel-size``): each holds a part of the layers."""
    kv_pool: KvPool | None = None
    """Bounds of the KV pool; None: those of the engine's generation, if it has any."""


@dataclass(frozen=True)
class Limit:
    """Something that memory has to fit into. In bytes."""

    what: str
    used: int
    available: int

    @property
    def fraction(self) -> float:
        return self.used / self.available if self.available else float("inf")


@dataclass(frozen=True)
class MemoryUse:
    """Memory of one NeuronCore or GPU, in bytes, with ``sequences`` of ``max_model_len`` tokens in the KV cache."""

    model: Model
    instance: InstanceType
    engine: EngineProfile
    tensor_parallel: int
    sequences: int
    max_model_len: int
    settings: MemorySettings = MemorySettings()

    def of(self, sequences: int, max_model_len: int) -> "MemoryUse":
        """The same with other sequences."""
        return replace(self, sequences=sequences, max_model_len=max_model_len)

    @property
    def unit(self) -> str:
        """What one share of the model sits on."""
        return "core" if self.instance.neuron else "GPU"

    @property
    def parts(self) -> int:
        """Cores or GPUs one copy of the model is on."""
        return self.tensor_parallel * self.settings.stages

    @property
    def weights(self) -> int:
        return -(-self.model.weight_bytes(self.settings.parameter_bytes) // self.parts)

    @property
    def kv_token(self) -> int:
        """KV cache of one token on all cores together."""
        return self.model.kv_bytes_per_token(self.tensor_parallel, self.settings.element_bytes)

    @property
    def kv(self) -> int:
        return -(-self.kv_token * self.sequences * self.max_model_len // self.parts)

    @property
    def needed(self) -> int:
        return self.weights + self.kv

    @property
    def memory(self) -> int:
        """Memory of one core or GPU."""
        return int(self.instance.memory_per_core_gib * GIB)

    @property
    def capacity(self) -> int:
        """The part of it that the engine uses."""
        return int(self.memory * self.settings.utilization) if self.engine.generation.paged else self.memory

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Everything that must hold; the first is the memory itself."""
        if self.bounds is None:
            return (Limit("memory", self.needed, self.capacity),)
        smallest = int(self.bounds.smallest_gib * GIB)
        return (
            Limit("memory", self.weights + max(self.kv, smallest), self.capacity),
            Limit("KV pool", self.kv, int(self.capacity * self.bounds.fraction)),
        )

    @property
    def bounds(self) -> KvPool | None:
        """Bounds of the KV pool, where it has any of its own."""
        return self.settings.kv_pool or self.engine.generation.kv_pool

    @property
    def fraction(self) -> float:
        """Share of the tightest limit; above 1 it does not fit."""
        return max(limit.fraction for limit in self.limits)

    @property
    def pool(self) -> int:
        """What paged engines have for KV cache."""
        return min([max(self.capacity - self.weights, 0), *(limit.available for limit in self.limits[1:])])

    @property
    def working(self) -> tuple[str, ...]:
        """The arithmetic, a line a step."""
        model, degree, unit = self.model, self.tensor_parallel, self.unit
        units = f"{self.parts} {unit}{'' if self.parts == 1 else 's'}"
        per_weight = self.settings.parameter_bytes or model.weight_bytes() // model.parameters
        repeats = model.kv_heads_at(degree) / model.kv_heads
        heads = f"{model.kv_heads_at(degree)} KV heads" + (f" ({model.kv_heads} repeated)" if repeats > 1 else "")
        sequences = f"{self.sequences} sequence{'' if self.sequences == 1 else 's'}"
        lines = [
            f"weights: {model.parameters / 1e9:.2f} billion x {per_weight} bytes / {units} = {gib(self.weights)} GiB",
            f"KV cache of a token: 2 x {model.layers} layers x {heads} x {model.head_dim} x {self.settings.element_bytes} bytes"
            f" = {self.kv_token / 1024:g} KiB",
            f"KV cache: {self.kv_token / 1024:g} KiB x {sequences} x {self.max_model_len} tokens / {units} = {gib(self.kv)} GiB",
        ]
        share = f"{self.settings.utilization:g} x {self.memory / GIB:g} = " if self.engine.generation.paged else ""
        whole = Limit("", self.needed, self.capacity)
        lines.append(
            f"{gib(self.weights)} + {gib(self.kv)} = {gib(self.needed)} GiB of {share}{self.capacity / GIB:g} GiB a {unit} "
            f"({percent(whole.fraction)})"
        )
        if self.bounds:
            pool = self.limits[-1]
            lines.append(
                f"{pool.what}: {self.bounds.fraction:g} x {self.capacity / GIB:g} = {pool.available / GIB:g} GiB; "
                f"{sequences} of {self.max_model_len} tokens: {gib(pool.used)} GiB ({percent(pool.fraction)})"
            )
        if self.engine.generation.paged:
            one = -(-self.kv_token * self.max_model_len // self.parts)
            lines.append(f"pages for {self.pool / one:.1f} sequences of {self.max_model_len} tokens at once")
        return tuple(lines)


def server_memory(server: ServingFacts) -> MemoryUse | None:
    """What a server must have room for: its whole batch, or, in pages, one sequence of the longest.

    None where it cannot be told: the catalog does not know the model, its weights are quantized in a way other than fp8, or the
    engine is left to choose length or degree.
    """
    settings = memory_settings(server.engine, server.arguments, server.environment)
    if server.model is None or settings is None or not server.tensor_parallel or not server.max_model_len:
        return None
    return MemoryUse(
        model=server.model,
        instance=server.instance,
        engine=server.engine,
        tensor_parallel=server.tensor_parallel,
        sequences=1 if server.engine.generation.paged else server.max_num_seqs,
        max_model_len=server.max_model_len,
        settings=settings,
    )


def memory_settings(engine: EngineProfile, arguments: Sequence[str], environment: Mapping[str, str]) -> MemorySettings | None:
    """What flags and environment of an engine say; None when they name a quantization whose size is not known."""
    defaults = MemorySettings()
    quantization = flag(arguments, "quantization")
    if quantization and quantization != "fp8":
        return None
    dtype = flag(arguments, "dtype") or "auto"
    cache = flag(arguments, "kv-cache-dtype") or "auto"
    utilization = number(flag(arguments, "gpu-memory-utilization"), defaults.utilization)
    bounds = engine.generation.kv_pool
    return MemorySettings(
        parameter_bytes=1 if quantization else _ELEMENT_BYTES.get(dtype),
        element_bytes=1 if cache.startswith("fp8") else _ELEMENT_BYTES.get(dtype, defaults.element_bytes),
        utilization=min(utilization, 1.0),
        stages=max(int(number(flag(arguments, "pipeline-parallel-size"), 1)), 1),
        kv_pool=bounds
        and replace(
            bounds,
            fraction=min(number(environment.get(bounds.fraction_variable), bounds.fraction), 1.0),
            smallest_gib=number(environment.get(bounds.smallest_variable), bounds.smallest_gib),
        ),
    )


def gib(size: float) -> str:
    """Bytes as GiB with two digits."""
    return f"{size / GIB:.2f}"


def percent(fraction: float, digits: int = 0) -> str:
    """A share in hundredths."""
    return f"{fraction * 100:.{digits}f} %"
