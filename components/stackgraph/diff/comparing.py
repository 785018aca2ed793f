"""Which properties differ between two values, regardless of how numbers, quantities and lists are written."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from stackgraph.diff import lists
from stackgraph.graph.tokens import Sealed

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "ABSENT", "__bool__": lambda self: False})()
"""Stands where a property is not there: ``None`` may be a value."""

Step = str | int | lists.Key
"""A property's name, an item's place in a list, or the key of an item."""

Path = tuple[Step, ...]


class JsonText(dict[str, Any]):
    """What a text in JSON holds, below ``""``, so that a change inside it has a path."""


@dataclass(frozen=True)
class PropertyChange:
    """One property that is another one now. ``before`` or ``after`` is ``ABSENT`` where it is new or gone."""

    path: Path
    before: Any
    after: Any

    @property
    def name(self) -> str:
        return path_text(self.path)


def path_text(path: Path) -> str:
    """``spec.template.spec.containers[server].image``."""
    shown = ""
    for step in path:
        if isinstance(step, lists.Key | int):
            shown += f"[{step}]"
        elif step:
            plain = step.replace("_", "").replace("-", "").isalnum()
            shown += (f".{step}" if shown else step) if plain else f'["{step}"]'
    return shown


def opened(value: Any) -> Any:
    """The value with texts in JSON as what they hold."""
    if isinstance(value, Mapping):
        return {key: opened(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [opened(item) for item in value]
    if isinstance(value, str) and value[:1] in ("{", "[") and value[-1:] in ("}", "]"):
        try:
            found = json.loads(value)
        except ValueError:
            return value
        return JsonText({"": found})
    return value


def differences(before: Any, after: Any, path: Path = ()) -> Iterator[PropertyChange]:
    """What differs between two opened values, each as deep down as it can be said."""
    if alike(before, after, path):
        return
    name = next((step for step in reversed(path) if isinstance(step, str) and step), "")
    both = (before, after)
    if isinstance(before, JsonText) != isinstance(after, JsonText):
        yield PropertyChange(path, before, after)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from differences(_get(before, key), _get(after, key), (*path, key))
    elif isinstance(before, list) and isinstance(after, list) and (found := lists.keyed(name, *both)):
        old, new = found
        if lists.is_ordered(name) and [key for key in old if key in new] != [key for key in new if key in old]:
            yield PropertyChange(path, before, after)
            return
        for key in sorted({*old, *new}):
            yield from differences(_get(old, key), _get(new, key), (*path, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after) and _holds_tables(before, after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, (*path, number))
    else:
        yield PropertyChange(path, before, after)


def _get(table: Mapping[Any, Any], key: Any) -> Any:
    found = table.get(key, ABSENT)
    return ABSENT if found is None else found


def _holds_tables(*both: list[Any]) -> bool:
    return all(isinstance(item, Mapping | list) for items in both for item in items)


def alike(before: Any, after: Any, path: Path = ()) -> bool:
    """Whether two opened values mean the same at a path."""
    return identical(before, after) or normal(before, path) == normal(after, path)


def identical(before: Any, after: Any) -> bool:
    """Whether two values are written alike, too. Takes a fraction of the time, and nearly all of two graphs is."""
    if type(before) is not type(after):
        return False
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(identical(item, after[key]) for key, item in before.items())
    if isinstance(before, list):
        return len(before) == len(after) and all(map(identical, before, after))
    if isinstance(before, Sealed):
        return before.digest == after.digest
    return before == after


def normal(value: Any, path: Path = ()) -> Any:
    """A form that is equal for values that mean the same: only for comparing."""
    names = [step for step in path if isinstance(step, str)]
    name = next((name for name in reversed(names) if name), "")
    if "" in names:
        return _strict(value, name)
    return _normal(value, name, any(map(lists.holds_quantities, names)))


def _normal(value: Any, name: str, quantity: bool) -> Any:
    if isinstance(value, JsonText):
        # Inside a text, 1 and "1" are not the same to whoever reads it.
        return ("json", _strict(value[""], name))
    if isinstance(value, Mapping):
        return {
            key: _normal(item, key, quantity or lists.holds_quantities(key)) for key, item in value.items() if item is not None
        }
    if isinstance(value, list | tuple):
        if found := lists.keyed(name, value):
            items = {key: _normal(item, name, quantity) for key, item in found[0].items()}
            return list(items.items()) if lists.is_ordered(name) else items
        items = [_normal(item, name, quantity) for item in value]
        return sorted(items, key=repr) if lists.is_set(name) else items
    if isinstance(value, Sealed):
        return (str(value), value.digest)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        value = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if quantity and isinstance(value, str):
        amount = _amount(value)
        return value if amount is None else ("quantity", amount)
    return value


def _strict(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _strict(item, key) for key, item in value.items()}
    if isinstance(value, list):
        if found := lists.keyed(name, value):
            return {key: _strict(item, name) for key, item in found[0].items()}
        items = [_strict(item, name) for item in value]
        return sorted(items, key=repr) if lists.is_set(name) else items
    return (type(value).__name__, value)


# Kubernetes API, resource.Quantity.
_UNITS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_UNITS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def _amount(text: str) -> Decimal | None:
    number = text.rstrip("numkMGTPEi")
    unit = text[len(number) :]
    try:
        if unit in _BINARY_UNITS:
            return (Decimal(number) * 2 ** _BINARY_UNITS[unit]).normalize()
        return Decimal(number).scaleb(_UNITS[unit]).normalize() if number[:1].isdigit() else None
    except (InvalidOperation, KeyError):
        return None
