"""Values at paths of nested mappings, which may not be valid yet: which required keys are missing, and what a value left open
resolves to. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.specs.base import Spec, stated

Path = tuple[str, ...]

ABSENT: Mapping[str, Any] = {}
"""What stands at a path that does not exist, unless somebody says otherwise."""


def at(given: Any, path: Path, absent: Any = ABSENT) -> Any:
    """The value at a path of mappings, or ``absent``."""
    for key in path:
        given = given.get(key) if isinstance(given, Mapping) else None
    return absent if given is None else given


def put(given: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A copy of nested mappings with a value at a path."""
    key, *rest = path
    return {**given, key: put(at(given, (key,)), tuple(rest), value) if rest else value}


def open_keys(spec: type[Spec], given: Mapping[str, Any], under: Path = ()) -> Iterator[Path]:
    """Yields the required keys that a mapping of this spec lacks, those of its objects too."""
    for key, column in spec.model_fields.items():
        required = column.is_required() or (column.json_schema_extra is stated and key != "kind")
        inner = column.annotation
        if key not in given:
            yield from [(*under, key)] if required else ()
        elif isinstance(inner, type) and issubclass(inner, Spec) and isinstance(given[key], Mapping):
            yield from open_keys(inner, given[key], (*under, key))


@dataclass(frozen=True)
class Resolved:
    """A key that the stack object lacks. ``path`` is its place in it, ``why`` the row or rule that decides, in words."""

    path: tuple[str, ...]
    value: Any
    why: str
