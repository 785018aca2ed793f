"""Models of the catalog, with the engines that serve them. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eks_inference.catalog import models as catalog
from eks_inference.catalog.engines import EngineProfile, engines
from eks_inference.catalog.models import Model
from eks_inference_tools.listing.columns import Column, Listing, columns_of, shape_of

_BILLION = 1e9
_KIB = 1024
SHAPE = {"models": [shape_of(Model, engines=[str], **dict.fromkeys(("parameters", "weight_bytes", "kv_bytes_per_token"), int))]}


@dataclass(frozen=True)
class ModelRow:
    """One model. ``engines`` serve its architecture, as their documents say."""

    model: Model
    engines: tuple[EngineProfile, ...]

    @property
    def kv_bytes_per_token(self) -> int:
        """Counts all layers, at two bytes an element, without repeated heads."""
        return self.model.kv_bytes_per_token()

    @property
    def format(self) -> str:
        """How the checkpoint is published."""
        return self.model.quantization.method if self.model.quantization else self.model.dtype

    @property
    def gated(self) -> str:
        gated, every = len(self.model.gated), len(self.model.repositories)
        return "" if not gated else "all" if gated == every else f"{gated} of {every}"


def models() -> Listing[ModelRow]:
    """The list. Engines that can no longer be used serve nothing."""
    usable = [engine for engine in engines().values() if not engine.retired]
    return Listing(
        "model",
        [ModelRow(model, tuple(one for one in usable if one.loads(model))) for model in catalog.models().values()],
        tells=lambda row: (row.model.name, row.model.architecture, row.format, *row.model.repositories),
        filters={
            "architecture": lambda row, names: row.model.architecture in names,
            "engine": lambda row, engine: engine in row.engines,
            "accelerator": lambda row, kind: any(engine.accelerator == kind for engine in row.engines),
            "open": lambda row, _: row.gated != "all",
            "min_context": lambda row, tokens: row.model.max_positions >= tokens,
            "max_parameters": lambda row, billions: row.model.parameters <= billions * _BILLION,
        },
        orders={
            "parameters": lambda row: row.model.parameters,
            "context": lambda row: -row.model.max_positions,
            "kv": lambda row: row.kv_bytes_per_token,
        },
        columns=(
            Column("model", "", lambda row: row.model.name),
            Column("architecture", "", lambda row: row.model.architecture, spare=2),
            Column("parameters", "10⁹", lambda row: f"{row.model.parameters / _BILLION:.3g}", right=True),
            Column("weights", "GB", lambda row: f"{row.model.weight_bytes() / _BILLION:.3g}", right=True),
            Column("published", "as", lambda row: row.format, spare=3),
            Column("context", "tokens", lambda row: str(row.model.max_positions), right=True),
            Column("KV cache", "KiB/token", lambda row: f"{row.kv_bytes_per_token / _KIB:g}", right=True),
            Column("gated", "", lambda row: row.gated, spare=1),
            Column("engines", "", lambda row: ", ".join(engine.name for engine in row.engines), spare=4),
        ),
        notes=_notes,
        # Sizes are in bytes.
        record=lambda row: {
            **columns_of(row.model),
            "parameters": row.model.parameters,
            "weight_bytes": row.model.weight_bytes(),
            "kv_bytes_per_token": row.kv_bytes_per_token,
            "engines": [engine.name for engine in row.engines],
        },
    )


def _notes(rows: Sequence[ModelRow], _: int) -> Iterator[str]:
    if any(row.model.window for row in rows):
        yield "KV cache: of every layer, as if none had a sliding window; `plan` counts windows."
    if uncounted := [row for row in rows if row.model.uncounted]:
        parts = dict.fromkeys(part for row in uncounted for part in row.model.uncounted)
        yield f"{', '.join(row.model.name for row in uncounted)}: not counted: {', '.join(parts)}."
    if any(row.model.gated for row in rows):
        yield "gated: repositories that need an accepted licence and a token; --open lists models with another."
    yield "where one fits: eks-inference plan --model NAME. --format json has every column, with its source and date."
