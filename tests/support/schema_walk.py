"""Derives from a JSON schema the demands on a set of examples that covers every option, and which of them an example meets.

An optional key must be set once to something other than its default; every value of an enum, every boolean, every member of a
union and every bound must be used once. A path consists of keys, with ``*`` for the values of a map, ``~`` for its names, ``[]``
for items of a list and ``<member>`` for a member of a union.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

SET, LONGEST = "set", "longest"
Place = dict[str, Any]
Path = tuple[str, ...]


@dataclass(frozen=True, order=True)
class Demand:
    """``want`` is a value as JSON, ``SET`` (to something other than the default; for a member: used) or ``LONGEST``."""

    path: Path
    want: str

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.want}"


class Schema:
    """A JSON schema as pydantic generates it."""

    def __init__(self, root: Place) -> None:
        self.root = root
        # Caches by id of a place. Places live as long as the schema, and these caches keep the derived ones alive.
        self._resolved: dict[int, Place] = {}
        self._members: dict[int, dict[str, Place]] = {}
        self._maps: dict[int, tuple[Place, Place] | None] = {}
        # By path and id of a mapping or list, which is kept as well. A changed example shares most of them with what it was.
        self._known: dict[tuple[Path, int], tuple[Any, frozenset[Demand]]] = {}

    def demands(self) -> list[Demand]:
        """Returns all demands, in the order of the schema."""
        return list(dict.fromkeys(self._demands(self.root, ())))

    def met(self, example: Any) -> set[Demand]:
        """Returns the demands that an example meets. A missing key counts as its default. An example does not change later."""
        return set(self._met(self.root, example, ()))

    def depth(self, example: Any, path: Path) -> int:
        """Returns how many steps of a path exist in an example."""
        return self._depth(self.root, example, path)

    def resolved(self, place: Place) -> Place:
        """Returns the place without references, and without ``null`` beside a single member."""
        found = self._resolved.get(id(place))
        if found is None:
            found = self._resolved[id(place)] = self._follow(place)
            # The result is cached, too: it is resolved again later, and the cache keeps its id in use.
            self._resolved[id(found)] = found
        return found

    def members(self, place: Place) -> dict[str, Place]:
        """Returns the members of a union by name; empty if the place is not a union."""
        place = self.resolved(place)
        found = self._members.get(id(place))
        if found is None:
            found = self._members[id(place)] = {}
            for member in _alternatives(place):
                inner = self.resolved(member)
                found |= self.members(inner) or {f"<{_name(member, inner)}>": inner}
        return found

    def member(self, place: Place, value: Any) -> str | None:
        """Returns the member of a union that a value belongs to."""
        for name, member in self.members(place).items():
            kind = member.get("properties", {}).get("kind")
            if kind and isinstance(value, dict):
                if value.get("kind", kind.get("default")) == kind["const"]:
                    return name
            elif _JSON_TYPES.get(type(value)) == member.get("type"):
                return name
        return None

    def inside_map(self, place: Place) -> tuple[Place, Place] | None:
        """Returns the places of the names and the values of a map; ``None`` if the place is not a map."""
        place = self.resolved(place)
        if id(place) not in self._maps:
            self._maps[id(place)] = _inside_map(place)
        return self._maps[id(place)]

    def _follow(self, place: Place) -> Place:
        while True:
            members = _alternatives(place)
            if "$ref" in place:
                inner = self.root["$defs"][place["$ref"].rpartition("/")[2]]
            elif len(members) == 1:
                inner = members[0]
            else:
                return place
            place = inner | {key: value for key, value in place.items() if key not in ("$ref", "anyOf", "oneOf")}

    def _depth(self, place: Place, value: Any, path: Path) -> int:
        place = self.resolved(place)
        if not path or value is None:
            return 0
        step, rest = path[0], path[1:]
        if step.startswith("<"):
            return 1 + self._depth(self.members(place)[step], value, rest) if self.member(place, value) == step else 0
        if step == "[]":
            inside = [(place["items"], one) for one in value]
        elif step in ("*", "~"):
            names_and_values = self.inside_map(place)
            assert names_and_values is not None
            inside = [(names_and_values[1], one) for one in value.values()] if step == "*" else []
        else:
            inside = [(place["properties"][step], value[step])] if step in value else []
        return max((1 + self._depth(inner, one, rest) for inner, one in inside), default=0)

    def _demands(self, place: Place, path: Path) -> Iterator[Demand]:
        place = self.resolved(place)
        if members := self.members(place):
            for name, member in members.items():
                yield Demand((*path, name), SET)
                yield from self._demands(member, (*path, name))
            return
        yield from (Demand(path, json.dumps(value)) for value in _values(place))
        if _longest(place):
            yield Demand(path, LONGEST)
        for key, inner in place.get("properties", {}).items():
            if "const" not in inner:
                if key not in place.get("required", ()):
                    yield Demand((*path, key), SET)
                yield from self._demands(inner, (*path, key))
        if "items" in place:
            yield from self._demands(place["items"], (*path, "[]"))
        if inside := self.inside_map(place):
            for step, inner in zip("~*", inside, strict=True):
                yield from self._demands(inner, (*path, step))

    def _met(self, place: Place, value: Any, path: Path) -> Iterable[Demand]:
        if not isinstance(value, dict | list):
            return self._newly_met(place, value, path)
        key = (path, id(value))
        if key not in self._known:
            self._known[key] = value, frozenset(self._newly_met(place, value, path))
        return self._known[key][1]

    def _newly_met(self, place: Place, value: Any, path: Path) -> Iterator[Demand]:
        place = self.resolved(place)
        if members := self.members(place):
            if name := self.member(place, value):
                yield Demand((*path, name), SET)
                yield from self._met(members[name], value, (*path, name))
            return
        yield from (Demand(path, json.dumps(one)) for one in _values(place) if one == value and type(one) is type(value))
        if isinstance(value, str | list) and len(value) == _longest(place):
            yield Demand(path, LONGEST)
        if isinstance(value, dict):
            yield from self._met_inside(place, value, path)
        elif isinstance(value, list) and "items" in place:
            for one in value:
                yield from self._met(place["items"], one, (*path, "[]"))

    def _met_inside(self, place: Place, value: dict[str, Any], path: Path) -> Iterator[Demand]:
        for key, inner in place.get("properties", {}).items():
            if key not in value and "$ref" not in inner and inner.get("default") is None:
                continue
            fixed = "const" in inner  # not so an optional key with only one value
            inner = self.resolved(inner)
            one = value.get(key, inner.get("default"))
            if not fixed and one is not None:
                follows = self.members(inner) and "default" not in inner  # from other keys, so that any value is a choice
                if key not in place.get("required", ()) and (follows or one != inner.get("default", type(one)())):
                    yield Demand((*path, key), SET)
                yield from self._met(inner, one, (*path, key))
        if inside := self.inside_map(place):
            for name, one in value.items():
                yield from self._met(inside[0], name, (*path, "~"))
                yield from self._met(inside[1], one, (*path, "*"))


_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}


def _inside_map(place: Place) -> tuple[Place, Place] | None:
    for pattern, inner in place.get("patternProperties", {}).items():
        return {"type": "string", "pattern": pattern}, inner
    inner = place.get("additionalProperties")
    names = {"type": "string", **place.get("propertyNames", {})}
    return (names, inner if isinstance(inner, dict) else {}) if inner else None


def _alternatives(place: Place) -> list[Place]:
    return [member for member in place.get("anyOf", place.get("oneOf", ())) if member.get("type") != "null"]


def _name(member: Place, inner: Place) -> str:
    kind = inner.get("properties", {}).get("kind", {}).get("const")
    return kind or member.get("$ref", inner.get("type", "")).rpartition("/")[2]


def _values(place: Place) -> list[Any]:
    """Returns the values that must each be used: all possible ones, or the bounds."""
    if place.get("type") == "boolean":
        return [place["const"]] if "const" in place else [True, False]
    return place.get("enum") or [place[bound] for bound in ("minimum", "maximum") if bound in place]


def _longest(place: Place) -> int | None:
    return place.get("maxLength", place.get("maxItems"))
