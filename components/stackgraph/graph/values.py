"""Reading recorded inputs, in which a token may stand where a list or a table would: nothing here fails on any value."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stackgraph.graph.tokens import is_token


def at(value: Any, *path: str) -> Any:
    """The value at a path; None where there is none. Below a token everything is that token."""
    for key in path:
        if is_token(value):
            return value
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def table(value: Any) -> Mapping[str, Any]:
    """The value as a mapping with text keys; empty when it is none."""
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}


def items(value: Any) -> Sequence[Any]:
    """The value as a list. One token in place of a list is a list of one."""
    if isinstance(value, list | tuple):
        return value
    return [value] if is_token(value) else []


def texts(value: Any) -> tuple[str, ...]:
    """The items of a list as texts, without empty ones; a single text counts as a list of one."""
    found = [value] if isinstance(value, str) else items(value)
    return tuple(shown for item in found if (shown := text(item)))


def text(value: Any) -> str:
    """The value in one line, without control characters: what a program hands over cannot steer a terminal."""
    if isinstance(value, str) and value.isprintable() and "  " not in value:
        return value.strip()
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        value = json.dumps(plain(value), ensure_ascii=False, sort_keys=True)
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(value)).split())


def plain(value: Any) -> Any:
    """The value with nothing but what JSON and YAML know."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, int | float):
        return value
    return str(value)


def joined(*parts: Any, by: str = " ") -> str:
    """The texts of the parts that are not empty."""
    return by.join(shown for part in parts if (shown := text(part)))


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """The values without empty ones and repetitions, in their order."""
    return tuple(dict.fromkeys(value for value in values if value))
