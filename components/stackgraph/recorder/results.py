"""Placeholders for the results of provider functions, built from the result types of an SDK."""

import inspect
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, get_args, get_origin

from pulumi import _types

from stackgraph.recorder import wire

_DEPTH = 4
"""The deepest nested result that programs are expected to read. Types of some SDKs contain themselves."""

_ITEMS = 3
"""The length of lists: that of the lists programs ask for most, zones of a region and subnets of a network, or more."""


def placeholder(typ: type, name: str, given: Mapping[str, Any], *, prompt: bool) -> dict[str, Any]:
    """A result of a type: what is ``given``, and placeholders for all else.

    Texts read ``<name.property>``, lists have three items, maps none. Numbers and truths are unknown; for a program that gets the
    result at once (``prompt``), they are 1 and false.
    """
    hints = {prop: _types.unwrap_optional_type(hint) for prop, hint in _types.output_type_types(typ).items()}
    made = {prop: _value(hint, (name, prop), _DEPTH, prompt) for prop, hint in hints.items()}
    return made | {key: _converted(value, hints.get(key)) for key, value in given.items()}


def _converted(value: Any, hint: Any) -> Any:
    """An argument as a provider returns it: ``"true"`` and ``"3"`` in the type of the result."""
    if isinstance(value, str) and hint is bool:
        return value == "true"
    return int(value) if isinstance(value, str) and hint is int and value.isdecimal() else value


def _value(hint: Any, path: tuple[str, ...], depth: int, prompt: bool) -> Any:
    hint = _types.unwrap_optional_type(hint)
    if inspect.isclass(hint) and _types.is_output_type(hint):
        inner = _types.output_type_types(hint) if depth else {}
        return {prop: _value(each, (*path, prop), depth - 1, prompt) for prop, each in inner.items()}
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return next(iter(hint)).value
    origin = get_origin(hint) or hint
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return {}
    if inspect.isclass(origin) and issubclass(origin, Sequence) and origin is not str:
        item, *_ = get_args(hint) or (str,)
        return [_value(item, (*path[:-1], f"{path[-1]}[{number}]"), depth - 1, prompt) for number in range(_ITEMS) if depth]
    if hint in (int, float, bool):
        return hint(hint is not bool) if prompt else wire.UNKNOWN
    return f"<{'.'.join(path)}>"
