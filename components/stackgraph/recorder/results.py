"""Placeholders for the results of provider functions, built from the result types of an SDK."""

import inspect
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, get_args, get_origin

from pulumi import _types

_DEPTH = 4
"""The deepest nested result that programs are expected to read. Types of some SDKs contain themselves."""

_ITEMS = 3
"""The length of lists: that of the lists programs ask for most, zones of a region and subnets of a network, or more."""


def placeholder(typ: type, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A result of a type: what is ``given``, and placeholders for all else.

    Texts read ``<name.property>``, lists have three items, maps none. SDKs refuse a text for a number, so numbers are 1 and
    truths false.
    """
    hints = _types.output_type_types(typ)
    made = {prop: _value(hint, (name, prop), _DEPTH) for prop, hint in hints.items()}
    return made | {key: _converted(value, made.get(key)) for key, value in given.items()}


def _converted(value: Any, like: Any) -> Any:
    """An argument as a provider returns it: ``"true"`` and ``"3"`` in the type of the result."""
    if isinstance(value, str) and isinstance(like, bool):
        return value == "true"
    return int(value) if isinstance(value, str) and isinstance(like, int) and value.isdecimal() else value


def _value(hint: Any, path: tuple[str, ...], depth: int) -> Any:
    hint = _types.unwrap_optional_type(hint)
    if inspect.isclass(hint) and _types.is_output_type(hint):
        inner = _types.output_type_types(hint) if depth else {}
        return {prop: _value(each, (*path, prop), depth - 1) for prop, each in inner.items()}
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return next(iter(hint)).value
    origin = get_origin(hint) or hint
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return {}
    if inspect.isclass(origin) and issubclass(origin, Sequence) and origin is not str:
        item, *_ = get_args(hint) or (str,)
        return [_value(item, (*path[:-1], f"{path[-1]}[{number}]"), depth - 1) for number in range(_ITEMS) if depth]
    if hint in (int, float, bool):
        return hint(hint is not bool)
    return f"<{'.'.join(path)}>"
