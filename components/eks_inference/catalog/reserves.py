"""What engines take of a device beside weights and KV cache: loads ``reserves.toml``."""

from dataclasses import dataclass
from functools import cache

from eks_inference.catalog.tables import Row, load, version_numbers


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
