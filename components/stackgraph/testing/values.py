"""Recorded values as a test reads them: mappings whose missing keys say what is there."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any


class Absent(KeyError):
    """A key that is not there. Its text names the keys that are."""

    def __str__(self) -> str:
        return str(self.args[0])


class Table(dict[str, Any]):
    """A mapping that names its keys, and the nearest one, when a test asks for another. ``has`` begins that sentence."""

    def __init__(self, values: Mapping[str, Any], has: str) -> None:
        super().__init__(values)
        self.has = has

    def __missing__(self, key: str) -> Any:
        near = get_close_matches(str(key), list(self), n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise Absent(f"no {key!r}: {self.has} {', '.join(map(repr, self)) or 'nothing'}{hint}")


def tables(value: Any, has: str = "there is") -> Any:
    """The value with a ``Table`` for each mapping inside."""
    if isinstance(value, Mapping):
        return Table({key: tables(item, f"at {key!r} {has}") for key, item in value.items()}, has)
    return [tables(item, has) for item in value] if isinstance(value, list | tuple) else value
