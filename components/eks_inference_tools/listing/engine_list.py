"""Engine profiles of the catalog: what each holds, where it runs, what it serves and what its documents say works. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eks_inference.catalog import engines as catalog
from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.features import documented
from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.models import models
from eks_inference_tools.listing.columns import Column, Listing, columns_of, plain, shape_of
from stackgraph.strict_json import ANY

_SWITCH = frozenset({"on", "off"})
SHAPE = {"engines": [shape_of(EngineProfile, status=str, chips=[str], models=[str], features={"*": ANY})]}


@dataclass(frozen=True)
class EngineRow:
    """One profile."""

    engine: EngineProfile
    chips: tuple[str, ...]
    """Devices that it supports."""
    models: tuple[str, ...]
    """Models of the catalog that it serves."""
    features: Mapping[str, tuple[str, ...]] = field(hash=False)
    """Documented values by feature."""

    @property
    def status(self) -> str:
        return "retired" if self.engine.retired else "caveat" if self.engine.caveat else "usable"

    @property
    def texts(self) -> tuple[str, ...]:
        one = self.engine
        return one.name, one.server, one.image, one.vllm, one.sdk or "", *self.chips, *self.features, *one.kv_connectors


def engines() -> Listing[EngineRow]:
    """The list."""
    return Listing(
        "engine profile",
        [_row_of(engine) for engine in catalog.engines().values()],
        tells=lambda row: row.texts,
        filters={
            "accelerator": lambda row, kind: row.engine.accelerator == kind,
            "family": lambda row, names: not names.isdisjoint(row.engine.tensor_parallel),
            "chip": lambda row, names: not names.isdisjoint(row.chips),
            "architecture": lambda row, names: not names.isdisjoint(row.engine.architectures),
            "instance": lambda row, instance: row.engine.serves(instance),
            "model": lambda row, model: row.engine.loads(model),
            "status": lambda row, status: row.status == status,
        },
        columns=(
            Column("engine", "", lambda row: row.engine.name),
            Column("status", "", lambda row: row.status),
            Column("server", "", lambda row: row.engine.server),
            Column("vLLM", "", lambda row: row.engine.vllm),
            Column("Neuron", "SDK", lambda row: row.engine.sdk or ""),
            Column("accelerator", "", lambda row: row.engine.accelerator),
            Column("KV cache", "", lambda row: row.engine.generation.kv_cache, spare=2),
            Column("models", "here", lambda row: str(len(row.models)), right=True, spare=1),
        ),
        below=_details,
        notes=_notes,
        record=lambda row: {
            **columns_of(row.engine),
            "status": row.status,
            "chips": list(row.chips),
            "models": list(row.models),
            "features": plain(row.features),
        },
    )


def _row_of(one: EngineProfile) -> EngineRow:
    chips = dict.fromkeys(each.chip for each in instance_types().values() if one.serves(each))
    served = tuple(each.name for each in models().values() if one.loads(each))
    features = {feature: tuple(choices) for feature, choices in documented(one.name).items()}
    return EngineRow(one, tuple(chips), served, features)


def _details(row: EngineRow) -> Iterator[str]:
    """Lines below a row."""
    one = row.engine
    yield f"instance types: {', '.join(one.tensor_parallel)} ({', '.join(row.chips)})"
    yield f"architectures: {', '.join(one.architectures)}"
    supports = [name + ("" if _SWITCH.issuperset(values) else f" ({', '.join(values)})") for name, values in row.features.items()]
    supports += [f"KV cache between servers ({', '.join(one.kv_connectors)})"] if one.kv_connectors else []
    supports += [f"Ray {one.ray}"] if one.ray else []
    yield f"supports: {', '.join(supports) or 'nothing more that its documents say'}"
    yield f"image: {one.image}"
    if one.retired:
        yield f"retired: {one.retired}"
    if one.caveat:
        yield f"caveat: {one.caveat}"


def _notes(rows: Sequence[EngineRow], _: int) -> Iterator[str]:
    if rows:
        yield "models: of the catalog, by architecture. supports: as the engine's documents say."
        yield "--format json has every column, with its source and date."
