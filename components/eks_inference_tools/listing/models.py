"""Models of the catalog, with the engines that serve them. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference.catalog.accelerators import Accelerator
from eks_inference.catalog.engines import EngineProfile, engines
from eks_inference.catalog.models import Model, models
from eks_inference_tools.listing.searching import says
from eks_inference_tools.listing.table import Column, columns_of

_BILLION = 1e9
_KIB = 1024


@dataclass(frozen=True)
class ModelRow:
    """One model. ``engines`` serve its architecture, as their documents say."""

    model: Model
    engines: tuple[EngineProfile, ...]

    @property
    def kv_bytes_per_token(self) -> int:
        """Of all layers, in two bytes an element, without repeated heads."""
        return self.model.kv_bytes_per_token()

    @property
    def format(self) -> str:
        """How the checkpoint is published."""
        return self.model.quantization.method if self.model.quantization else self.model.dtype

    @property
    def open(self) -> tuple[str, ...]:
        """Repositories that need no accepted licence, as far as the catalog knows."""
        return tuple(one for one in self.model.repositories if one not in self.model.gated)


@dataclass(frozen=True)
class ModelFilter:
    """What to list. An empty field excludes nothing."""

    texts: tuple[str, ...] = ()
    architectures: frozenset[str] = frozenset()
    engine: EngineProfile | None = None
    accelerator: Accelerator | None = None
    """Only models that an engine for such devices serves."""
    open: bool = False
    """Only models with a repository that needs no token."""
    context: int = 0
    parameters: float | None = None
    """At most so many, in billions."""

    def takes(self, row: ModelRow) -> bool:
        one = row.model
        return (
            says(self.texts, (one.name, one.architecture, row.format, *one.repositories))
            and (not self.architectures or one.architecture in self.architectures)
            and (self.engine is None or self.engine in row.engines)
            and (self.accelerator is None or any(each.accelerator == self.accelerator for each in row.engines))
            and (bool(row.open) or not self.open)
            and one.max_positions >= self.context
            and (self.parameters is None or one.parameters <= self.parameters * _BILLION)
        )


ORDERS: Mapping[str, Callable[[ModelRow], Any]] = {
    "catalog": lambda _: 0,
    "parameters": lambda row: row.model.parameters,
    "context": lambda row: -row.model.max_positions,
    "kv": lambda row: row.kv_bytes_per_token,
}
"""Orders of a list by name; rows that are equal keep the order of the catalog."""


@dataclass(frozen=True)
class Models:
    """The list: ``rows`` out of ``of`` that the catalog has."""

    rows: tuple[ModelRow, ...]
    of: int


def listed(wanted: ModelFilter, order: str = "catalog") -> Models:
    """Returns what the filter takes."""
    every = [ModelRow(one, serving(one)) for one in models().values()]
    return Models(tuple(sorted((row for row in every if wanted.takes(row)), key=ORDERS[order])), len(every))


def serving(model: Model) -> tuple[EngineProfile, ...]:
    """The engine profiles that serve a model's architecture and can still be used."""
    return tuple(one for one in engines().values() if model.architecture in one.architectures and not one.retired)


COLUMNS: Sequence[Column[ModelRow]] = (
    Column("model", "", lambda row: row.model.name),
    Column("architecture", "", lambda row: row.model.architecture, spare=2),
    Column("parameters", "10⁹", lambda row: f"{row.model.parameters / _BILLION:.3g}", right=True),
    Column("weights", "GB", lambda row: f"{row.model.weight_bytes() / _BILLION:.3g}", right=True),
    Column("published", "as", lambda row: row.format, spare=3),
    Column("context", "tokens", lambda row: str(row.model.max_positions), right=True),
    Column("KV cache", "KiB/token", lambda row: f"{row.kv_bytes_per_token / _KIB:g}", right=True),
    Column("gated", "", lambda row: _gated(row), spare=1),
    Column("engines", "", lambda row: ", ".join(one.name for one in row.engines), spare=4),
)


def notes(found: Models) -> Iterator[str]:
    """What to know about the table."""
    if any(row.model.window for row in found.rows):
        yield "KV cache: of every layer, as if none had a sliding window; `plan` counts windows."
    if uncounted := [row for row in found.rows if row.model.uncounted]:
        parts = dict.fromkeys(part for row in uncounted for part in row.model.uncounted)
        yield f"{', '.join(row.model.name for row in uncounted)}: not counted: {', '.join(parts)}."
    if any(row.model.gated for row in found.rows):
        yield "gated: repositories that need an accepted licence and a token; --open lists models with another."
    yield "where one fits: eks-inference plan --model NAME. --format json has every column, with its source and date."


def document(found: Models) -> dict[str, Any]:
    """The list as JSON. Sizes are in bytes."""
    return {"models": [_row(row) for row in found.rows]}


def _row(row: ModelRow) -> dict[str, Any]:
    return {
        **columns_of(row.model),
        "parameters": row.model.parameters,
        "weight_bytes": row.model.weight_bytes(),
        "kv_bytes_per_token": row.kv_bytes_per_token,
        "engines": [one.name for one in row.engines],
    }


def _gated(row: ModelRow) -> str:
    gated, every = len(row.model.gated), len(row.model.repositories)
    return "" if not gated else "all" if gated == every else f"{gated} of {every}"
