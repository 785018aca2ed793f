"""What AWS's API takes for each property that recorded graphs set, from the models of botocore, as JSON Schema.

``aws_operations.toml`` says which request a resource becomes. botocore's models (``service-2.json``) are what AWS publishes for
its SDKs; constraints.txt pins them. A model's pattern is for the whole text, anchored or not, as the services compare it:
otherwise IAM's ``[\\w+=,.@-]+`` would take every text that has one such character.
"""

import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from botocore.loaders import Loader

from refresh import ROOT
from stackgraph.graph.document import Graph
from stackgraph.graph.values import UNKNOWN, is_token, text

FILE = ROOT / "components" / "eks_inference_tools" / "check" / "aws_bounds.json"

Schema = dict[str, Any]
TABLE = tomllib.loads(Path(__file__).with_name("aws_operations.toml").read_text("utf-8"))

# Of the classes of characters that Python's patterns do not have; the separators are Unicode's category Z.
_CLASSES = {r"\p{L}": r"\w", r"\p{N}": r"\w", r"\p{Z}": " \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"}
# Inside a longer text, as the walker has it.
_PLACEHOLDER = re.compile(r"<[^<>\s]+\.[^<>\s]+>|urn:pulumi:\S+")
_LENGTHS = {"string": "Length", "list": "Items", "map": "Properties"}


@dataclass(frozen=True)
class Shape:
    """A shape of a service's model: what a request has at one place."""

    service: str
    name: str

    @property
    def content(self) -> Mapping[str, Any]:
        return model(self.service)["shapes"][self.name]

    def member(self, name: str) -> "Shape | None":
        """The shape of a member, of the items of a list (``[]``), or of the values of a map (``*``); None if there is none."""
        content = self.content
        if name in ("[]", "*"):
            inner = content.get("member" if name == "[]" else "value")
        else:
            members = {key.lower(): inner for key, inner in content.get("members", {}).items()}
            inner = members.get(name.lower())
        return Shape(self.service, inner["shape"]) if inner else None

    def required(self) -> frozenset[str]:
        return frozenset(name.lower() for name in self.content.get("required", ()))


@cache
def model(service: str) -> Mapping[str, Any]:
    return Loader().load_service_model(service, "service-2")


def placed(operation: str, path: str) -> Shape:
    """The shape at a path of an operation's request. Raises ``LookupError``."""
    service, _, name = operation.partition(".")
    shape = Shape(service, model(service)["operations"][name]["input"]["shape"])
    for step in steps(path):
        inner = shape.member(step)
        if inner is None:
            raise LookupError(f"{operation}: {shape.name} has no member {step}")
        shape = inner
    return shape


def steps(path: str) -> list[str]:
    return [step for part in path.split(".") if part for step in re.findall(r"\[\]|[^\[]+", part)]


@dataclass
class Derived:
    """The schema of one type of resource, its operations, and properties that the table does not place."""

    type: str
    row: Mapping[str, Any]
    schema: Schema = field(default_factory=dict)
    operations: set[str] = field(default_factory=set)
    unplaced: list[str] = field(default_factory=list)
    values: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By path, all known values; of a list, how many items it has. ``~``: a name in a map."""

    def derive(self, inputs: list[Mapping[str, Any]]) -> Schema:
        root = self._placed(self.row["operation"], self.row.get("root", ""))
        return self._schema(inputs, root, "")

    def _placed(self, operation: str, path: str) -> Shape:
        self.operations.add(operation)
        return placed(operation, path)

    def _member(self, where: str) -> Shape:
        operation, _, path = where.rpartition(":")
        return (
            self._placed(operation, path)
            if operation
            else self._placed(self.row["operation"], f"{self.row.get('root', '')}.{path}")
        )

    def _schema(self, values: list[Any], shape: Shape | None, path: str, *, always: bool = True) -> Schema:
        """``always``: whether every resource has something at this place."""
        found = bounds(shape) if shape else {}
        lists = [value for value in values if isinstance(value, list | tuple)]
        mappings = [value for value in values if isinstance(value, Mapping)]
        self._note(path, values, always=always)
        if lists:
            items = [item for one in lists for item in one]
            found |= _inside("items", self._below(items, shape, path, "[]", always=always))
        free = shape is not None and shape.content["type"] == "map"
        if free or any(key.startswith(f"{path}.*") for key in self.row.get("members", ())):
            items = [item for mapping in mappings for item in mapping.values()]
            self.values[f"{path}.~"] |= {name for mapping in mappings for name in mapping}
            found |= _inside("propertyNames", _names(shape))
            found |= _inside("additionalProperties", self._below(items, shape, path, "*", always=False))
        elif mappings:
            keys = sorted({key for mapping in mappings for key in mapping if key != "tags"})
            properties = {
                key: self._below(_at(mappings, key), shape, path, key, always=always and all(key in one for one in mappings))
                for key in keys
            }
            found |= _inside("properties", {key: one for key, one in properties.items() if one})
            found |= _inside("required", [key for key in keys if self._is_required(key, mappings, shape, path)])
        return found

    def _note(self, path: str, values: list[Any], *, always: bool) -> None:
        """Notes what a place holds. Names of other resources in a text are not what a user gives."""
        known = {_PLACEHOLDER.sub("", text(one)) for one in values if isinstance(one, str | int | float) and not is_token(one)}
        self.values[path] |= known | {f"{len(value)} items" for value in values if isinstance(value, list | tuple)}
        if known and (not always or any(map(is_token, values))):
            self.values[path].add("(absent, or of another resource)")

    def _below(self, values: list[Any], shape: Shape | None, path: str, step: str, *, always: bool) -> Schema:
        inside = f"{path}{step}" if step == "[]" else f"{path}.{step}".removeprefix(".")
        member, outside = self.row.get("members", {}).get(inside), inside in self.row.get("outside", {})
        below = self._member(member) if member else shape.member(step) if shape and not outside else None
        if below is None and not outside and shape is not None and f"{inside}[]" not in self.row.get("members", {}):
            self.unplaced.append(f"{self.type}: {inside}")
        return self._schema(values, below, inside, always=always)

    def _is_required(self, key: str, mappings: list[Mapping[str, Any]], shape: Shape | None, path: str) -> bool:
        inside = f"{path}.{key}".removeprefix(".")
        if inside in self.row.get("filled", ()) or inside in self.row.get("named", {}):
            return False
        member = self.row.get("members", {}).get(inside, key)
        return shape is not None and member.lower() in shape.required() and all(one.get(key) is not None for one in mappings)


def _at(mappings: Iterable[Mapping[str, Any]], key: str) -> list[Any]:
    return [mapping[key] for mapping in mappings if key in mapping]


def _inside(keyword: str, found: Any) -> Schema:
    return {keyword: found} if found else {}


def _names(shape: Shape | None) -> Schema:
    key = shape.content.get("key") if shape else None
    return bounds(Shape(shape.service, key["shape"])) if shape and key else {}


def bounds(shape: Shape) -> Schema:
    """The shape's own bounds. Raises ``re.error`` for a pattern that has no counterpart."""
    content, found = shape.content, {}
    if "enum" in content and shape.name not in TABLE["open"]:
        found["enum"] = sorted(content["enum"])
    if "pattern" in content:
        found["pattern"] = whole(content["pattern"])
    what = _LENGTHS.get(content["type"])
    for bound, name in (("min", "minimum"), ("max", "maximum")):
        # The largest number of 32 bits is a type, and no text has fewer than no characters.
        if bound in content and not (what and content[bound] == 0) and content[bound] != 2**31 - 1:
            found[f"{bound}{what}" if what else name] = content[bound]
    return found


def whole(pattern: str) -> str:
    """A pattern for the whole text, as Python writes it."""
    for theirs, ours in _CLASSES.items():
        pattern = pattern.replace(theirs, ours)
    re.compile(pattern)
    inner = pattern.removeprefix("^").removesuffix("$")
    anchored = pattern.startswith("^") and pattern.endswith("$")
    return pattern if anchored and not _alternatives(inner) else f"^(?:{inner})$" if _alternatives(inner) else f"^{inner}$"


def _alternatives(pattern: str) -> bool:
    """Whether a pattern has alternatives outside of groups."""
    depth = 0
    for part in re.findall(r"\\.|\[(?:\\.|[^\]\\])*\]|[()|]", pattern):
        depth += (part == "(") - (part == ")")
        if part == "|" and not depth:
            return True
    return False


def table() -> str:
    from covering_graphs import shipped_and_covering_graphs

    return rendered(derived(recorded_inputs(shipped_and_covering_graphs())))


def recorded_inputs(graphs: Iterable[Graph]) -> dict[str, list[Mapping[str, Any]]]:
    """The inputs of all resources of AWS, by type."""
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for graph in graphs:
        for resource in graph.resources:
            if resource.package in ("aws", "eks") and not resource.is_provider:
                found[resource.type].append(resource.inputs)
    return dict(found)


def derived(inputs: Mapping[str, list[Mapping[str, Any]]]) -> dict[str, Derived]:
    """What each type of the table becomes, for the properties that the inputs set.

    Raises ``LookupError`` for what the table lacks.
    """
    missing, found = sorted(inputs.keys() - TABLE["types"].keys()), {}
    for type_, row in TABLE["types"].items():
        unnamed = dict.fromkeys(row.get("named", {}), UNKNOWN)
        found[type_] = one = Derived(type_, row)
        one.schema = one.derive([unnamed | given for given in inputs.get(type_, [{}])])
        missing += one.unplaced
    if missing:
        raise LookupError("aws_operations.toml lacks: " + ", ".join(sorted(set(missing))))
    return found


def rendered(types: Mapping[str, Derived]) -> str:
    """The text of ``aws_bounds.json``."""
    rows = {
        type_: {"api": _words(one.operations), **_inside("named", one.row.get("named")), **_inside("schema", one.schema)}
        for type_, one in types.items()
        if one.schema or "named" in one.row
    }
    return json.dumps(rows, indent=1, sort_keys=True) + "\n"


def _words(operations: Iterable[str]) -> str:
    by_service: dict[str, list[str]] = defaultdict(list)
    for service, _, operation in (operation.partition(".") for operation in sorted(operations)):
        by_service[model(service)["metadata"]["serviceId"]].append(operation)
    return "; ".join(f"{service} API, {', '.join(names)}" for service, names in by_service.items())


def tag_bounds(type_: str) -> tuple[Schema, Schema]:
    """What the request of a type of resource takes of the key and of the value of a tag; empty where it says nothing."""
    service, _, operation = TABLE["types"][type_]["operation"].partition(".")
    request = Shape(service, model(service)["operations"][operation]["input"]["shape"])
    tags = request.member("tags")
    if tags is None:
        return {}, {}
    if tags.content["type"] == "map":
        return _names(tags), bounds(Shape(service, tags.content["value"]["shape"]))
    tag = tags.member("[]") or tags
    key, value = tag.member("key"), tag.member("value")
    return bounds(key) if key else {}, bounds(value) if value else {}
