"""The JSON schema of stack files, with what the catalog knows as values to choose from.

Editors with the YAML language server complete values that are ``oneOf`` with ``const``, show the ``description`` of each beside
it, and that of the value itself on hover (yaml-language-server 1.25, ``yamlCompletion`` and ``yamlHover``; with ``enum`` and
``enumDescriptions`` a hover lists every value). A plain text stays allowed where a stack's own ``catalog`` may have more rows.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from eks_inference.catalog import described
from eks_inference.serving.kind import Kind
from eks_inference.serving.kinds import KINDS, USUAL
from eks_inference.specs.base import LISTED, Spec
from eks_inference.specs.settings import REGION
from eks_inference.specs.validation import Schema, schema_of
from eks_inference.stack.defaults import POOLS, USUAL_POOL
from eks_inference.stack.nested import open_keys
from eks_inference.stack.spec import StackSpec

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


_ABSENT = "Absent: follows from the pools, the model and the catalog (docs/open-keys.md)."


def opened(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema of a stack whose open keys are not filled yet."""
    found = copy.deepcopy(dict(schema))
    definitions = found["$defs"]
    for kind in KINDS.values():
        for spec, key in dict.fromkeys(_following(kind)):
            _not_demanded(definitions[spec.__name__], key)
            about = definitions[spec.__name__]["properties"][key]
            about["description"] = f"{about.get('description', '')} {_ABSENT}".strip()
    for spec, usual in ((POOLS[USUAL_POOL], USUAL_POOL), (KINDS[USUAL].spec, USUAL)):
        _not_demanded(definitions[spec.__name__], "kind")
        definitions[spec.__name__]["properties"]["kind"]["default"] = usual
    return found


def _following(kind: Kind) -> Iterator[tuple[type[Spec], str]]:
    """Yields the required keys that follow, with the specs that have them: all but the model where a kind can be searched for."""
    inner = [name for name, one in kind.spec.model_fields.items() if _is_spec(one.annotation)]
    given: Mapping[str, Any] = {name: {} for name in inner}
    for path in (*open_keys(kind.spec, {}), *open_keys(kind.spec, given)) if kind.sketched else ():
        if path != ("model",):
            yield _spec_at(kind.spec, path), path[-1]
    placed = _spec_at(kind.spec, (*kind.spec.placed_under, "pool"))
    if "pool" in placed.model_fields:
        yield placed, "pool"


def _spec_at(spec: type[Spec], path: tuple[str, ...]) -> type[Spec]:
    for key in path[:-1]:
        spec = cast(type[Spec], spec.model_fields[key].annotation)
    return spec


def _is_spec(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Spec)


def _not_demanded(definition: dict[str, Any], key: str) -> None:
    definition["required"] = [item for item in definition.get("required", ()) if item != key]
    if not definition["required"]:
        del definition["required"]
