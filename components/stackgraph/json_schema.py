"""The JSON Schema of a document whose shape is written down: as ``strict_json`` has it, or by the types of Python.

A dataclass is the object that ``dataclasses.asdict`` makes of it, so that what is counted and what is published cannot differ.
"""

import dataclasses
import re
from collections.abc import Mapping
from fractions import Fraction
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from stackgraph.strict_json import ANY, OrNull, Text

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
