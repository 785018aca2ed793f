"""How fast accelerators are, and which share of that engines reach: loads ``speeds.toml``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.tables import Row, load


@dataclass(frozen=True)
class Speed(Row):
    """One accelerator: what its maker says, and the constants of a step, fitted to measurements (``refresh/speeds.py``)."""

    chip: str
    """EC2's name of the devices."""
    bandwidth_gb_s: float
    """Bandwidth of the memory of one device."""
    tflops: Mapping[str, float]
    """Peak of dense matrix products of one device, by the type of their elements: ``bf16``, ``fp8``, ``fp4``."""
    link_gb_s: float
    """What one device sends to the others of its node at once, one way."""
    memory_gib: int | None = None
    """Memory of a device, where devices of one name differ in it."""
    weights: float = 0.7
    """Share of the bandwidth at which weights are read."""
    cache: float = 0.7
    """Share of the bandwidth at which the KV cache is read."""
    compute: float = 0.5
    """Share of the peak that is reached."""
    link: float = 0.5
    """Share of the link that is reached."""
    step_ms: float = 2.0
    """What each step takes beside, however small it is."""
    layer_us: float = 8.0
    """What the exchange of one layer takes beside its data, for each doubling of the devices."""
    request_ms: float = 10.0
    """What a request takes until its first step, and after it: HTTP, tokens to text."""
    low: float = 0.5
    high: float = 2.0
    """Factors on a predicted time: nine of ten measurements lie between both."""
    measured: int = 0
    """Measurements that the constants are fitted to."""
    sources: int = 0
    median: float | None = None
    """Median error of rows that a fit did not see; None: nothing was set aside."""
    engines: Mapping[str, float] = field(default_factory=dict)
    """Factors on a step of engines other than vLLM, which rows of them were fitted with."""


@cache
def speed_of(chip: str, memory_gib: int) -> Speed | None:
    """Returns the row of a device; None if nobody wrote one."""
    return next(
        (one for one in load(Speed, "speeds.toml").values() if one.chip == chip and one.memory_gib in (None, memory_gib)), None
    )


def speed(instance: InstanceType) -> Speed | None:
    """Returns the row for the devices of an instance type; None if nobody wrote one."""
    return speed_of(instance.chip, instance.device_memory_gib)
