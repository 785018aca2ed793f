"""Turns errors of pydantic into faults of ours: where, what was given, what is allowed there, and the nearest name.

A stack file and a Python program get the same faults; only the spelling of an object differs.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import core_schema

from eks_inference.faults import Fault, SpecError, did_you_mean
from eks_inference.specs.late import is_output

RULE_ID = r"^[A-Z][A-Z0-9]{1,4}\d{3}$"
RENAMED = {"gpus": "devices", "engine_args": "extra_args"}
"""Old names of fields, and their current names."""
_OTHERWISE = {"alternatives": "make a second server of the same model there: an endpoint leads the model's name to both"}
"""What some kinds have no key for → how it is done instead."""

Schema = dict[str, Any]
Path = tuple[str | int, ...]


@cache
def schema_of(model: type[BaseModel]) -> Schema:
    """Returns the JSON schema of a model. Cached: that of a stack takes 0.1 s, reading a stack object 1 ms."""
    return model.model_json_schema()


@contextmanager
def faults_of(model: type[BaseModel], given: Any) -> Iterator[None]:
    """Raises ``SpecError`` in place of a ``ValidationError`` of a model about what was given."""
    try:
        yield
    except ValidationError as error:
        allowed = schema_of(model)
        faults = [_shape_fault(problem, given, allowed) for problem in error.errors(include_url=False)]
        # All members of a union refuse a value alike: the first tells more.
        once = {(fault.path, fault.given, fault.allowed or fault.message): fault for fault in reversed(faults)}
        # Without the cause: Python would print the words of pydantic above ours.
        raise SpecError(reversed(once.values())) from None


def _shape_fault(problem: Any, data: Any, schema: Schema) -> Fault:
    """Translates a pydantic error into a fault: the user's own key path, what was given, and what the schema allows there."""
    path, given, place = _locate(problem["loc"], data, schema)
    kind, context = problem["type"], problem.get("ctx", {})
    of_key = problem["loc"][-1:] == ("[key]",)
    if of_key:
        given = path[-1]
    if kind == "extra_forbidden":
        allowed = sorted(_locate(problem["loc"][:-1], data, schema)[2].get("properties", {}))
        given_key = str(path[-1])
        renamed = RENAMED.get(given_key)
        hint = _OTHERWISE.get(given_key) or did_you_mean(given_key, allowed, cutoff=0.5)
        hint = f"it is now called '{renamed}'" if renamed in allowed else hint
        return Fault(path, "unknown key", allowed=", ".join(allowed), hint=hint)
    if kind == "missing":
        return Fault(path, "this key is required and missing", allowed=_allowed(place) or _kinds_of(_members(place, schema)))
    members = _members(place, schema)
    if kind in _NO_OBJECT or (kind in _NO_TAG and members and not isinstance(given, Mapping)):
        allowed = _kinds_of(members) if not isinstance(given, BaseModel) else ", ".join(member["title"] for member in members)
        message = "should be an object" if not isinstance(given, BaseModel) else "should be an object of another kind"
        message = " or ".join((message, *_choices(place)))
        hint = _no_output(given) or _as_object(given, members)
        return Fault(path, message, given=_shown(given), allowed=allowed or _allowed(place), hint=hint)
    if kind in _NO_TAG:
        return _kind_fault(path, given, place, context)
    hint = _no_output(given) or (did_you_mean(given, _choices(place)) if isinstance(given, str) else "")
    # Messages of our own validators are complete; for the others the schema says what is allowed.
    rule = kind if re.fullmatch(RULE_ID, kind) else ""
    described = _allowed_key(_locate(problem["loc"][:-2], data, schema)[2]) if of_key else _allowed(place)
    message, _, allowed = (text := _message(problem)).partition("; allowed: ")
    if "; given: " in text or "; allowed: " in allowed:  # faults of a whole document
        message, allowed = text, ""
    allowed = allowed or ("" if kind == "value_error" or rule else described)
    return Fault(path, message, given=_shown(given), allowed=allowed, hint=hint, rule=rule)


_WORDS = {
    **dict.fromkeys(("literal_error", "enum"), "unknown value"),
    "greater_than": "should be greater than {gt}",
    "greater_than_equal": "should be greater than or equal to {ge}",
    "less_than": "should be less than {lt}",
    "less_than_equal": "should be less than or equal to {le}",
    "multiple_of": "should be a multiple of {multiple_of}",
    "too_short": "should have {min_length} or more entries",
    "too_long": "should have {max_length} or fewer entries",
    "string_too_short": "should have {min_length} or more characters",
    "string_too_long": "should have {max_length} or fewer characters",
    "string_pattern_mismatch": "has a wrong form",
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "should be an integer"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "should be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "should be true or false"),
    **dict.fromkeys(("string_type", "string_unicode"), "should be a text"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), "should be a list"),
    **dict.fromkeys(("value_error", "assertion_error"), "{error}"),
}
"""Our words for types of error that pydantic defines. Its others get ``_NO_FIT``; those that validators define have own words."""

_NO_FIT = "does not fit here"
_THEIRS = frozenset(get_args(core_schema.ErrorType))


def _message(problem: Any) -> str:
    kind = problem["type"]
    if kind not in _THEIRS:
        return problem["msg"]
    return _WORDS.get(kind, _NO_FIT).format_map(problem.get("ctx", {}))


_NO_OBJECT = frozenset(("dict_type", "mapping_type", "model_attributes_type", "model_type"))
_NO_TAG = frozenset(("union_tag_invalid", "union_tag_not_found"))


def _kind_fault(path: Path, given: Any, place: Schema, context: Mapping[str, Any]) -> Fault:
    """A fault in the key that tells the kind of an object."""
    key = context["discriminator"].strip("'")
    tags = context.get("expected_tags", "").replace("'", "") or ", ".join(place.get("discriminator", {}).get("mapping", ()))
    tag = given.get(key) if isinstance(given, Mapping) else given
    misspelt = get_close_matches(key, [str(name) for name in given], n=1) if isinstance(given, Mapping) and tag is None else []
    if misspelt:
        return Fault((*path, misspelt[0]), "unknown key", hint=f"did you mean '{key}'?")
    hint = did_you_mean(str(tag), tags.split(", "))
    message = "unknown kind" if tag is not None else "this key is required and missing"
    return Fault((*path, key), message, given=_shown(tag) if tag is not None else "", allowed=tags, hint=hint)


def _members(place: Schema, schema: Schema) -> list[Schema]:
    """The objects that a place allows, by kind. Empty where it allows something else."""
    options = (
        [item for item in place.get("oneOf", place.get("anyOf", ())) if "$ref" in item] if "properties" not in place else [place]
    )
    found = [schema["$defs"][option["$ref"].rpartition("/")[2]] if "$ref" in option else option for option in options]
    return [one for one in found if "properties" in one]


def _kinds_of(members: Sequence[Schema]) -> str:
    """The kinds of objects that a place allows, as a stack file writes them. Empty where it allows objects of one kind."""
    kinds = [str(member["properties"]["kind"]["const"]) for member in members if "const" in member["properties"].get("kind", {})]
    return f"an object with kind: {', '.join(kinds)}" if len(kinds) > 1 else ""


def _as_object(given: Any, members: Sequence[Schema]) -> str:
    """How to write an object where only its one text was given: ``{kind: hugging_face, id: …}``."""
    for member in members if isinstance(given, str) else ():
        properties = member["properties"]
        needed = [key for key in member.get("required", ()) if "const" not in properties[key]]
        if len(needed) == 1 and re.search(properties[needed[0]].get("pattern", ""), given):
            kind = f"kind: {properties['kind']['const']}, " if "const" in properties.get("kind", {}) else ""
            return f"write {{{kind}{needed[0]}: {given}}}, in Python {member.get('title', '')}({needed[0]}={given!r})"
    return ""


def _no_output(given: Any) -> str:
    if not is_output(given):
        return ""
    return (
        "this value decides the shape of the graph or is judged by rules, so a preview has to know it: give it as plain text; "
        "Outputs go into tags, ARNs and ids that a spec only passes on, and into handles such as ExistingVpc and SecretRef"
    )


def _locate(loc: Path, data: Any, schema: Schema) -> tuple[Path, Any, Schema]:
    """Resolves a pydantic location to the key path, the value there, and the JSON schema of that value.

    A pydantic location also contains union members and validators; only the data tells them apart from keys.
    """
    path: list[str | int] = []
    place = _resolve(schema, data, schema)
    for index, part in enumerate(loc):
        if isinstance(data, list | tuple):
            if not isinstance(part, int):
                continue
            data = data[part]
        elif isinstance(data, Mapping) and (part in data or (index == len(loc) - 1 and part in place.get("properties", {}))):
            data = data.get(part)
        else:
            # The kind of an object that does not tell it itself.
            kinds = place.get("discriminator", {}).get("mapping", {})
            place = _resolve({"$ref": kinds[part]}, data, schema) if part in kinds else place
            continue
        path.append(part)
        step = place.get("items", {}) if isinstance(part, int) else place.get("properties", {}).get(part)
        if step is None:
            extra = place.get("additionalProperties") or next(iter(place.get("patternProperties", {}).values()), {})
            step = extra if isinstance(extra, dict) else {}
        place = _resolve(step, data, schema)
    return tuple(path), data, place


def _resolve(place: Schema, data: Any, schema: Schema) -> Schema:
    """Follows references and picks the alternative that matches the data."""
    if "$ref" in place:
        target = schema["$defs"][place["$ref"].rpartition("/")[2]]
        return _resolve(target | {k: v for k, v in place.items() if k != "$ref"}, data, schema)
    if "discriminator" in place:
        mapping = place["discriminator"]["mapping"]
        tag = data.get(place["discriminator"]["propertyName"]) if isinstance(data, Mapping) else None
        return _resolve({"$ref": mapping[tag]}, data, schema) if isinstance(tag, str) and tag in mapping else place
    options = [option for option in place.get("anyOf", place.get("oneOf", ())) if option.get("type") != "null"]
    if len(options) > 1:
        # For a choice such as text or object, the type of the data decides.
        options = [option for option in options if ("$ref" in option) == isinstance(data, Mapping)]
    if len(options) != 1:
        return place
    return _resolve(options[0] | {k: v for k, v in place.items() if k not in ("anyOf", "oneOf", "default")}, data, schema)


_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
    "minLength": "length at least",
    "maxLength": "length at most",
}


_TYPES = {"string": "text", "array": "list", "boolean": "true or false"}


def _choices(place: Schema) -> list[str]:
    choices = place.get("enum", [place["const"]] if "const" in place else [])
    return [choice if isinstance(choice, str) else json.dumps(choice) for choice in choices]


def _allowed(place: Schema) -> str:
    """Describes in words what a JSON schema allows."""
    if choices := _choices(place):
        return ", ".join(choices)
    words = [_TYPES.get(place["type"], str(place["type"]))] if "type" in place else []
    words += [f"{label} {place[bound]}" for bound, label in _BOUNDS.items() if bound in place]
    words += [f"matching {place['pattern']}"] if len(place.get("pattern", "")) in range(1, 40) else []
    return ", ".join(words) + (f": {place['description']}" if words and "description" in place else "")


def _allowed_key(place: Schema) -> str:
    """Describes in words what the keys of a mapping may be."""
    patterns = [{"pattern": pattern} for pattern in place.get("patternProperties", ())]
    names = place.get("propertyNames") or next(iter(patterns), {})
    return f"as a key: {_allowed({'type': 'text'} | names)}"


def _shown(given: Any) -> str:
    """What was given, in at most 80 characters: as JSON, or the name of its class."""
    if isinstance(given, BaseModel):
        return type(given).__name__
    try:
        text = repr(given) if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = type(given).__name__
    return text if len(text) <= 80 else text[:77] + "..."
