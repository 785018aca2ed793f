"""The JSON schema of stack files, with what the catalog knows as values to choose from.

Editors with the YAML language server complete values that are ``oneOf`` with ``const``, show the ``description`` of each beside
it, and that of the value itself on hover (yaml-language-server 1.25, ``yamlCompletion`` and ``yamlHover``; with ``enum`` and
``enumDescriptions`` a hover lists every value). A plain text stays allowed where a stack's own ``catalog`` may have more rows.
"""

from collections.abc import Callable, Mapping
from typing import Any

from eks_inference.catalog import described
from eks_inference.settings import REGION
from eks_inference.spec import LISTED
from eks_inference.stack.open_schema import opened
from eks_inference.stack.spec import StackSpec
from eks_inference.validation import Schema, schema_of

VALUES: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "InstanceType": described.instance_lines,
    "InstanceFamily": described.family_lines,
    "Engine": described.engine_lines,
    "Repository": described.repository_lines,
    "Region": described.region_lines,
    "Zone": described.zone_lines,
    "Price": described.service_lines,
    "KubernetesVersion": described.kubernetes_lines,
}
"""Kinds of values that the catalog lists: each value with its description. Specs name them in ``LISTED``."""

CLOSED = frozenset({"KubernetesVersion"})
"""Kinds of which a stack takes no other value."""

ALSO = {"Price": "InstanceType"}
"""Kinds whose values are those of another kind, too."""


def stack_schema() -> Schema:
    """Returns the JSON schema of a stack object, which demands no key that follows from others."""
    # pyright takes the hash of a class for that of its instances.
    schema = opened(schema_of(StackSpec))  # pyright: ignore[reportArgumentType]
    _list_values(schema)
    _describe_kinds(schema["$defs"])
    schema["$defs"] |= {kind: _values(kind) for kind in VALUES}
    return schema


def stack_file_schema() -> Schema:
    """Returns the JSON schema of a whole stack file (``stacks/Pulumi.<stack>.yaml``)."""
    stack = stack_schema()
    definitions = stack.pop("$defs")
    region = {
        "$ref": "#/$defs/Region",
        "type": "string",
        "pattern": f"^{REGION.pattern}$",
        "description": "AWS region, e.g. us-west-2.",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Stack file of eks-inference",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "properties": {"aws:region": region, "eks-inference:stack": stack},
                "required": ["aws:region", "eks-inference:stack"],
            }
        },
        "required": ["config"],
        "$defs": definitions,
    }


def _values(kind: str) -> Schema:
    listed: Schema = {"oneOf": [{"const": value, "description": told} for value, told in VALUES[kind]().items()]}
    if kind in CLOSED:
        return listed
    return {"anyOf": [listed, {"$ref": f"#/$defs/{ALSO[kind]}"} if kind in ALSO else {"type": "string"}]}


def _list_values(place: Any) -> None:
    """Replaces marks of specs by references to the values."""
    if isinstance(place, list):
        for each in place:
            _list_values(each)
    if not isinstance(place, dict):
        return
    for each in list(place.values()):
        _list_values(each)
    if (kind := place.pop(LISTED, None)) is not None:
        place["$ref"] = f"#/$defs/{kind}"
        place.pop("enum", None)  # the values are there


def _describe_kinds(definitions: Mapping[str, Schema]) -> None:
    """Gives keys that tell the kind of an object, and have one value, the description of the object."""
    for definition in definitions.values():
        for key in definition.get("properties", {}).values():
            if "const" in key:
                key.setdefault("description", definition.get("description", "").partition("\n\n")[0].replace("\n", " "))
