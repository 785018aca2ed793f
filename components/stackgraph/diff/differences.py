"""Finds the properties that differ between two values. Equivalent spellings of numbers, quantities and lists count as equal,
and texts of which a deployment finds, or may find, the value that it has, are told apart.

How to compare lists is data (``lists.toml``): by key, as sets, or position by position.
"""

import json
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.resources import files
from typing import Any

from stackgraph.diff.moves import Pairing
from stackgraph.graph.document import Graph
from stackgraph.graph.values import REFERENCE, UNKNOWN, Sealed, at, is_token, leaves, mapped, references


@dataclass(frozen=True, order=True)
class Key:
    """The key of a list item: the names of its key properties, and their values as text."""

    by: tuple[str, ...]
    values: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(filter(None, self.values))


@cache
def _data() -> Mapping[str, Any]:
    return tomllib.loads(files("stackgraph.diff").joinpath("lists.toml").read_text(encoding="utf-8"))


@cache
def _names(section: str, key: str) -> frozenset[str]:
    return frozenset(_data()[section][key])


def is_set(name: str) -> bool:
    """Whether the order of strings in lists of that name is irrelevant."""
    return name in _names("order", "sets")


def is_ordered(name: str) -> bool:
    """Whether the order of items with keys matters in lists of that name."""
    return name in _names("order", "ordered")


def holds_quantities(name: str) -> bool:
    """Whether strings at or below a property of that name are Kubernetes quantities."""
    return name in _names("quantities", "below")


def keyed(name: str, *lists: Sequence[Any]) -> tuple[Mapping[Key, Any], ...] | None:
    """The items of each list by key; None if no choice of keys is unique within each list."""
    if not any(lists) or not all(isinstance(item, Mapping) for items in lists for item in items):
        return None
    for choice in _data()["keys"].get(name, ()):
        found = [[_key(item, choice) for item in items] for items in lists]
        if all(len(set(keys)) == len(keys) and all(any(key.values) for key in keys) for keys in found):
            return tuple(dict(zip(keys, items, strict=True)) for keys, items in zip(found, lists, strict=True))
    return None


def _key(item: Mapping[str, Any], choice: Sequence[str]) -> Key:
    values = (at(item, *path.split(".")) for path in choice)
    return Key(tuple(choice), tuple("" if value is None or is_token(value) else _shown(value) for value in values))


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(sorted(map(str, value)))
    return str(value)


ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "ABSENT", "__bool__": lambda self: False})()
"""Marks a missing property, since ``None`` may be a value."""

Step = str | int | Key
"""The name of a property, or the index or key of a list item."""

Path = tuple[Step, ...]


class JsonText(dict[str, Any]):
    """A parsed JSON string: ``""`` holds its content, so that changes inside have a path."""


@dataclass(frozen=True)
class PropertyChange:
    """One changed property. ``before`` or ``after`` is ``ABSENT`` if the property is new or removed."""

    path: Path
    before: Any
    after: Any

    @property
    def name(self) -> str:
        return path_text(self.path)


def path_text(path: Path) -> str:
    """The path as text: ``spec.template.spec.containers[server].image``."""
    shown = ""
    for step in path:
        if isinstance(step, Key | int):
            shown += f"[{step}]"
        elif step:
            plain = step.replace("_", "").replace("-", "").isalnum()
            shown += (f".{step}" if shown else step) if plain else f'["{step}"]'
    return shown


def opened(value: Any) -> Any:
    """The value with its JSON strings parsed (``JsonText``)."""
    return mapped(value, _parsed)


def _parsed(leaf: Any) -> Any:
    if isinstance(leaf, str) and leaf[:1] in ("{", "[") and leaf[-1:] in ("}", "]"):
        try:
            return JsonText({"": json.loads(leaf)})
        except ValueError:
            return leaf
    return leaf


def differences(before: Any, after: Any, path: Path = ()) -> Iterator[PropertyChange]:
    """The differences of two opened values, each with the deepest path that names it."""
    if alike(before, after, path):
        return
    name = _last_name(path)
    pairs: Mapping[Any, tuple[Any, Any]] | None = None
    if isinstance(before, JsonText) != isinstance(after, JsonText):
        pass
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        pairs = _paired(before, after)
    elif isinstance(before, list) and isinstance(after, list):
        if found := keyed(name, before, after):
            old, new = found
            if not is_ordered(name) or [key for key in old if key in new] == [key for key in new if key in old]:
                pairs = _paired(old, new)
        elif len(before) == len(after) and all(isinstance(item, Mapping | list) for item in (*before, *after)):
            pairs = dict(enumerate(zip(before, after, strict=True)))
    if pairs is None:
        yield PropertyChange(path, before, after)
    else:
        for step, (one, other) in pairs.items():
            yield from differences(one, other, (*path, step))


def _last_name(path: Path) -> str:
    names = [step for step in path if isinstance(step, str) and step]
    return names[-1] if names else ""


def _paired(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> dict[Any, tuple[Any, Any]]:
    """By key of either mapping, both values. A property that is null is the same as none."""
    values = ((key, [table.get(key) for table in (before, after)]) for key in sorted({*before, *after}))
    return {key: (ABSENT if old is None else old, ABSENT if new is None else new) for key, (old, new) in values}


def alike(before: Any, after: Any, path: Path = ()) -> bool:
    """Whether two opened values at a path mean the same."""
    return identical(before, after) or normal(before, path) == normal(after, path)


def identical(before: Any, after: Any) -> bool:
    """Whether two values are also spelled the same. Much faster than ``normal``, and true for nearly all of two graphs."""
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
    """A form that is equal for values with the same meaning. Only for comparison."""
    name = _last_name(path)
    if "" in path:
        return _strict(value, name)
    return _normal(value, name, any(isinstance(step, str) and holds_quantities(step) for step in path))


def _normal(value: Any, name: str, quantity: bool) -> Any:
    if isinstance(value, JsonText):
        # Whoever parses the string tells 1 from "1".
        return ("json", _strict(value[""], name))
    if isinstance(value, Mapping):
        return {key: _normal(item, key, quantity or holds_quantities(key)) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        if found := keyed(name, value):
            items = {key: _normal(item, name, quantity) for key, item in found[0].items()}
            return list(items.items()) if is_ordered(name) else items
        items = [_normal(item, name, quantity) for item in value]
        return sorted(items, key=repr) if is_set(name) else items
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
        if found := keyed(name, value):
            return {key: _strict(item, name) for key, item in found[0].items()}
        items = [_strict(item, name) for item in value]
        return sorted(items, key=repr) if is_set(name) else items
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


def stays(change: PropertyChange, head: Graph, pairs: Pairing) -> bool:
    """Whether both values of a changed property are the id of one resource, however they are written.

    A provider that takes no resources gets their ids (pulumi/pulumi, sdk/go/common/resource/plugin/rpc.go, ``KeepResources``).
    """
    return identical(_by_id(change.before, head, pairs), _by_id(change.after, head, pairs))


def _by_id(value: Any, head: Graph, pairs: Pairing) -> Any:
    if isinstance(value, list):
        return [_by_id(item, head, pairs) for item in value]
    if isinstance(value, Mapping) and value.keys() == {"resource"}:
        found = head.by_urn.get(pairs.urn(str(value["resource"])))
        return f"<{found.name}.id>" if found else value
    if isinstance(value, str) and REFERENCE.fullmatch(value):
        name, _, output = value[1:-1].rpartition(".")
        types = {resource.type for resource in head.resources if resource.name == name}
        return f"<{name}.id>" if types and types.issubset(_ids().get(output, ())) else value
    return value


@cache
def _ids() -> Mapping[str, Any]:
    return tomllib.loads(files("stackgraph.diff").joinpath("ids.toml").read_text(encoding="utf-8"))


def may_stay(change: PropertyChange, base: Graph, head: Graph) -> bool:
    """Whether a changed property's values may be equal once deployed: unknown values, results of functions, two outputs of one
    resource, or an existing resource's output and a text. Another resource's output is another value, and so is
    another text around the same outputs.
    """
    if ABSENT in (change.before, change.after):
        return False
    before, after = ({*_owners(value, (base, head))} for value in (change.before, change.after))
    known = {resource.name for resource in base.resources}
    if UNKNOWN in before | after or not (before | after) <= known | {resource.name for resource in head.resources}:
        return True
    inside = [[one for leaf in leaves(value) for one in references(str(leaf))] for value in (change.before, change.after)]
    if inside[0] and inside[0] == inside[1]:
        return False
    return bool(before | after) and after <= known and (before == after or not before or not after)


def _owners(value: Any, graphs: Collection[Graph]) -> Iterator[str]:
    """The names of resources and functions whose outputs are in a value."""
    for leaf in leaves(value):
        if leaf == UNKNOWN:
            yield UNKNOWN
        elif isinstance(leaf, str):
            yield from (graph.by_urn[leaf].name for graph in graphs if leaf in graph.by_urn)
            names = {resource.name for graph in graphs for resource in graph.resources} if "<" in leaf else set()
            for reference in references(leaf):
                steps = reference.split(".")
                starts = [".".join(steps[:end]) for end in range(len(steps) - 1, 0, -1)]
                yield next((start for start in starts if start in names), starts[-1])
