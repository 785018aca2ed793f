"""Reads JSON from a source that is not trusted: bounded in size and depth, with exactly the keys and types of a shape; and gives
the JSON Schema of a shape, or of Python's types.

A shape is ``str``, ``bool`` or ``int``; a ``Text``; a tuple of the texts that are allowed; a list of one shape, for any number of
items; a dictionary of shapes by key, with ``?`` after a key that may be missing; ``OrNull``; or ``ANY``.

A dataclass is the object that ``dataclasses.asdict`` makes of it, so that what is counted and what is published cannot differ.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from stackgraph.graph.values import text
from stackgraph.graph.wording import counted, shorten
from stackgraph.problems import Problem, ProblemsFound

MOST_VALUES = 300_000
DEEPEST = 100
LONGEST_TEXT = 20_000
MOST_PROBLEMS = 10
"""Problems of one document that are told; a forged one may have any number."""

ANY = object()

_Fault = tuple[str, str, str, str]
"""Key, what is wrong with it, what was given, what is allowed."""


@dataclass(frozen=True)
class OrNull:
    """A shape, or null."""

    shape: Any


@dataclass(frozen=True)
class Text:
    """A text that matches a pattern as a whole. ``words`` tell an author what that is."""

    words: str
    pattern: str


def read(written: bytes, shape: Any, *, limit: int, shown: str, hint: str) -> Any:
    """The document, which has the shape and at most ``limit`` bytes. Raises ``ProblemsFound``; ``shown`` names it there."""

    def refuse(faults: Sequence[_Fault]) -> NoReturn:
        raise ProblemsFound([Problem(what, shown, 0, key, given, allowed, hint) for key, what, given, allowed in faults])

    try:
        found = _parsed(written, limit)
    except _Unreadable as error:
        refuse([("", str(error), "", "")])
    if faults := list(islice(_faults(found, shape, ""), MOST_PROBLEMS)):
        refuse(faults)
    return found


class _Unreadable(ValueError):
    """The document is not worth looking into."""


def _parsed(written: bytes, limit: int) -> Any:
    """The JSON of a document that is neither too large nor too deep."""
    if len(written) > limit:
        raise _Unreadable(f"has more than {limit} bytes")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise _Unreadable("has a key twice in one object")
        return made

    try:
        found = json.loads(written.decode("utf-8"), object_pairs_hook=once)
    except _Unreadable:
        raise
    except (ValueError, RecursionError) as error:
        raise _Unreadable("is not JSON in UTF-8") from error
    waiting, values = [(found, 1)], 0
    while waiting:
        value, depth = waiting.pop()
        values += 1
        if values > MOST_VALUES or depth > DEEPEST:
            raise _Unreadable(f"has more than {MOST_VALUES} values, or more than {DEEPEST} in one another")
        if isinstance(value, dict | list):
            waiting += ((item, depth + 1) for item in (value.values() if isinstance(value, dict) else value))
    return found


def _faults(value: Any, shape: Any, key: str) -> Iterator[_Fault]:
    """Where a value has not the shape."""
    if isinstance(shape, OrNull):
        if value is not None:
            yield from _faults(value, shape.shape, key)
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            yield _wrong(key, value, "an object")
            return
        known = {name.rstrip("?"): name for name in shape}
        for name in (name for name in value if name not in known):
            yield (f"{key}.{quoted(name)}".strip("."), "unknown key", "", ", ".join(known))
        for name, spelt in known.items():
            if name in value:
                yield from _faults(value[name], shape[spelt], f"{key}.{name}".strip("."))
            elif name == spelt:
                yield (f"{key}.{name}".strip("."), "missing", "", "")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield _wrong(key, value, "a list")
            return
        for number, item in enumerate(value):
            yield from _faults(item, shape[0], f"{key}[{number}]")
    elif shape is not ANY:
        yield from _faults_of_a_scalar(value, shape, key)


def _faults_of_a_scalar(value: Any, shape: Any, key: str) -> Iterator[_Fault]:
    if shape is bool:
        allowed, fits = "true, false", isinstance(value, bool)
    elif shape is int:
        allowed, fits = "a whole number from 0 to 1,000,000", type(value) is int and 0 <= value <= 1_000_000
    elif isinstance(value, str) and len(value) > LONGEST_TEXT:
        allowed, fits = f"at most {LONGEST_TEXT} characters", False
    elif isinstance(shape, tuple):
        allowed, fits = ", ".join(shape), value in shape
    elif isinstance(shape, Text):
        allowed, fits = shape.words, isinstance(value, str) and re.fullmatch(shape.pattern, value, re.DOTALL) is not None
    else:
        allowed, fits = "a text", isinstance(value, str)
    if not fits:
        yield _wrong(key, value, allowed)


def _wrong(key: str, value: Any, allowed: str) -> _Fault:
    return key, "not what belongs here", quoted(value), allowed


def quoted(value: Any) -> str:
    """A value on one line. The log of a job takes a line that begins with ``::`` for a command."""
    if isinstance(value, dict | list):
        return counted(len(value), "value")
    return repr(shorten(text(value), 80))


EVERY = "*"
"""Stands for every key of an object whose keys are names."""

_NAMES = {str: "string", bool: "boolean", float: "number", Fraction: "number", NoneType: "null"}


def published(title: str, version: int, shape: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a whole document, which says its version under ``schema``. Another meaning of a key is another version."""
    found = json_schema({"schema": int, **shape})
    found["properties"]["schema"] = {"const": version}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **found}


def json_schema(shape: Any) -> dict[str, Any]:
    if shape is ANY or shape is Any:
        return {}
    if shape is int:
        return {"type": "integer", "minimum": 0}
    if isinstance(shape, type) and shape in _NAMES:
        return {"type": _NAMES[shape]}
    if isinstance(shape, dict):
        if EVERY in shape:
            return {"type": "object", "additionalProperties": json_schema(shape[EVERY])}
        return {
            "type": "object",
            "additionalProperties": False,
            "required": [key for key in shape if not key.endswith("?")],
            "properties": {key.removesuffix("?"): json_schema(one) for key, one in shape.items()},
        }
    if isinstance(shape, list):
        return {"type": "array", "items": json_schema(shape[0])}
    if isinstance(shape, tuple):
        return {"enum": list(shape)}
    if isinstance(shape, OrNull):
        return {"anyOf": [json_schema(shape.shape), {"type": "null"}]}
    if isinstance(shape, Text):
        any_character = re.sub(r"(?<!\\)\.(?=[*+])", r"[\\s\\S]", shape.pattern)
        return {"type": "string", "description": shape.words, "pattern": f"^(?:{any_character})$"}
    if dataclasses.is_dataclass(shape):
        types = get_type_hints(shape)
        return json_schema({field.name: types[field.name] for field in dataclasses.fields(shape)})
    return _of_hint(get_origin(shape), get_args(shape))


def _of_hint(origin: Any, args: tuple[Any, ...]) -> dict[str, Any]:
    """The schema of a type with arguments."""
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, UnionType):
        return {"anyOf": [json_schema(arg) for arg in args]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": json_schema(args[1])}
    if origin is tuple and args[-1] is not Ellipsis:
        return {"type": "array", "prefixItems": [json_schema(arg) for arg in args], "items": False, "minItems": len(args)}
    return {"type": "array", "items": json_schema(args[0])}
