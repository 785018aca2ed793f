"""Rows of a team beside those of the catalog: ``models``, ``engines`` and ``instances`` in a TOML file of theirs.

A row has the columns of the catalog's own (``models.toml``, ``engines.toml``, ``instances.toml``), also its source and date, and
a name that the catalog does not have.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints

from eks_inference.catalog import tables
from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.engines import EngineProfile, engines, profile_of
from eks_inference.catalog.instances import InstanceType, instance_types, types_of
from eks_inference.catalog.models import Model, model_of, models
from eks_inference.faults import Fault, SpecError

LARGEST = 1 << 20
"""Largest file, in bytes."""

_SECTIONS: Mapping[str, tuple[str, Callable[[str, Any], Iterable[Any]], type, frozenset[str]]] = {
    "models": ("models.toml", lambda name, row: [model_of(name, row)], Model, frozenset()),
    "engines": ("engines.toml", lambda name, row: [profile_of(name, row)], EngineProfile, frozenset({"chips"})),
    "instances": ("instances.toml", lambda name, row: types_of(name, row), InstanceType, frozenset({"sizes"})),
}
"""Section of a file → the data file that it extends, what makes rows of it, their class, and keys that are no columns of it."""

_GIVEN = {"EngineProfile": {"tensor_parallel", "accelerator"}, "InstanceType": {"family", "tensor_parallel"}}
"""Columns that are computed."""


def rows_of(files: Mapping[str, bytes]) -> tables.Own:
    """Returns the rows of several files, by name and content. Raises ``SpecError`` with every fault: its file, row and key."""
    found: dict[str, dict[str, Any]] = {}
    faults: list[Fault] = []
    for name, content in files.items():
        faults += [Fault((), f"{name}: {message}", given, allowed) for message, given, allowed in _read(content, found)]
    if faults:
        raise SpecError(faults)
    return tables.Own(tuple((file, tables.hashable(rows)) for file, rows in sorted(found.items())))


def _read(content: bytes, found: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Adds the rows of one file to ``found`` and yields its faults: message, given, allowed."""
    allowed = ", ".join(_SECTIONS)
    if len(content) > LARGEST:
        yield "this file is too large", f"{len(content)} bytes", f"at most {LARGEST >> 20} MiB"
        return
    try:
        sections = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        yield "this is no TOML", str(error)[:100], f"tables of {allowed}"
        return
    taken = {"models": models(), "engines": engines(), "instances": {one.family for one in instance_types().values()}}
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
                faults = list(_faults(section, name, row))
                yield from ((f"{place}{message}", given, hint) for message, given, hint in faults)
                if not faults:
                    found.setdefault(file, {})[name] = row


def _faults(section: str, name: str, row: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    _, make, kind, further = _SECTIONS[section]
    columns = {one.name: one for one in fields(kind) if one.name not in {"name", *_GIVEN.get(kind.__name__, ())}}
    known, sizes = columns.keys() | further, row.get("sizes", {})
    if "sizes" in further and not (isinstance(sizes, dict) and sizes and all(isinstance(one, dict) for one in sizes.values())):
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
        yield ": this is no row", str(error)[:100], "the columns of the catalog's rows, as its data files document them"
        return
    for one in made:
        yield from _wrong_types(one)
        if isinstance(one, Model) and one.architecture not in architectures() and one.counted_parameters is None:
            message = ".architecture: nobody wrote a formula for it, and there is no counted_parameters"
            yield message, one.architecture, ", ".join(architectures())


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
