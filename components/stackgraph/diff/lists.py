"""How to compare lists (``lists.toml``): by key, as sets, or position by position."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at


@dataclass(frozen=True, order=True)
class Key:
    """The key of a list item: the names of its key properties, and their values as text."""

    by: tuple[str, ...]
    values: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(filter(None, self.values))


@cache
def _data() -> Mapping[str, Any]:
    return tomllib.loads(files("stackgraph.diff").joinpath("lists.toml").read_text(encoding="utf-8"))


@cache
def _names(section: str, key: str) -> frozenset[str]:
    return frozenset(_data()[section][key])


def is_set(name: str) -> bool:
    """Whether the order of strings in lists of that name is irrelevant."""
    return name in _names("order", "sets")


def is_ordered(name: str) -> bool:
    """Whether the order of items with keys matters in lists of that name."""
    return name in _names("order", "ordered")


def holds_quantities(name: str) -> bool:
    """Whether strings at or below a property of that name are Kubernetes quantities."""
    return name in _names("quantities", "below")


def keyed(name: str, *lists: Sequence[Any]) -> tuple[Mapping[Key, Any], ...] | None:
    """The items of each list by key; None if no choice of keys is unique within each list."""
    if not any(lists) or not all(isinstance(item, Mapping) for items in lists for item in items):
        return None
    for choice in _data()["keys"].get(name, ()):
        found = [[_key(item, choice) for item in items] for items in lists]
        if all(len(set(keys)) == len(keys) and all(any(key.values) for key in keys) for keys in found):
            return tuple(dict(zip(keys, items, strict=True)) for keys, items in zip(found, lists, strict=True))
    return None


def _key(item: Mapping[str, Any], choice: Sequence[str]) -> Key:
    values = (at(item, *path.split(".")) for path in choice)
    return Key(tuple(choice), tuple("" if value is None or is_token(value) else _shown(value) for value in values))


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(sorted(map(str, value)))
    return str(value)
