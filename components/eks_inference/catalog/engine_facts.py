"""What a release of vLLM says of itself on GPUs, and where its kernels fail: loads ``engine_facts/vllm-RELEASE.toml`` and
``kernels.toml``; and what engines take of a device beside weights and KV cache: ``reserves.toml``.

A file with ``like`` has what differs from another release. A quantization or back end that is gone has an empty row.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeVar

from eks_inference.catalog.models import Model
from eks_inference.catalog.quantization import Quantization
from eks_inference.catalog.tables import FOLDER, Row, arguments, load, table, version_numbers

Capability = tuple[int, int]


@dataclass(frozen=True)
class Pads:
    """What a kernel rounds the widths of experts up to, on GPUs from a compute capability on."""

    since: Capability
    hidden: int
    expert: int

    def grown(self, hidden: int, expert: int) -> float:
        """How many times larger the weights of an expert of these widths become."""
        return _up(hidden, self.hidden) / hidden * _up(expert, self.expert) / expert


@dataclass(frozen=True)
class Failing:
    """A case in which vLLM selects a kernel that fails."""

    below: Capability | None = None
    """On GPUs older than these."""
    since: Capability | None = None
    """On these and newer GPUs."""
    backend: str = ""
    """The value of ``--linear-backend`` with which another is selected. Empty: none is known."""
    unsaid: tuple[str, ...] = ()
    """Values of which nobody has said whether they work too. All others do not."""

    def on(self, capability: Capability) -> bool:
        return (self.below is not None and capability < self.below) or (self.since is not None and capability >= self.since)


@cache
def failing() -> dict[str, Failing]:
    """Kernels that fail on some GPUs on which they are selected."""
    return {name: Failing(**arguments(row)) for name, row in table(_KERNELS)["fails"].items()}


def pads(method: str, capability: Capability) -> Pads | None:
    """The padding that a quantization's kernel needs on a GPU; None without padding."""
    rows = (Pads(**arguments(item)) for item in table(_KERNELS)["pads"].get(method, ()))
    return next((row for row in reversed(list(rows)) if row.since <= capability), None)


def kernel_names(method: str) -> tuple[str, ...]:
    """What ``--quantization`` may say of a checkpoint, beside the method itself."""
    return tuple(table(_KERNELS)["names"].get(method, ()))


def said_from(form: str) -> Capability | None:
    """The oldest GPUs on which somebody has said that kernels for such weights work; None: they do wherever they are selected."""
    return arguments(table(_KERNELS)["unsaid"]).get(form)


def _up(width: int, multiple: int) -> int:
    return -(-width // multiple) * multiple


Need = Literal["sinks", "images", "prefill_context", "decode_context"]
_ALIKE = {"half": "float16", "float": "float32"}
_KERNELS = "kernels.toml"
TABLES = ("kernels", "expert_kernels", "unaligned", "unaligned_experts", "quantization", "attention")
"""Of which a release has what differs."""
_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}

_Value = TypeVar("_Value")


def since(rows: Mapping[str, _Value], capability: Capability) -> _Value | None:
    """What holds on a GPU, of rows that each hold from a compute capability on; None where none does."""
    return next((value for gpu, value in reversed(list(rows.items())) if version_numbers(gpu) <= capability), None)


@dataclass(frozen=True)
class AttentionBackend:
    """One value of ``--attention-backend``."""

    dtypes: tuple[str, ...] = ()
    kv: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """From a compute capability on (``"8.9"``), the types of the KV cache that it takes; none: it does not run there."""
    latent: bool = False
    """Whether it is for models with latent attention (MLA), and for no others."""
    sparse: bool = False
    """Whether it is for those of them with an index (DSA), and for no others."""
    also: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What some models and splits need (``Need``) → compute capabilities on which it has it."""
    head_sizes: tuple[int, ...] = ()
    """The only sizes of a head that it takes. Empty: all."""
    compiles: bool = False
    """Whether the engine has it only where it finds a compiler of CUDA, or FlashInfer's compiled kernels."""

    def takes(self, model: Model, capability: Capability, dtype: str, kv: str, needs: Iterable[Need]) -> bool:
        """Whether it serves a model so on a GPU."""
        return (
            (self.latent, self.sparse) == (bool(model.kv_rank), bool(model.index_dim))
            and dtype in self.dtypes
            and kv in (since(self.kv, capability) or ())
            and (not self.head_sizes or model.head_dim in self.head_sizes)
            and all(f"{capability[0]}.{capability[1]}" in self.also.get(need, ()) for need in needs)
        )


@dataclass(frozen=True, kw_only=True)
class EngineFacts(Row):
    """What one release says."""

    batched_tokens: tuple[tuple[int, int], ...]
    """``max-num-batched-tokens`` where nobody sets it: GPUs of so many GiB or more → tokens. The last row is for A100 too."""
    in_flight: int
    """Steps whose tokens layers with a window hold at once, without pipeline stages."""
    mla_prefill: Capability
    """Oldest GPUs that process prompts of models with latent attention."""
    mtp: tuple[str, ...]
    """Architectures that propose tokens themselves (method ``mtp``)."""
    no_float16: tuple[str, ...]
    """Architectures that the release does not run in float16."""
    offloads_to_shared_memory: bool
    """Whether a KV cache that is offloaded to the host is a file in /dev/shm."""
    reasoning_parsers: tuple[str, ...]
    unaligned: Mapping[str, int]
    """Quantizations that refuse inputs of a dense layer that end inside a group of weights → when split into so many parts or
    more; 1: also when they are whole; 0: never."""
    unaligned_experts: Mapping[str, Mapping[str, int]]
    """Those that refuse such inputs of an expert, or those of so many bits (``gptq-8``) → from a compute capability on, the
    smallest group that the engine makes of theirs; 0: it makes none."""
    deprecated: tuple[str, ...]
    """Quantizations that need ``--allow-deprecated-quantization``, also those of a checkpoint."""
    of_checkpoints: tuple[str, ...]
    """Quantizations that the engine reads from a checkpoint and does not make."""
    needs_downloads: tuple[str, ...]
    """Types of the KV cache whose kernels come from the internet."""
    no_e5m2: tuple[str, ...]
    """Quantizations of checkpoints beside which the KV cache is not fp8_e5m2."""
    ignores_flag: tuple[str, ...]
    """Quantizations of checkpoints that stay what they are, whatever ``--quantization`` says."""
    experts_in_stages: tuple[str, ...]
    """Architectures that refuse a pipeline stage without experts."""
    images: tuple[str, ...]
    """Architectures whose prompts attend to a whole image at once."""
    quantization: Mapping[str, Mapping[str, tuple[str, ...]]]
    """Quantizations → from the oldest GPUs that have it on, the types of the arithmetic that it takes."""
    kernels: Mapping[str, Mapping[str, str]]
    """Forms of quantized weights → from a compute capability on, the kernel of linear layers; empty: there is none."""
    expert_kernels: Mapping[str, Mapping[str, str]]
    """The same of experts: the back end, or the method where it has no choice."""
    attention: Mapping[str, AttentionBackend] = field(default_factory=dict)

    def selected(self, how: Quantization, capability: Capability, *, experts: bool) -> tuple[str, ...] | None:
        """The kernels for a model on a GPU, with an empty one where there is none; None: nobody asked about such weights."""
        tables = [*([] if how.experts_only else [self.kernels]), *([self.expert_kernels] if experts else [])]
        rows = [row for one in tables if (row := one.get(how.form))]
        return tuple(since(row, capability) or "" for row in rows) if len(rows) == len(tables) else None

    def expert_group(self, how: Quantization, capability: Capability) -> int | None:
        """The smallest group of experts on a GPU, as ``unaligned_experts`` has it; None: any inputs are taken."""
        rows = self.unaligned_experts
        return since(rows.get(f"{how.method}-{how.bits}") or rows.get(how.method, {}), capability)

    def step_tokens(self, memory_gib: int, chip: str) -> int:
        """Tokens of a step on GPUs of so much memory."""
        (*larger, (_, least)) = self.batched_tokens
        return least if chip == "A100" else next((tokens for gib, tokens in larger if memory_gib >= gib), least)


@cache
def engine_facts(vllm: str) -> EngineFacts | None:
    """Returns what a release (``"0.30.0"``) says; None where nobody asked it."""
    if not (FOLDER / file_of(vllm)).exists():
        return None
    columns = arguments(whole(vllm))
    backends = {name: AttentionBackend(**row) for name, row in columns.pop("attention").items()}
    return EngineFacts(name=vllm, attention=backends, **columns)


def file_of(vllm: str) -> str:
    return f"engine_facts/vllm-{vllm}.toml"


def whole(vllm: str) -> dict[str, Any]:
    """A file's columns, completed by those of the release that it is ``like``."""
    found = dict(table(file_of(vllm)))
    if "like" not in found:
        return found
    base = whole(found.pop("like"))
    return {**base, **found, **{name: {**base[name], **found.get(name, {})} for name in TABLES}}


def resolved_dtype(vllm: str, said: str, model: Model, capability: Capability) -> str:
    """Returns the type that an engine computes in on a GPU, from ``--dtype`` (vLLM, ``_resolve_auto_dtype``)."""
    if said != "auto":
        return _ALIKE.get(said, said)
    facts = engine_facts(vllm)
    without = {"bfloat16"} if capability < (8, 0) else set[str]()
    if facts and model.architecture in facts.no_float16:
        without.add("float16")
    return next(one for one in (model.dtype, *_BYTES) if one not in without)


def dtype_bytes(dtype: str) -> int:
    """Size of a number of that type."""
    return _BYTES.get(_ALIKE.get(dtype, dtype), 2)


@dataclass(frozen=True)
class Reserve(Row):
    """What the releases of an engine take from one on, within the share of memory that the engine uses."""

    generations: tuple[str, ...]
    """Engine generations that the row is about."""
    since: str
    """The first vLLM release."""
    one_gpu_gib: float = 0.0
    """Context of CUDA and kernels where one GPU holds a copy of the model."""
    several_gpus_gib: float = 0.0
    """The same on each of several GPUs, with the buffers that they exchange data through."""
    physical_core_gib: float = 0.0
    """Memory that the Neuron runtime takes for each physical core."""
    sampler_copies: float = 0.0
    """Memory for sampling all sequences at once, in sizes of their logits as float32."""
    sampler_gib: float = 0.0
    """Buffers of the sampler that do not depend on the model."""
    graphs_gib: float = 0.0
    """CUDA graphs, unless the engine runs without them. 0: they are not within the share."""
    margin_gib: float | None = None
    """How far the sum may be off, in both directions. None: nothing is known but the sum, and a tenth of the memory is margin."""


@cache
def reserve_of(generation: str, vllm: str) -> Reserve | None:
    """Returns the row for a vLLM release (``"0.27.1"``) of an engine generation; None if there is none."""
    known = [reserve for reserve in load(Reserve, "reserves.toml").values() if generation in reserve.generations]
    earlier = [reserve for reserve in known if version_numbers(reserve.since) <= _numbers(vllm)]
    return max(earlier, key=lambda reserve: version_numbers(reserve.since), default=None)


def _numbers(vllm: str) -> tuple[int, ...]:
    """A release without suffixes such as ``post1``."""
    return tuple(int(part) for part in vllm.split(".") if part.isdecimal())
