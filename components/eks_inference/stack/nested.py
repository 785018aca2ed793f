"""Values at paths of nested mappings, which may not be valid yet. Pure."""

from collections.abc import Mapping
from typing import Any

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
