"""Published measurements of served models: loads ``measured.csv`` and, for their sources, ``measured.toml``."""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from eks_inference.catalog.tables import FOLDER, Row, load


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
