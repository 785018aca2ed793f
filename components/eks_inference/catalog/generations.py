"""Generations of engines as data: ``generations.toml`` and its typed loader."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from eks_inference.catalog.accelerators import Accelerator, ForAccelerator
from eks_inference.catalog.tables import arguments, missing, table


@dataclass(frozen=True)
class KvPool:
    """Bounds of a paged KV cache whose size is compiled into the graphs."""

    fraction: float
    """Share of the memory the engine uses that the pool may take."""
    fraction_variable: str
    """Environment variable that changes it."""
    smallest_gib: float
    """Pool below which the engine gives up."""
    smallest_variable: str
    """Environment variable that changes it."""


@dataclass(frozen=True)
class Buckets:
    """The sizes that graphs are compiled for, as flags give them."""

    flag: str
    """Flag that takes them as JSON, without the dashes."""
    key: str
    """Key of that JSON they stand below."""
    segment_sizes: tuple[int, ...]
    """Segments of the KV cache that the attention kernel takes, in tokens."""
    block_size: int
    """Tokens of a block where ``--block-size`` does not say."""


@dataclass(frozen=True)
class Generation(ForAccelerator):
    """What holds for every release of one way to run vLLM on a kind of chip."""

    name: str
    accelerator: Accelerator
    kv_cache: Literal["contiguous", "paged"]
    """contiguous: room for the whole batch at its longest is set aside when the engine starts. paged: sequences share pages."""
    compile_cache: Literal["s3", "folder"]
    """Where compiled graphs can stay between starts: in a bucket or a folder, or in a folder only."""
    compile_cache_variable: str
    """Environment variable that names the place."""
    source: str
    """Where the row comes from."""
    read: str
    """When it was read: a month or a day, ISO."""
    kv_pool: KvPool | None = None
    """Bounds of the pool of pages. None: pages take what the weights leave."""
    needs_block_size: bool = False
    """Whether ``--block-size`` must be given, as long as the longest sequence, unless prefixes are cached."""
    blocks_are_sequences: bool = False
    """Whether ``--num-gpu-blocks-override`` must be the number of sequences, unless prefixes are cached."""
    largest_top_k: int | None = None
    """Candidates that the sampler on the device keeps. None: it keeps any number."""
    buckets: Buckets | None = None
    """How buckets are given. None: the engine chooses them, or they are no flag."""

    @property
    def paged(self) -> bool:
        """Whether sequences share the KV cache in pages."""
        return self.kv_cache == "paged"


@cache
def generations() -> dict[str, Generation]:
    """All generations by name."""
    return {name: _generation(name, row) for name, row in table("generations.toml").items()}


def generation(name: str) -> Generation:
    """The generation of that name; ``KeyError`` with the nearest names when there is none."""
    if name not in generations():
        raise missing(f"generation '{name}' is not in the catalog", name, generations())
    return generations()[name]


def _generation(name: str, row: dict[str, Any]) -> Generation:
    pool, buckets = row.get("kv_pool"), row.get("buckets")
    return Generation(
        name=name,
        **row
        | {"kv_pool": KvPool(**arguments(pool)) if pool else None, "buckets": Buckets(**arguments(buckets)) if buckets else None},
    )
