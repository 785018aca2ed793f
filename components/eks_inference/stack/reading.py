"""Reads a stack object and reports every fault in its shape: where it is, what was given and what is allowed."""

import json
import re
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from eks_inference.faults import Fault, SpecError, did_you_mean
from eks_inference.serving.shape import RENAMED
from eks_inference.spec import RULE_ID
from eks_inference.stack.references import reference_faults
from eks_inference.stack.spec import StackSpec, stack_schema


def parse_stack(text: str) -> StackSpec:
    """Parses a stack object (JSON) into a spec. Raises ``SpecError`` with every fault when it is invalid.

    Strict: a number in quotes is an error, although pydantic could convert it.
    """
    try:
        spec = StackSpec.model_validate_json(text, strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        if problems[0]["type"] == "json_invalid":
            raise SpecError([Fault((), problems[0]["msg"], allowed="a mapping, or its JSON")]) from error
        data, schema = json.loads(text), stack_schema()
        raise SpecError(_shape_fault(problem, data, schema) for problem in problems) from error
    faults = list(reference_faults(spec))
    if faults:
        raise SpecError(faults)
    return spec


def _shape_fault(problem: Any, data: Any, schema: dict[str, Any]) -> Fault:
    """Translates a pydantic error into a fault: the user's own key path, what was given, and what the schema allows there."""
    path, given, place = _locate(problem["loc"], data, schema)
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        allowed = sorted(_locate(problem["loc"][:-1], data, schema)[2].get("properties", {}))
        given_key = str(path[-1])
        renamed = RENAMED.get(given_key)
        hint = f"it is now called '{renamed}'" if renamed in allowed else did_you_mean(given_key, allowed, cutoff=0.5)
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
        hint = did_you_mean(str(tag), tags.split(", "))
        message = "unknown kind" if kind == "union_tag_invalid" else "this key is required and missing"
        return Fault((*path, key), message, given=_shown(tag) if tag is not None else "", allowed=tags, hint=hint)
    message = problem["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    hint = did_you_mean(given, _choices(place)) if isinstance(given, str) else ""
    # Messages of our own validators are complete; for the others the schema says what is allowed.
    rule = kind if re.fullmatch(RULE_ID, kind) else ""
    allowed = "" if kind == "value_error" or rule else _allowed(place)
    return Fault(path, message, given=_shown(given), allowed=allowed, hint=hint, rule=rule)


def _locate(loc: tuple[str | int, ...], data: Any, schema: dict[str, Any]) -> tuple[tuple[str | int, ...], Any, dict[str, Any]]:
    """Resolves a pydantic location to the key path, the value there, and the JSON schema of that value.

    A pydantic location also contains union members and validators; only the data tells them apart from keys.
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
    """Follows references and picks the alternative that matches the data."""
    if "$ref" in place:
        target = schema["$defs"][place["$ref"].rpartition("/")[2]]
        return _resolve(target | {k: v for k, v in place.items() if k != "$ref"}, data, schema)
    if "discriminator" in place:
        mapping = place["discriminator"]["mapping"]
        tag = data.get(place["discriminator"]["propertyName"]) if isinstance(data, dict) else None
        return _resolve({"$ref": mapping[tag]}, data, schema) if isinstance(tag, str) and tag in mapping else place
    options = [option for option in place.get("anyOf", place.get("oneOf", ())) if option.get("type") != "null"]
    if len(options) > 1:
        # For a choice such as text or object, the type of the data decides.
        options = [option for option in options if ("$ref" in option) == isinstance(data, dict)]
    if len(options) != 1:
        return place
    return _resolve(options[0] | {k: v for k, v in place.items() if k not in ("anyOf", "oneOf", "default")}, data, schema)


_BOUNDS = {"minimum": "at least", "maximum": "at most", "minLength": "length at least", "maxLength": "length at most"}


def _choices(place: dict[str, Any]) -> list[str]:
    return [str(choice) for choice in place.get("enum", [place["const"]] if "const" in place else [])]


def _allowed(place: dict[str, Any]) -> str:
    """Describes in words what a JSON schema allows."""
    if choices := _choices(place):
        return ", ".join(choices)
    words = [str(place["type"])] if "type" in place else []
    words += [f"{label} {place[bound]}" for bound, label in _BOUNDS.items() if bound in place]
    words += [f"matching {place['pattern']}"] if "pattern" in place else []
    return ", ".join(words) + (f": {place['description']}" if words and "description" in place else "")


def _shown(given: Any) -> str:
    text = repr(given) if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
