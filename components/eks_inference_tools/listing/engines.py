"""Engine profiles of the catalog: what each holds, where it runs, what it serves and what its documents say works. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eks_inference.catalog.engines import EngineProfile, engines
from eks_inference.catalog.features import documented
from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.catalog.models import Model, models
from eks_inference_tools.listing.searching import says
from eks_inference_tools.listing.table import Column, columns_of, plain

_SWITCH = frozenset({"on", "off"})

STATUSES = ("usable", "caveat", "retired")


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
        """One of ``STATUSES``."""
        return "retired" if self.engine.retired else "caveat" if self.engine.caveat else "usable"


@dataclass(frozen=True)
class EngineFilter:
    """What to list. An empty field excludes nothing."""

    texts: tuple[str, ...] = ()
    accelerator: str = ""
    families: frozenset[str] = frozenset()
    chips: frozenset[str] = frozenset()
    architectures: frozenset[str] = frozenset()
    instance: InstanceType | None = None
    model: Model | None = None
    status: str = ""

    def takes(self, row: EngineRow) -> bool:
        one = row.engine
        said = (one.name, one.server, one.image, one.vllm, one.sdk or "", *row.chips, *row.features, *one.kv_connectors)
        return (
            says(self.texts, said)
            and (not self.accelerator or one.accelerator == self.accelerator)
            and (not self.families or not self.families.isdisjoint(one.tensor_parallel))
            and (not self.chips or not self.chips.isdisjoint(row.chips))
            and (not self.architectures or not self.architectures.isdisjoint(one.architectures))
            and (self.instance is None or one.serves(self.instance))
            and (self.model is None or self.model.architecture in one.architectures)
            and (not self.status or row.status == self.status)
        )


@dataclass(frozen=True)
class Engines:
    """The list: ``rows`` out of ``of`` that the catalog has."""

    rows: tuple[EngineRow, ...]
    of: int


def listed(wanted: EngineFilter) -> Engines:
    """Returns what the filter takes."""
    every = [_row_of(one) for one in engines().values()]
    return Engines(tuple(row for row in every if wanted.takes(row)), len(every))


def _row_of(one: EngineProfile) -> EngineRow:
    chips = dict.fromkeys(each.chip for each in instance_types().values() if one.serves(each))
    served = tuple(each.name for each in models().values() if each.architecture in one.architectures)
    features = {feature: tuple(choices) for feature, choices in documented(one.name).items()}
    return EngineRow(one, tuple(chips), served, features)


COLUMNS: Sequence[Column[EngineRow]] = (
    Column("engine", "", lambda row: row.engine.name),
    Column("status", "", lambda row: row.status),
    Column("server", "", lambda row: row.engine.server),
    Column("vLLM", "", lambda row: row.engine.vllm),
    Column("Neuron", "SDK", lambda row: row.engine.sdk or ""),
    Column("accelerator", "", lambda row: row.engine.accelerator),
    Column("KV cache", "", lambda row: row.engine.generation.kv_cache, spare=2),
    Column("models", "here", lambda row: str(len(row.models)), right=True, spare=1),
)


def details(row: EngineRow) -> Iterator[str]:
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


def notes(found: Engines) -> Iterator[str]:
    """What to know about the table."""
    if found.rows:
        yield "models: of the catalog, by architecture. supports: as the engine's documents say."
        yield "--format json has every column, with its source and date."


def document(found: Engines) -> dict[str, Any]:
    """The list as JSON."""
    return {
        "engines": [
            {
                **columns_of(row.engine),
                "status": row.status,
                "chips": list(row.chips),
                "models": list(row.models),
                "features": plain(row.features),
            }
            for row in found.rows
        ]
    }
