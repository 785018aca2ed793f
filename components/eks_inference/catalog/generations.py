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
    """The flag that sets the sizes for which graphs are compiled."""

    flag: str
    """Name of the flag, without dashes. Its value is JSON."""
    key: str
    """Key in that JSON that holds the sizes."""
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
    """How to set buckets. None: the engine chooses them, or there is no flag."""
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
    nested = {"kv_pool": KvPool, "buckets": Buckets, "efa_affinity": EfaAffinity}
    return Generation(name=name, **row | {key: of(**arguments(row[key])) for key, of in nested.items() if key in row})
