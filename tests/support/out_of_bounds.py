"""Plants values outside of their bounds in recorded objects, one at a time."""

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stackgraph.graph.values import is_token

Path = tuple[str | int, ...]

_OF_ANOTHER_TYPE = {"string": 5, "integer": "x", "number": "x", "boolean": "true", "array": "x", "object": "x"}
_TEXTS = ("", "-", "ä", "a b", "../x", "A_b/c/d", "kubernetes.io/hostname", "kubernetes.io/cluster/x", "x" * 400)
_UNKNOWN = "noSuchField"


@dataclass(frozen=True)
class Planted:
    """An object with one thing wrong: its schema, where that is, and what was planted there."""

    schema: Mapping[str, Any]
    item: dict[str, Any]
    path: Path
    value: Any


def planted(objects: Iterable[tuple[Mapping[str, Any], dict[str, Any]]]) -> Iterator[Planted]:
    """Yields each bound broken once, in the first of the objects (schema, object) to which it applies."""
    seen: set[int] = set()
    for schema, item in objects:
        for path, value, edit in list(_broken(item, schema, (), seen)):
            changed = copy.deepcopy(item)
            inside: Any = changed
            for step in path[:-1]:
                inside = inside[step]
            edit(inside, path[-1])
            yield Planted(schema, changed, path, value)


_Edit = Callable[[Any, Any], object]


def _broken(value: Any, schema: Mapping[str, Any], path: Path, seen: set[int]) -> Iterator[tuple[Path, Any, _Edit]]:
    if is_token(value) or not schema:
        return
    if id(schema) not in seen and path:
        seen.add(id(schema))
        for wrong in _outside(schema):
            yield path, wrong, lambda inside, key, wrong=wrong: inside.__setitem__(key, wrong)
        if isinstance(value, Mapping):
            yield from _wrong_keys(value, schema, path)
        elif isinstance(value, list) and value and schema.get("x-kubernetes-list-map-keys"):
            yield (*path, len(value)), value[0], lambda inside, key: inside.append(copy.deepcopy(inside[0]))
    if isinstance(value, Mapping):
        known = schema.get("properties", {})
        for key, item in value.items():
            if not path and key in ("apiVersion", "kind"):
                continue
            yield from _broken(item, known.get(key) or schema.get("additionalProperties") or {}, (*path, key), seen)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _broken(item, schema.get("items", {}), (*path, index), seen)


def _wrong_keys(value: Mapping[str, Any], schema: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any, _Edit]]:
    for key in schema.get("required", ()):
        if key in value:
            yield (*path, key), None, lambda inside, key: inside.pop(key)
    if schema.get("additionalProperties") is False:
        yield (*path, _UNKNOWN), 1, lambda inside, key: inside.__setitem__(key, 1)
    for name in _outside(schema.get("propertyNames", {})):
        some = next(iter(value.values()), "")
        yield (*path, name), some, lambda inside, key, some=some: inside.__setitem__(key, some)


def _outside(schema: Mapping[str, Any]) -> Iterator[Any]:
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if len(kinds) == 1:
        yield _OF_ANOTHER_TYPE[kinds[0]]
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maximum" in schema:
        yield schema["maximum"] + 1
    if "enum" in schema:
        yield "no-such-value"
    if "pattern" in schema:
        yield next(text for text in _TEXTS if not re.search(schema["pattern"], text, re.ASCII))
    if schema.get("minLength"):
        yield ""
    if "maxLength" in schema:
        yield "x" * (schema["maxLength"] + 1)
    if schema.get("minItems"):
        yield []
