"""The JSON Schema of a shape of ``strict_json``, and whether a document has it: as much of the standard as such shapes need."""

import json
import re
from pathlib import Path
from typing import Any

from stackgraph.diff.document import SCHEMA
from stackgraph.diff.saved import SHAPE
from stackgraph.strict_json import ANY, OrNull, Text

OF_DIFF = Path(__file__).parents[2] / "docs" / "diff" / f"report-{SCHEMA}.schema.json"
"""What `diff --format json` writes. A new meaning of a key is another version, and another file."""
_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "null": type(None)}


def json_schema(shape: Any) -> dict[str, Any]:
    if shape is ANY:
        return {}
    if isinstance(shape, OrNull):
        return {"anyOf": [json_schema(shape.shape), {"type": "null"}]}
    if isinstance(shape, list):
        return {"type": "array", "items": json_schema(shape[0])}
    if isinstance(shape, tuple):
        return {"enum": list(shape)}
    if isinstance(shape, Text):
        any_character = re.sub(r"(?<!\\)\.(?=[*+])", r"[\\s\\S]", shape.pattern)
        return {"type": "string", "description": shape.words, "pattern": f"^(?:{any_character})$"}
    if isinstance(shape, dict):
        return {
            "type": "object",
            "additionalProperties": False,
            "required": [key for key in shape if not key.endswith("?")],
            "properties": {key.removesuffix("?"): json_schema(one) for key, one in shape.items()},
        }
    return {"type": "boolean"} if shape is bool else {"type": "integer", "minimum": 0} if shape is int else {"type": "string"}


def fits(value: Any, schema: dict[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    if value not in schema.get("enum", (value,)) or value != schema.get("const", value):
        return False
    kind = schema.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        return False
    if kind == "string":
        return re.search(schema.get("pattern", ""), value) is not None
    if kind == "array":
        return all(fits(one, schema["items"]) for one in value)
    if kind == "object":
        known = schema["properties"]
        return {*schema["required"]} <= {*value} <= {*known} and all(fits(one, known[key]) for key, one in value.items())
    return kind != "integer" or value >= schema["minimum"]


def schema_of_diff() -> dict[str, Any]:
    found = json_schema(SHAPE)
    found["properties"]["schema"] = {"const": SCHEMA}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A report of `eks-inference diff`", **found}


def write() -> None:
    OF_DIFF.write_text(json.dumps(schema_of_diff(), indent=1) + "\n", encoding="utf-8")
