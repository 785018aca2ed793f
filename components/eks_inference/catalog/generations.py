"""Engine generations: loads ``generations.toml``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from eks_inference.catalog.accelerators import Accelerator, ForAccelerator
from eks_inference.catalog.tables import Row, arguments, find, table


@dataclass(frozen=True)
class KvPool:
    """Limits of a paged KV cache whose size is compiled into the graphs."""

    fraction: float
    """Largest share of the engine's memory that the pool may take."""
    fraction_variable: str
    """Environment variable that overrides ``fraction``."""
    smallest_gib: float
    """The engine exits if the pool would be smaller."""
    smallest_variable: str
    """Environment variable that overrides ``smallest_gib``."""


@dataclass(frozen=True)
class Buckets:
    """The sizes for which graphs can be compiled."""

    segment_sizes: tuple[int, ...]
    """KV cache segments that the attention kernel supports, in tokens."""
    block_size: int
    """Default of ``--block-size``, in tokens."""
    length_unit: int = 1
    """Lengths of sequences for which graphs are compiled are multiples of it."""
    segments: int | None = None
    """Sizes of segments that one server can have. None: several."""
    longest_whole: int | None = None
    """Longest ``max_model_len`` whose prompts may be processed whole, in tokens. None: no limit."""


@dataclass(frozen=True)
class PluginSettings:
    """The flag with the settings of vLLM's plugin: a JSON object, of which the plugin ignores what it does not know."""

    flag: str
    """Name of the flag, without dashes."""
    key: str
    """Key in the object that holds the settings."""
    beside: tuple[str, ...] = ()
    """Other keys in the object that the plugin reads."""
    keys: tuple[str, ...] = ()
    """Settings that the plugin reads. Empty: not listed here."""


@dataclass(frozen=True)
class Fp8Kv:
    """A KV cache in FP8."""

    types: tuple[str, ...]
    """Values of ``--kv-cache-dtype`` for it."""
    architectures: tuple[str, ...]
    """Model architectures that have the packed form."""
    packed: str
    """The setting of the plugin that packs it; without, prompts cannot be processed in segments."""
    batches: str
    """The setting with the batches for which graphs are compiled: one for all, as odd numbers of sequences may not be packed."""
    block_size: int
    """``--block-size`` with which it was validated, in tokens."""


@dataclass(frozen=True)
class EfaAffinity:
    """The engine's search for the EFA interface beside a device, without which its workers do not start."""

    instance_types: tuple[str, ...]
    """Where it knows the addresses of the interfaces."""
    switch: str
    """Environment variable that turns the search off."""
    skips: str
    """Its value that does."""
    seeks: str
    """Its default; every other value turns the search off."""

    def finds(self, instance_type: str, efa_interfaces: int) -> bool:
        """Whether the search finds an interface in a pod with so many."""
        return efa_interfaces > 0 and instance_type in self.instance_types


@dataclass(frozen=True)
class Generation(ForAccelerator, Row):
    """Properties of every release of one way to run vLLM on a kind of chip."""

    accelerator: Accelerator
    kv_cache: Literal["contiguous", "paged"]
    """contiguous: the engine reserves memory for a full batch of the longest sequences at start. paged: sequences share pages."""
    compile_cache: Literal["s3", "folder"]
    """Where compiled graphs can persist: ``s3`` is a bucket or a folder, ``folder`` only a folder."""
    compile_cache_variable: str
    """Environment variable that holds the location."""
    waits: Mapping[str, str] = field(default_factory=dict)
    """Environment variables with the seconds that the engine itself waits → the limit of ``Startup`` that each gets."""
    efa_affinity: EfaAffinity | None = None
    """How the engine's workers choose CPUs by the EFA interface of their device. None: they do not."""
    refuses_other_checkpoints: bool = False
    """Whether the engine refuses quantized checkpoints that its profiles do not list."""
    settings: PluginSettings | None = None
    """How to set what is the plugin's own. None: nothing is known of it, or there is no plugin."""
    fp8_kv: Fp8Kv | None = None
    """What a KV cache in FP8 needs. None: nothing further, or nothing is known of it."""
    kv_pool: KvPool | None = None
    """Limits of the page pool. None: pages take the memory that weights leave free."""
    needs_block_size: bool = False
    """Whether ``--block-size`` must equal the longest sequence, unless prefix caching is on."""
    blocks_are_sequences: bool = False
    """Whether ``--num-gpu-blocks-override`` must equal the number of sequences, unless prefix caching is on."""
    copies_hub_models: bool = False
    """Whether the engine saves another copy, of four bytes a weight, of a model that it downloads itself."""
    pads_heads: bool = False
    """Whether the engine adds empty attention heads where theirs do not divide evenly among the cores."""
    sharding: Mapping[str, Any] | None = None
    """Flags with which a finished artifact holds the weights too, so that a start from it needs neither compiler nor checkpoint.
    None: artifacts are not kept."""
    largest_top_k: int | None = None
    """Largest top-k of the on-device sampler. None: no limit."""
    buckets: Buckets | None = None
    """Which buckets can be set. None: the engine chooses them, or there is no flag."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The engine's values of flags that are not given, where they differ from those of other generations."""

    @property
    def paged(self) -> bool:
        """Whether the KV cache is paged."""
        return self.kv_cache == "paged"

    def takes_prompts_whole(self, max_model_len: int) -> bool:
        """Whether the engine's own batch holds the longest prompt, so that no prompt is split into segments."""
        return self.buckets is not None and max_model_len <= self.defaults.get("max-num-batched-tokens", 0)


@cache
def generations() -> dict[str, Generation]:
    """All generations by name."""
    return {name: _generation(name, row) for name, row in table("generations.toml").items()}


def generation(name: str) -> Generation:
    """Returns one generation. Raises ``KeyError`` with the nearest names if it is unknown."""
    return find("generation", name, generations())


def _generation(name: str, row: dict[str, Any]) -> Generation:
    nested = {"kv_pool": KvPool, "buckets": Buckets, "efa_affinity": EfaAffinity, "settings": PluginSettings, "fp8_kv": Fp8Kv}
    return Generation(name=name, **row | {key: of(**arguments(row[key])) for key, of in nested.items() if key in row})
