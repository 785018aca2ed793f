"""What a document has that its JSON Schema does not allow: as much of the standard as our schemas need."""

import re
from collections.abc import Iterator
from typing import Any

from eks_inference_tools.documents import schema_of

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def unlike(name: str, document: Any) -> list[str]:
    """What is wrong with a document of that name in ``documents.NAMES``."""
    return list(faults(document, schema_of(name)))


def fits(value: Any, schema: dict[str, Any]) -> bool:
    return not any(faults(value, schema))


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def faults(value: Any, schema: Any, key: str = "") -> Iterator[str]:
    """Yields the keys that do not fit, each with why."""
    kind = schema.get("type")
    if "anyOf" in schema:
        alternatives = [list(faults(value, one, key)) for one in schema["anyOf"]]
        yield from min(alternatives, key=len)
    elif value not in schema.get("enum", (value,)) or value != schema.get("const", value):
        yield f"{key}: {value!r} is not allowed"
    elif kind and not _is(value, kind):
        yield f"{key}: {value!r:.60} is no {kind}"
    elif kind == "string" and not re.search(schema.get("pattern", ""), value):
        yield f"{key}: {value!r} has not the pattern {schema['pattern']}"
    elif kind == "integer" and value < schema["minimum"]:
        yield f"{key}: {value} is too small"
    elif kind == "array":
        places = schema.get("prefixItems", [schema["items"]] * len(value))
        if len(places) != len(value):
            yield f"{key}: {len(value)} items"
        for number, (one, its) in enumerate(zip(value, places, strict=False)):
            yield from faults(one, its, f"{key}[{number}]")
    elif kind == "object":
        known = schema.get("properties", {})
        yield from (f"{key}.{one}: missing" for one in {*schema.get("required", ())} - {*value})
        for name, one in value.items():
            its = known.get(name, schema["additionalProperties"])
            if its is False:
                yield f"{key}.{name}: unknown"
            else:
                yield from faults(one, its, f"{key}.{name}")
