"""A team's own rows beside the catalog's: ``models``, ``engines`` and ``instances`` in a TOML file.

A row has the columns of the catalog's own (``models.toml``, ``engines.toml``, ``instances.toml``), also its source and date, and
a name that the catalog does not have.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints

from eks_inference.catalog import tables
from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.engines import EngineProfile, engines, profile_of
from eks_inference.catalog.instances import InstanceType, instance_types, types_of
from eks_inference.catalog.models import Model, model_of, models, whole
from eks_inference.catalog.weights import STATES
from eks_inference.faults import Fault, SpecError

LARGEST = 1 << 20
"""Largest file, in bytes."""

_SECTIONS: Mapping[str, tuple[str, Callable[[str, Any], Iterable[Any]], type, frozenset[str]]] = {
    "models": ("models.toml", lambda name, row: [model_of(name, row)], Model, frozenset()),
    "engines": ("engines.toml", lambda name, row: [profile_of(name, row)], EngineProfile, frozenset({"chips"})),
    "instances": ("instances.toml", lambda name, row: types_of(name, row), InstanceType, frozenset({"sizes"})),
}
"""Section of a file → the data file that it extends, what makes rows of it, their class, and keys that are no columns of it."""

_GIVEN = {"EngineProfile": {"tensor_parallel", "accelerator"}, "InstanceType": {"family"}}
"""Columns that are computed."""


def count(files: Mapping[str, bytes]) -> None:
    """Makes the rows of these files count, in place of the previous stack's. Raises ``SpecError`` with every fault."""
    tables.use(tables.Own(), of_stack=True)
    tables.use(rows_of(files), of_stack=True)


def rows_of(files: Mapping[str, bytes]) -> tables.Own:
    """Returns the rows of several files, by name and content. Raises ``SpecError`` with every fault: its file, row and key."""
    found: dict[str, dict[str, Any]] = {}
    faults: list[Fault] = []
    for name, content in files.items():
        faults += [Fault((), f"{name}: {message}", given, allowed) for message, given, allowed in _read(content, found)]
    if faults:
        raise SpecError(faults)
    return tables.Own(json.dumps(dict(sorted(found.items()))))


def _read(content: bytes, found: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Adds the rows of one file to ``found`` and yields its faults: message, given, allowed."""
    allowed = ", ".join(_SECTIONS)
    if len(content) > LARGEST:
        yield "this file is too large", f"{len(content)} bytes", f"at most {LARGEST >> 20} MiB"
        return
    try:
        sections = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        yield "this is not TOML", str(error)[:100], f"tables of {allowed}"
        return
    # Of an instance type without accelerators, a row of one's own comes before the catalog's.
    families = {instance_type.family for instance_type in instance_types().values() if instance_type.accelerator}
    taken = {"models": models(), "engines": engines(), "instances": families}
    for section, rows in sections.items():
        if section not in _SECTIONS or not isinstance(rows, dict):
            yield f"{section}: no such section", "", allowed
            continue
        file = _SECTIONS[section][0]
        for name, row in rows.items():
            place = f"{section}.{name}"
            if name in taken[section] or name in found.get(file, {}):
                yield f"{place}: there is a row of this name already", name, "another name"
            elif not isinstance(row, dict):
                yield f"{place}: not a table of columns", "", "columns and their values"
            else:
                if section == "models" and "same_as" in row:
                    known, like = tables.table(file), str(row["same_as"])
                    if like not in known:
                        yield f"{place}.same_as: the catalog has no such model", like, ", ".join(tables.nearest(like, known))
                        continue
                    row = whole(row, known)
                faults = list(_faults(section, name, row))
                yield from ((f"{place}{message}", given, hint) for message, given, hint in faults)
                if not faults:
                    found.setdefault(file, {})[name] = row


def _faults(section: str, name: str, row: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    _, make, kind, further = _SECTIONS[section]
    columns = {field.name: field for field in fields(kind) if field.name not in {"name", *_GIVEN.get(kind.__name__, ())}}
    known, sizes = columns.keys() | further, row.get("sizes", {})
    if "sizes" in further and not (isinstance(sizes, dict) and sizes and all(isinstance(size, dict) for size in sizes.values())):
        yield ".sizes: not a table with the columns of each size", "", "4xlarge = { vcpus = 16, … }"
        return
    said = [row.keys() | size.keys() for size in sizes.values()] if "sizes" in further else [row.keys()]
    unknown = set().union(*said) - known
    for key in sorted(unknown):
        yield f".{key}: there is no such column", "", ", ".join(tables.nearest(key, known) or sorted(known))
    required = {key for key, one in columns.items() if one.default is MISSING and one.default_factory is MISSING}
    missing = set().union(*(required - each for each in said))
    yield from ((f".{key}: this column is required and missing", "", "") for key in sorted(missing))
    if unknown or missing:
        return
    try:
        made = list(make(name, row))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        yield ": this is not a row", str(error)[:100], "the columns of the catalog's rows, as its data files document them"
        return
    for one in made:
        wrong = list(_wrong_types(one)) or list(_impossible(one))
        yield from wrong
        if not wrong and isinstance(one, Model) and one.architecture not in architectures() and one.counted_parameters is None:
            message = ".architecture: it has no formula here, and counted_parameters is missing"
            yield message, one.architecture, ", ".join(architectures())


_LARGEST_NUMBER = 10**15
"""More than anything that a row counts."""
_AT_LEAST_ONE = frozenset(
    {
        *("hidden", "layers", "heads", "kv_heads", "head_dim", "vocabulary", "max_positions", "counted_parameters"),
        *("embedding_width", "bits", "vcpus", "memory_mib", "ebs_mb_s", "max_pods", "cuda_memory_gib", "port", "image_gb"),
    }
)


def _impossible(row: Model | EngineProfile | InstanceType) -> Iterator[tuple[str, str, str]]:
    """Yields values of the right type that are impossible."""
    if isinstance(row, Model):
        yield from _numbers(row, "model")
        yield from _numbers(row.quantization, "model", ".quantization") if row.quantization else ()
        yield from _impossible_model(row)
    elif isinstance(row, EngineProfile):
        yield from _numbers(row, "engine")
        yield from _numbers(row.startup, "engine", ".startup")
        yield from _impossible_engine(row)
    else:
        yield from _numbers(row, "instance type")
        yield from _impossible_instance(row)


def _numbers(row: Any, what: str, place: str = "") -> Iterator[tuple[str, str, str]]:
    for column in fields(row):
        value, least = getattr(row, column.name), int(column.name in _AT_LEAST_ONE)
        if isinstance(value, int | float) and not isinstance(value, bool) and not least <= value <= _LARGEST_NUMBER:
            few, allowed = ("few", f"at least {least}") if value < least else ("many", f"at most {_LARGEST_NUMBER}")
            yield f"{place}.{column.name}: no {what} has so {few}", str(value)[:60], allowed


def _impossible_model(model: Model) -> Iterator[tuple[str, str, str]]:
    if not model.repositories:
        yield ".repositories: a model is found by one", "[]", "at least one repository"
    for column, heads in (("kv_heads", model.heads), ("full_kv_heads", model.full_heads or model.heads)):
        if (number := getattr(model, column)) > 0 and heads % number:
            yield f".{column}: heads are not a multiple of it", str(number), f"a divisor of {heads}"
    for column in ("expert_layers", "index_layers", "window_layers"):
        if getattr(model, column) > model.layers:
            yield f".{column}: more than there are layers", str(getattr(model, column)), f"at most {model.layers}"
    kind = architectures().get(model.architecture)
    if kind and kind.latent and not model.kv_rank:
        yield f".kv_rank: the attention of {model.architecture} keeps a latent vector", str(model.kv_rank), "its width"
    if model.full_every > model.layers:
        yield ".full_every: no layer has full attention", str(model.full_every), f"at most {model.layers}"
    if (model.pattern or (kind and kind.pattern)) and (len(model.pattern) != model.layers or set(model.pattern) - set("*WME-")):
        yield ".pattern: not a letter for each layer", model.pattern[:60], f"{model.layers} of * W M E -"
        return
    if model.pattern and not model.attention_layers:
        yield ".pattern: no layer attends", model.pattern[:60], "at least one * or W"
    if model.full_every or (kind and "state_heads" in kind.keys):
        for column in (*(() if model.pattern else ("full_every",)), *STATES):
            if not getattr(model, column):
                yield f".{column}: layers keep a state, whose size it decides", "0", "at least 1"
    indexed, hears = ("index_heads", "index_dim", "index_layers"), ("encoder_layers", "heard", "mel")
    for columns, has, what in ((indexed, kind and kind.indexed, "has an index"), (hears, kind and kind.hears, "hears")):
        for column in columns if has else ():
            if not getattr(model, column):
                yield f".{column}: the attention of {model.architecture} {what}", "0", "at least 1"
    if model.quantization and model.quantization.experts_only and kind is None:
        message = ".quantization.experts_only: the size of the experts is unknown, because the architecture has no formula here"
        yield message, model.architecture, "false, or an architecture of " + ", ".join(architectures())


def _impossible_engine(engine: EngineProfile) -> Iterator[tuple[str, str, str]]:
    for column in ("vllm", "sdk"):
        version = getattr(engine, column)
        if version is not None and not re.fullmatch(r"\d+(\.\d+)+(\.?[a-z]+\d+)*", version, re.ASCII):
            yield f".{column}: no release", version[:60], "numbers with dots, e.g. 0.30.0"
    if not re.fullmatch(r"[!-~]+", engine.image):
        yield ".image: no image", engine.image[:60], "registry/repository:tag"
    unpacks = {f"unpacks.{method}": flags for method, flags in engine.unpacks.items()}
    for column, flags in {"arguments": engine.arguments, **unpacks}.items():
        for flag in flags:
            try:
                flag.format(max_num_seqs=1, max_model_len=1)
            except (LookupError, ValueError, AttributeError):
                message = f".{column}: the text in braces has no value"
                yield message, flag[:60], "{max_num_seqs}, {max_model_len}; {{ and }} for braces"


def _impossible_instance(instance: InstanceType) -> Iterator[tuple[str, str, str]]:
    needed: Mapping[str, Any] = {}
    if instance.accelerator:
        needed = {"devices": instance.devices, "device_memory_gib": instance.device_memory_gib, "chip": instance.chip}
    if instance.nvidia:
        needed |= {"compute_capability": min(instance.compute_capability or (0, 0)) >= 0 and instance.compute_capability}
    if instance.neuron:
        columns = ("cores_per_device", "physical_cores_per_device", "legal_device_counts", "tensor_parallel")
        needed |= {column: getattr(instance, column) for column in columns}
    for column, value in needed.items():
        if not value:
            yield f".{column}: instance types with {instance.accelerator} devices have one", str(value), ""
    if instance.compute_capability and not instance.nvidia:
        yield ".compute_capability: only NVIDIA GPUs have one", str(instance.compute_capability), "accelerator = nvidia"


def _wrong_types(row: Any, place: str = "") -> Iterator[tuple[str, str, str]]:
    from pydantic import TypeAdapter, ValidationError

    hints = get_type_hints(type(row))
    for column in fields(row):
        value, at = getattr(row, column.name), f"{place}.{column.name}"
        if is_dataclass(value):
            yield from _wrong_types(value, at)
            continue
        try:
            TypeAdapter(hints[column.name]).validate_python(value, strict=True)
        except ValidationError as error:
            for wrong in error.errors(include_url=False):
                key = ".".join(str(part) for part in (at, *wrong["loc"]))
                yield f"{key}: {wrong['msg'].lower()}", repr(wrong["input"])[:60], ""
