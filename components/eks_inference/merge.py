"""Merges a user's values over ours: the escape hatch of charts and add-ons."""

from collections.abc import Mapping
from typing import Any


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``ours`` with ``theirs`` merged in, key by key; lists and scalars are replaced."""
    result = dict(ours)
    for key, value in theirs.items():
        mine = result.get(key)
        result[key] = merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return result
