"""Reads a stack object, and says everything that is wrong with its shape: where, what was given, what is allowed."""

import json
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import ValidationError

from eks_inference.faults import Fault, SpecError
from eks_inference.serving.shape import RENAMED
from eks_inference.spec import RULE_ID
from eks_inference.stack.references import reference_faults
from eks_inference.stack.spec import StackSpec


def parse_stack(text: str) -> StackSpec:
    """A stack object (JSON) as a spec; raises ``SpecError`` with every fault when it is not one.

    Strict: a number in quotes is not a number here, though Python would take it for one.
    """
    try:
        spec = StackSpec.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise SpecError(_shape_faults(error, text)) from error
    faults = list(reference_faults(spec))
    if faults:
        raise SpecError(faults)
    return spec


def _shape_faults(error: ValidationError, text: str) -> Iterator[Fault]:
    data, schema = json.loads(text), _schema()
    for problem in error.errors(include_url=False):
        yield _shape_fault(problem, data, schema)


@cache
def _schema() -> dict[str, Any]:
    """Of a stack object, for reading only: it takes 0.1 s to make, and a stack object 1 ms to read."""
    return StackSpec.model_json_schema()


def _shape_fault(problem: Any, data: Any, schema: dict[str, Any]) -> Fault:
    """A pydantic error as a fault: where in the user's own words, what was given, and what the schema allows there."""
    path, given, place = _locate(problem["loc"], data, schema)
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        allowed = sorted(_locate(problem["loc"][:-1], data, schema)[2].get("properties", {}))
        given_key = str(path[-1])
        nearest = get_close_matches(given_key, allowed, n=1, cutoff=0.5)
        hint = f"did you mean '{nearest[0]}'?" if nearest else ""
        if RENAMED.get(given_key) in allowed:
            hint = f"it is called '{RENAMED[given_key]}' now"
        return Fault(path, "unknown key", allowed=", ".join(allowed), hint=hint)
    if kind == "missing":
        return Fault(path, "this key is required and missing", allowed=_allowed(place))
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        key = context["discriminator"].strip("'")
        tags = context.get("expected_tags", "").replace("'", "") or ", ".join(place.get("discriminator", {}).get("mapping", ()))
        tag = given.get(key) if isinstance(given, dict) else given
        misspelt = get_close_matches(key, [str(name) for name in given], n=1) if isinstance(given, dict) and tag is None else []
        if misspelt:
            return Fault((*path, misspelt[0]), "unknown key", hint=f"did you mean '{key}'?")
        nearest = get_close_matches(str(tag), tags.split(", "), n=1)
        hint = f"did you mean '{nearest[0]}'?" if nearest else ""
        message = "unknown kind" if kind == "union_tag_invalid" else "this key is required and missing"
        # An absent tag is the fault of the key; a wrong one stands there to be pointed at.
        return Fault((*path, key), message, given=_shown(tag) if tag is not None else "", allowed=tags, hint=hint)
    message = problem["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    nearest = get_close_matches(given, _choices(place), n=1) if isinstance(given, str) else []
    hint = f"did you mean '{nearest[0]}'?" if nearest else ""
    # What our own validators say is complete; for the others the schema knows what is allowed.
    rule = kind if re.fullmatch(RULE_ID, kind) else ""
    allowed = "" if kind == "value_error" or rule else _allowed(place)
    return Fault(path, message, given=_shown(given), allowed=allowed, hint=hint, rule=rule)


def _locate(loc: tuple[str | int, ...], data: Any, schema: dict[str, Any]) -> tuple[tuple[str | int, ...], Any, dict[str, Any]]:
    """A pydantic location as key path, the value there, and the JSON schema of that value.

    Pydantic also names union members and validators on the way; the data tells them from keys.
    """
    path: list[str | int] = []
    place = _resolve(schema, data, schema)
    for index, part in enumerate(loc):
        if isinstance(data, list):
            if not isinstance(part, int):
                continue
            data = data[part]
        elif isinstance(data, dict) and (part in data or (index == len(loc) - 1 and part in place.get("properties", {}))):
            data = data.get(part)
        else:
            continue
        path.append(part)
        step = place.get("items", {}) if isinstance(part, int) else place.get("properties", {}).get(part)
        if step is None:
            extra = place.get("additionalProperties") or next(iter(place.get("patternProperties", {}).values()), {})
            step = extra if isinstance(extra, dict) else {}
        place = _resolve(step, data, schema)
    return tuple(path), data, place


def _resolve(place: dict[str, Any], data: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """Follow references, and of alternatives take the one the data asks for."""
    while True:
        if "$ref" in place:
            place = schema["$defs"][place["$ref"].rpartition("/")[2]] | {k: v for k, v in place.items() if k != "$ref"}
        elif "discriminator" in place:
            mapping = place["discriminator"]["mapping"]
            tag = data.get(place["discriminator"]["propertyName"]) if isinstance(data, dict) else None
            if not isinstance(tag, str) or tag not in mapping:
                return place
            place = {"$ref": mapping[tag]}
        elif "anyOf" in place or "oneOf" in place:
            options = [option for option in place.get("anyOf", place.get("oneOf", ())) if option.get("type") != "null"]
            # A text or an object, say: the kind of the data tells which is meant.
            is_object = isinstance(data, dict)
            wanted = options if len(options) == 1 else [option for option in options if ("$ref" in option) == is_object]
            if len(wanted) != 1:
                return place
            place = wanted[0] | {k: v for k, v in place.items() if k not in ("anyOf", "oneOf", "default")}
        else:
            return place


_BOUNDS = {"minimum": "at least", "maximum": "at most", "minLength": "length at least", "maxLength": "length at most"}


def _choices(place: dict[str, Any]) -> list[str]:
    return [str(choice) for choice in place.get("enum", [place["const"]] if "const" in place else [])]


def _allowed(place: dict[str, Any]) -> str:
    """What a JSON schema allows, in words."""
    if choices := _choices(place):
        return ", ".join(choices)
    words = [str(place["type"])] if "type" in place else []
    words += [f"{label} {place[bound]}" for bound, label in _BOUNDS.items() if bound in place]
    words += [f"matching {place['pattern']}"] if "pattern" in place else []
    return ", ".join(words) + (f": {place['description']}" if words and "description" in place else "")


def _shown(given: Any) -> str:
    text = repr(given) if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
