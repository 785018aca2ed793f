"""Which changes replace a resource (``replacements.toml``), and which resources lose data with it."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from stackgraph.diff.comparing import ABSENT, Path, alike
from stackgraph.graph.document import CHART_TYPE


@dataclass(frozen=True)
class Row:
    """What is known about one resource type; the head of the table explains the fields. In a path, ``*`` is any list item."""

    replace: Sequence[Path]
    gone: Sequence[Path]
    less: Sequence[Path]
    refuse: Sequence[Path]
    source: str
    mutable_with: str
    store: bool


@cache
def table() -> Mapping[str, Row]:
    """The rows by resource type."""
    data = tomllib.loads(files("stackgraph.diff").joinpath("replacements.toml").read_text(encoding="utf-8"))
    sources = data.pop("sources")
    return {
        type_: Row(
            *(tuple(map(pattern_of, row.get(key, ()))) for key in ("replace", "gone", "less", "refuse")),
            source=sources.get(row["source"], f"{sources['aws']}/{row['source']}"),
            mutable_with=row.get("mutable_with", ""),
            store=row.get("store", False),
        )
        for type_, row in data.items()
    }


def rows(type_: str) -> list[Row]:
    """Every row that applies to a type, which may be none."""
    # A chart is not an object of the Kubernetes API.
    whole_package = f"{type_.partition(':')[0]}:*"
    return [table()[name] for name in (type_, whole_package) if name in table() and (name == type_ or type_ != CHART_TYPE)]


def is_known(type_: str) -> bool:
    """Whether the table says which changes replace resources of the type."""
    return type_ in table() or (type_.startswith("kubernetes:") and bool(rows(type_)))


def holds_data(type_: str) -> bool:
    """Whether replacing or deleting such a resource loses data."""
    return any(row.store for row in rows(type_))


def replacing(type_: str, before: Any, after: Any, provider: Mapping[str, Any]) -> Iterator[Path]:
    """The paths of the table at which two inputs differ so that the resource is replaced. ``provider``: its provider's inputs."""
    for row in rows(type_):
        if row.mutable_with and str(provider.get(row.mutable_with, "")).lower() == "true":
            continue
        yield from (path for path in row.replace if _differs(before, after, path))
        yield from (path for path in row.gone if _at(before, path) is not ABSENT and _at(after, path) is ABSENT)
        yield from (path for path in row.less if _shrinks(_at(before, path), _at(after, path)))


def refused(type_: str, before: Any, after: Any) -> Iterator[Path]:
    """The changed paths that the service refuses to update."""
    for row in rows(type_):
        yield from (path for path in row.refuse if _differs(before, after, path))


def covers(pattern: Path, path: Path) -> bool:
    """Whether the pattern names a change at ``path``, above it or below it."""
    return all(mine == "*" or mine == other for mine, other in zip(pattern, path, strict=False))


def pattern_of(text: str) -> Path:
    """The path of ``spec.containers.*.image`` or ``spec.containers[*].image``."""
    return tuple(step for step in text.replace("[", ".").replace("]", "").replace('"', "").split(".") if step)


def _differs(before: Any, after: Any, pattern: Path) -> bool:
    return not alike(_at(before, pattern), _at(after, pattern), pattern)


def _shrinks(before: Any, after: Any) -> bool:
    return isinstance(before, int | float) and isinstance(after, int | float) and after < before


def _at(value: Any, pattern: Path) -> Any:
    for number, step in enumerate(pattern):
        if step == "*" and isinstance(value, list):
            return [_at(item, pattern[number + 1 :]) for item in value]
        if not isinstance(value, Mapping):
            return ABSENT
        value = value.get(step)
        if value is None:
            return ABSENT
    return value
