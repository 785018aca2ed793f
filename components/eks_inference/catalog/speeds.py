"""How fast accelerators are: what their makers say (``chips.toml``), published measurements of served models (``measured.csv``,
with their sources in ``measured.toml``), and what engines make of a chip (``speeds.toml``, which ``refresh/speeds.py`` fits to
them).
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from statistics import median
from typing import Any

from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.tables import FOLDER, Row, arguments, load, table


@dataclass(frozen=True)
class Chip(Row):
    """The peaks of one accelerator."""

    chip: str
    """EC2's name of the devices."""
    bandwidth_gb_s: float
    """Bandwidth of the memory of one device."""
    tflops: Mapping[str, float] = field(hash=False)
    """Dense matrix products of one device, by the type of their elements: ``bf16``, ``fp8``, ``fp4``."""
    link_gb_s: float
    """What one device sends to the others of its node at once, one way."""
    memory_gib: int | None = None
    """Memory of a device, where devices of one name differ in it."""


@dataclass(frozen=True)
class Constants:
    """What an engine makes of the peaks of an accelerator."""

    weights: float = 0.75
    """Share of the bandwidth at which weights are read."""
    experts: float = 0.6
    """The same of routed experts."""
    cache: float = 0.7
    """The same of the KV cache."""
    compute: float = 0.55
    """Share of the peak of products in 16 bits."""
    narrow: float = 0.45
    """The same of products in fewer bits."""
    link: float = 0.4
    """Share of the link."""
    step_ms: float = 1.5
    """Fixed time of each step."""
    layer_us: float = 10.0
    """Fixed time of each layer: starting its kernels."""
    exchange_us: float = 10.0
    """Fixed time of a layer's exchange, for each doubling of the devices."""
    sequence_us: float = 6.0
    """Time of a step for each sequence that gets a token: scheduling and sampling."""
    request_ms: float = 12.0
    """Time of a request before its first token, apart from steps: HTTP and tokenizing."""


@dataclass(frozen=True)
class Errors:
    """Predicted by measured times of rows that a fit did not see."""

    rows: int
    median: float
    """Median distance from 1."""
    p90: float
    low: float
    high: float
    """Factors on a predicted time: nine of ten measured ones lie between."""


@dataclass(frozen=True)
class Speed(Row):
    """One accelerator with an engine of ours."""

    chip: Chip
    constants: Constants
    rows: int
    """Measurements of the accelerator; 0: the constants are those of its kin."""
    sources: int
    held_out: str
    """What was left out in turn to find errors: ``source``, ``model``; ``accelerator``: all of its rows."""
    dense: Errors | None = None
    experts: Errors | None = None
    """Errors of models without and with experts. None: no row."""
    first_token: Errors | None = None
    """Errors of the time to the first token, for a request that runs alone."""
    most: Errors | None = None
    """Errors of the largest steady throughput."""
    burst: Errors | None = None
    """Errors of the throughput when all requests come at once."""
    without: Mapping[str, Errors] = field(default_factory=dict)
    """Errors by the group left out, without and with experts."""

    @property
    def few(self) -> bool:
        """Whether there are too few measurements to leave some out and say how far off the others are."""
        return sum(errors.rows for errors in (self.dense, self.experts) if errors) < ENOUGH

    def range(self, *, experts: bool) -> tuple[float, float]:
        """Factors on a predicted time: nine of ten measured ones lie between. Of few rows no narrower than elsewhere."""
        found = self.experts if experts else self.dense
        own = (found.low, found.high) if found else UNSURE
        if found and found.rows < FEW:
            own = min(own[0], UNSURE[0]), max(own[1], UNSURE[1])
        if not self.few:
            return own
        others = [one.range(experts=experts) for one in speeds().values() if not one.few]
        return min(own[0], median(low for low, _ in others)), max(own[1], median(high for _, high in others))


_ERRORS = ("dense", "experts", "first_token", "most", "burst")
ENOUGH = 30
"""Rows with a time between tokens, below which an accelerator counts as little measured."""
FEW = 6
"""Rows below which nobody can say where nine of ten lie."""
UNSURE = (0.5, 2.0)


@cache
def chips() -> Mapping[str, Chip]:
    """All accelerators whose peaks are known, by name."""
    return load(Chip, "chips.toml")


@cache
def speeds() -> Mapping[str, Speed]:
    """All accelerators with constants, by name."""
    found = {}
    for name, row in table("speeds.toml").items():
        columns: dict[str, Any] = arguments(row)
        columns |= {key: Errors(**columns[key]) for key in _ERRORS if key in columns}
        columns["without"] = {name: Errors(**one) for name, one in columns.get("without", {}).items()}
        columns["constants"] = Constants(**columns["constants"])
        found[name] = Speed(name=name, chip=chips()[name], **columns)
    return found


def speed(instance: InstanceType) -> Speed | None:
    """Returns the row for the devices of an instance type; None if nobody measured them or their kin."""
    return next(
        (
            one
            for one in speeds().values()
            if one.chip.chip == instance.chip and one.chip.memory_gib in (None, instance.device_memory_gib)
        ),
        None,
    )


@dataclass(frozen=True)
class Measured:
    """One measurement: so many users who ask again once they have their answer, or one batch."""

    source: str
    model: str
    """Name in the catalog: that of another model where both have one shape."""
    precision: str
    """Weights: ``bf16`` (also fp16), ``fp8``, ``int8``, ``int4``, ``nvfp4``, ``mxfp4`` (experts only)."""
    device: str
    """Name of a row of ``chips.toml``."""
    tensor: int
    """GPUs, or NeuronCores, that share a layer."""
    stages: int
    ranks: int
    """Copies of all but the experts."""
    engine: str
    compiled: int | None
    """Batch that a Neuron engine was compiled for."""
    prompt: float
    answer: float
    """Tokens of a request."""
    users: int
    """At once; 0: as many as the engine took."""
    load: str
    """``batch``: one static batch; ``max``: the most that was reached; ``all``: requests that came at once; else empty."""
    ttft_ms: float | None
    itl_ms: float | None
    tokens_s: float | None
    """Means or medians, as the source has them."""


@cache
def measured() -> tuple[Measured, ...]:
    """All measurements."""
    with (FOLDER / "measured.csv").open(encoding="utf-8", newline="") as file:
        return tuple(map(_row, csv.DictReader(file)))


_own: tuple[Measured, ...] = ()


def own() -> tuple[Measured, ...]:
    """A user's own measurements, which count before the published ones."""
    return _own


def count(rows: Iterable[Measured]) -> None:
    """Makes rows count as a user's own, in place of those before."""
    global _own
    _own = tuple(rows)


@cache
def sources() -> Mapping[str, Row]:
    """Their sources, by name."""
    return load(Row, "measured.toml")


def _row(row: Mapping[str, str]) -> Measured:
    load, _, users = row["users"].rpartition(" ")
    ttft_ms, itl_ms, tokens_s = (float(row[key]) if row[key] else None for key in ("ttft_ms", "itl_ms", "tokens_s"))
    tensor, stages, ranks = (int(row[key] or 1) for key in ("tensor", "stages", "ranks"))
    return Measured(
        source=row["source"],
        model=row["model"],
        precision=row["precision"],
        device=row["device"],
        tensor=tensor,
        stages=stages,
        ranks=ranks,
        engine=row["engine"],
        compiled=int(row["compiled"]) if row["compiled"] else None,
        prompt=float(row["prompt"]),
        answer=float(row["answer"]),
        users=0 if users == "max" else int(users),
        load="max" if users == "max" else load,
        ttft_ms=ttft_ms,
        itl_ms=itl_ms,
        tokens_s=tokens_s,
    )
