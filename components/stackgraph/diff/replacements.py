"""Which changes replace a resource, and what is lost with it (the data files beside this module)."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from stackgraph.diff.differences import ABSENT, Path, alike
from stackgraph.graph.document import CHART_TYPE


@dataclass(frozen=True)
class Row:
    """What is known about one resource type; the head of ``replacements.toml`` explains the fields."""

    source: str
    replace: Sequence[Path] = ()
    gone: Sequence[Path] = ()
    less: Sequence[Path] = ()
    may: Sequence[Path] = ()
    refuse: Sequence[Path] = ()
    mutable_with: str = ""


@cache
def rows(type_: str) -> Sequence[Row]:
    """Every row that applies to a type, which may be none."""
    derived = _derived()
    found = [_row(derived["types"][type_], derived["source"])] if type_ in derived["types"] else []
    # A chart is not an object of the Kubernetes API.
    whole_package = "" if type_ == CHART_TYPE else f"{type_.partition(':')[0]}:*"
    written = _written()
    return (*found, *(_row(written[name], written["sources"]) for name in (type_, whole_package) if name in written))


def is_known(type_: str) -> bool:
    """Whether the tables say which changes replace resources of the type."""
    return type_ in _derived()["types"] or type_ in _written() or (type_.startswith("kubernetes:") and bool(rows(type_)))


def known_types() -> frozenset[str]:
    """Every type and package of the tables."""
    return frozenset(_derived()["types"]) | (frozenset(_written()) - {"sources"})


@cache
def _derived() -> Mapping[str, Any]:
    return json.loads(_text("replacements_aws.json"))


@cache
def _written() -> Mapping[str, Any]:
    return tomllib.loads(_text("replacements.toml"))


def _row(data: Mapping[str, Any], sources: Mapping[str, str] | str) -> Row:
    """``sources`` are those of the table by short name, or the only one."""
    named = f"{sources}, {data['source']}" if isinstance(sources, str) else sources.get(data["source"], data["source"])
    given = {key: tuple(map(pattern_of, value)) if isinstance(value, list) else value for key, value in data.items()}
    return Row(**{**given, "source": named})


def _text(name: str) -> str:
    return files("stackgraph.diff").joinpath(name).read_text(encoding="utf-8")


@cache
def held(type_: str) -> str:
    """What is lost when such a resource is replaced or deleted, in words; empty if nothing is."""
    found = (words for type_of, words in _stores().items() if type_ == type_of or fnmatchcase(type_, type_of))
    return next(found, "")


@cache
def _stores() -> Mapping[str, str]:
    return {type_: words for words, types in tomllib.loads(_text("stores.toml")).items() for type_ in types.split()}


def replacing(type_: str, before: Any, after: Any, provider: Mapping[str, Any]) -> Iterator[Path]:
    """The paths of the table at which two inputs differ so that the resource is replaced. ``provider``: its provider's inputs."""
    for row in rows(type_):
        if row.mutable_with and str(provider.get(row.mutable_with, "")).lower() == "true":
            continue
        yield from (path for path in row.replace if _differs(before, after, path))
        yield from (path for path in row.gone if _at(before, path) is not ABSENT and _at(after, path) is ABSENT)
        yield from (path for path in row.less if _shrinks(_at(before, path), _at(after, path)))


def possible(type_: str, before: Any, after: Any) -> Iterator[Path]:
    """The changed paths that replace the resource or not, depending on values. A ``gone`` or ``less`` decides about its path."""
    found = rows(type_)
    decided = {path for row in found for path in (*row.gone, *row.less)}
    for row in found:
        yield from (path for path in row.may if path not in decided and _differs(before, after, path))


def refused(type_: str, before: Any, after: Any) -> Iterator[Path]:
    """The changed paths that the service refuses to update."""
    for row in rows(type_):
        yield from (path for path in row.refuse if _differs(before, after, path))


def covers(pattern: Path, path: Path) -> bool:
    """Whether the pattern names a change at ``path``, above it or below it."""
    return all(mine in ("*", "#") or mine == other for mine, other in zip(pattern, path, strict=False))


def pattern_of(text: str) -> Path:
    """The path of ``spec.containers.*.image`` or ``spec.containers[*].image``."""
    return tuple(step for step in text.replace("[", ".").replace("]", "").replace('"', "").split(".") if step)


def _differs(before: Any, after: Any, pattern: Path) -> bool:
    return not alike(_at(before, pattern), _at(after, pattern), pattern)


def _shrinks(before: Any, after: Any) -> bool:
    return isinstance(before, int | float) and isinstance(after, int | float) and after < before


def _at(value: Any, pattern: Path) -> Any:
    for number, step in enumerate(pattern):
        if step == "#":
            return len(value) if isinstance(value, list) else 1
        if step == "*" and isinstance(value, list):
            return [_at(item, pattern[number + 1 :]) for item in value]
        if not isinstance(value, Mapping):
            return ABSENT
        value = value.get(step)
        if value is None:
            return ABSENT
    return value
