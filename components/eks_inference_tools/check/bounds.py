"""What an API takes, as a small part of JSON Schema, compared with recorded inputs, in which any value may be a placeholder."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import text

Path = tuple[str | int, ...]

# Inside a longer text: "<net-vpc.id>-logs".
_PLACEHOLDER = re.compile(r"<[^<>\s]+\.[^<>\s]+>|<unknown>|\[secret\]")

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping,),
}


def faults(value: Any, schema: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any, str]]:
    """Everything in a value that its schema does not take: where, what was given, what is allowed.

    Knows ``type``, ``enum``, ``pattern``, ``minLength``, ``maxLength``, ``minimum``, ``maximum``, ``minItems``, ``maxItems``,
    ``properties``, ``required``, ``additionalProperties``, ``propertyNames`` and ``items``, as JSON Schema defines them, and
    ``x-kubernetes-list-map-keys``, which no two items share. ``description`` says a pattern in words. What is below a
    placeholder, or absent from the schema, is not judged.
    """
    if not schema or value is None or is_token(value):
        return
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield path, value, f"a value of type {' or '.join(kinds)}"
        return
    if isinstance(value, str | int | float):
        if allowed := ", ".join(_scalar(value, schema)):
            yield path, value, allowed
    elif isinstance(value, Mapping):
        yield from _of_mapping(value, schema, path)
    elif isinstance(value, list | tuple):
        yield from _counted(len(value), schema, "Items", "items", path)
        for index, item in enumerate(value):
            yield from faults(item, schema.get("items", {}), (*path, index))
        if keys := schema.get("x-kubernetes-list-map-keys"):
            yield from _repeated(value, keys, path)


def _is(value: Any, kind: str) -> bool:
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind]) and isinstance(value, bool) == (kind == "boolean")


def _repeated(value: Sequence[Any], keys: Sequence[str], path: Path) -> Iterator[tuple[Path, Any, str]]:
    seen = set()
    for index, item in enumerate(value):
        named = tuple(item.get(key) for key in keys) if isinstance(item, Mapping) else ()
        if not named or any(isinstance(one, list | Mapping) or is_token(one) for one in named):
            continue
        if named in seen:
            shown = ", ".join(f"{key} {text(one)}" for key, one in zip(keys, named, strict=True) if one is not None)
            yield (*path, index), shown, f"one item with this {' and '.join(keys)}"
        seen.add(named)


def _of_mapping(value: Mapping[Any, Any], schema: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any, str]]:
    known = schema.get("properties", {})
    for key in schema.get("required", ()):
        if value.get(key) is None:
            yield (*path, key), None, "a value: the key is required"
    yield from _counted(len(value), schema, "Properties", "keys", path)
    others = schema.get("additionalProperties")
    for key, item in value.items():
        if key not in known and others is False and item is not None:
            nearest = get_close_matches(str(key), known, n=1)
            yield (*path, str(key)), item, f"a known field{f', such as {nearest[0]}' if nearest else ''}"
            continue
        if key not in known:
            yield from faults(str(key), schema.get("propertyNames", {}), (*path, str(key)))
        yield from faults(item, known.get(key) or others or {}, (*path, str(key)))


def _scalar(value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    """Each bound in words that a text or number breaks."""
    if isinstance(value, str):
        known = _PLACEHOLDER.sub("", value) if "<" in value or "[" in value else value
        if len(known) > schema.get("maxLength", len(known)):
            yield f"at most {schema['maxLength']} characters"
        if known != value:
            return
        if len(value) < schema.get("minLength", 0):
            yield f"at least {schema['minLength']} characters"
        if "pattern" in schema and not _pattern(schema["pattern"]).search(value):
            yield schema.get("description") or f"the form {schema['pattern']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"one of {', '.join(text(one) for one in schema['enum'] if one != '')}"
    if not isinstance(value, str):
        if value < schema.get("minimum", value):
            yield f"at least {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"at most {schema['maximum']}"


def _counted(count: int, schema: Mapping[str, Any], suffix: str, what: str, path: Path) -> Iterator[tuple[Path, Any, str]]:
    least, most = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if count < (least or 0) or (most is not None and count > most):
        bounds = (f"{word} {bound}" for word, bound in (("at least", least), ("at most", most)) if bound is not None)
        yield path, f"{count} {what}", f"{' and '.join(bounds)} {what}"


# Parts of a pattern: an escaped character, a class of characters, the end of the text.
_PART = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\$")


@cache
def _pattern(form: str) -> re.Pattern[str]:
    """A pattern as JSON Schema means it: ``\\w`` and the like are ASCII, and no line break follows the end of the text."""
    return re.compile(_PART.sub(lambda part: r"\Z" if part[0] == "$" else part[0], form), re.ASCII)
