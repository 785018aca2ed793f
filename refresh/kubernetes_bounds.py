"""What the API server takes of the objects in recorded graphs, from a real one: needs the programs of ``make cluster-tools``.

Sources are the OpenAPI documents of the pinned API server, the custom resource definitions of the pinned charts, our schemas of
KubeRay and LeaderWorkerSet, and ``kubernetes_bounds.toml``: what the API server refuses beyond its own schemas.

A schema is whole where a recorded object sets the mapping that it describes, and empty elsewhere: other programs set these
fields, and no graph of ours shows that a bound would be right there.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from eks_inference_tools.simulate.control_plane.control_plane import control_plane
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api
from eks_inference_tools.simulate.control_plane.toolchain import definition_sources, installed
from refresh import ROOT
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph
from stackgraph.views.manifests import manifest

FILE = ROOT / "components" / "eks_inference_tools" / "check" / "kubernetes_bounds.json"

Schema = Mapping[str, Any]

_BY_HAND = tomllib.loads(Path(__file__).with_name("kubernetes_bounds.toml").read_text("utf-8"))
_BUILT_IN = ("io.k8s.apimachinery.pkg.apis.", "io.k8s.apimachinery.pkg.", "io.k8s.api.")
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_INTEGERS = {"int32": 2**31, "int64": 2**63}

_KEPT = frozenset(
    (
        "enum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "pattern",
        "type",
        "x-kubernetes-list-map-keys",
    )
)


def table() -> str:
    from covering_graphs import shipped_and_covering_graphs

    toolchain = installed()
    if reason := toolchain.missing():
        sys.exit(reason)
    with control_plane(toolchain) as plane:
        return rendered(derived(shipped_and_covering_graphs(), schemas_of(plane.api), toolchain.definitions()))


def derived(graphs: Iterable[Graph], kubernetes: Mapping[str, Schema], definitions: Iterable[Schema]) -> dict[str, Any]:
    """The contents of ``kubernetes_bounds.json``.

    ``kubernetes`` are the API server's own schemas by full name (``schemas_of``), ``definitions`` the projects' CRDs.
    """
    derivation = _Derivation(kubernetes, definitions)
    for graph in graphs:
        for resource in graph.resources:
            if is_kubernetes_object(resource):
                derivation.note(manifest(resource))
    return derivation.contents()


def rendered(contents: Mapping[str, Any]) -> str:
    """The text of ``kubernetes_bounds.json``: a line for each kind and type."""
    parts = []
    for part, rows in sorted(contents.items()):
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in sorted(rows.items()))
        parts.append(f' "{part}": {{\n{lines}\n }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def schemas_of(api: Api) -> dict[str, Schema]:
    """The schemas of all kinds that an API server publishes, by full name."""
    paths = api.raw("GET", "/openapi/v3")["paths"]
    built_in = [path for path in paths if path == "api/v1" or re.fullmatch(r"apis/(\w+|[\w.]+\.k8s\.io)/v\d+", path)]
    documents = [api.raw("GET", f"/openapi/v3/{path}") for path in built_in]
    return {name: schema for document in documents for name, schema in document["components"]["schemas"].items()}


class _Derivation:
    def __init__(self, kubernetes: Mapping[str, Schema], definitions: Iterable[Schema]) -> None:
        self._types = dict(kubernetes)
        self._kinds: dict[str, tuple[Schema, str]] = {}
        for name, schema in kubernetes.items():
            for item in schema.get("x-kubernetes-group-version-kind", ()):
                place = "/".join(filter(None, (item["group"], item["version"], item["kind"])))
                self._kinds.setdefault(place, ({"$ref": name}, "the API server's OpenAPI and validation"))
        self._kinds |= {place: (schema, source) for place, schema, source in (*self._ours(), *_defined(definitions))}
        self._seen: set[str | int] = set()
        self._used: set[str] = set()
        self._forms: dict[str, Any] = {}

    def _ours(self) -> Iterator[tuple[str, Schema, str]]:
        folder = resources.files("eks_inference_tools.simulate.world").joinpath("assets")
        for name in ("leaderworkerset.x-k8s.io.yaml", "ray.io.yaml"):
            document = yaml.safe_load(folder.joinpath(name).read_text("utf-8"))
            self._types |= document["schemas"]
            for kind, row in document["kinds"].items():
                schema = {"type": "object", "required": ["spec"], "properties": {"spec": {"$ref": row["spec"]}}}
                yield f"{document['group']}/{document['version']}/{kind}", _whole(schema), document["origin"]

    # -- what graphs set

    def note(self, item: Mapping[str, Any]) -> None:
        place = f"{item['apiVersion']}/{item['kind']}"
        self._used.add(place)
        self._note(self._kinds[place][0], item)

    def _note(self, schema: Schema, value: Any) -> None:
        name, schema = self._resolved(schema)
        if isinstance(value, Mapping):
            self._seen.add(name or id(schema))
            for key, item in value.items():
                if inside := schema.get("properties", {}).get(key) or schema.get("additionalProperties"):
                    self._note(inside, item)
        elif isinstance(value, list | tuple):
            for item in value:
                self._note(schema.get("items", {}), item)

    def _resolved(self, schema: Schema) -> tuple[str, Schema]:
        """The full name of the type that a schema refers to, if any, and the type with what the schema adds."""
        for part in (schema, *schema.get("allOf", ())):
            if "$ref" in part:
                name = part["$ref"].rpartition("/")[2]
                further, found = self._resolved(self._types[name])
                return further or name, found
        return "", schema

    # -- what is kept

    def contents(self) -> dict[str, Any]:
        kinds = {place: self._kind(place) for place in sorted(self._used)}
        named = (name for name in self._seen if isinstance(name, str) and self._types[name].get("properties"))
        types = {_short(name): self._whole(self._types[name], name=_short(name)) for name in named}
        return {"kinds": kinds, "types": dict(sorted(types.items()))}

    def _kind(self, place: str) -> dict[str, Any]:
        schema, source = self._kinds[place]
        self._forms = dict(_BY_HAND["kinds"].get(place, {}))
        kept = self._kept(schema)
        if self._forms:
            raise AssertionError(f"kubernetes_bounds.toml: {place} has no {', '.join(sorted(self._forms))}")
        return {"source": source, "schema": kept}

    def _kept(self, schema: Schema, path: str = "", form: Any = None, *, optional: bool = False) -> dict[str, Any]:
        name, target = self._resolved(schema)
        if name and not target.get("properties"):
            found = {**_BY_HAND["forms"].get(_BY_HAND["scalars"].get(_short(name), ""), {}), **self._bounded(target, path)}
        elif name:
            found = {"$ref": _short(name)} if name in self._seen else {}
        elif target.get("properties"):
            found = self._whole(target, path) if id(target) in self._seen else {}
        else:
            found = self._bounded(target, path)
        found |= _formed(form or self._forms.pop(path, None), found)
        return _or_empty(found) if optional else found

    def _bounded(self, schema: Schema, path: str = "") -> dict[str, Any]:
        found = _bare(schema)
        for key, step in (("items", "[]"), ("additionalProperties", ".*")):
            if isinstance(schema.get(key), Mapping) and (inside := self._kept(schema[key], path + step)):
                found[key] = inside
        return found

    def _whole(self, schema: Schema, path: str = "", name: str = "") -> dict[str, Any]:
        """A schema of a mapping with all of its fields. ``name`` is that of the type."""
        built_in = "." in name
        found = self._bounded(schema, path)
        properties, forms = schema["properties"], _BY_HAND["types"].get(name, {})
        if unknown := forms.keys() - properties:
            raise AssertionError(f"kubernetes_bounds.toml: {name} has no {', '.join(sorted(unknown))}")
        # What has a default is filled in. Kubernetes gives an empty one to all of its own that Go always serializes.
        absent = (None, {}, "", 0) if built_in else (None,)
        needed = {key for key in schema.get("required", ()) if properties[key].get("default") in absent}
        needed = (needed | {*_BY_HAND["required"].get(name, ())}) - {*_BY_HAND["optional"].get(name, ())}
        found["properties"] = {
            key: self._kept(properties[key], f"{path}.{key}".strip("."), forms.get(key), optional=built_in and key not in needed)
            for key in sorted(properties)
        }
        if needed:
            found["required"] = sorted(needed)
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            found["additionalProperties"] = False
        return found


def _defined(definitions: Iterable[Schema]) -> Iterator[tuple[str, Schema, str]]:
    for definition in definitions:
        spec = definition["spec"]
        file = f"{spec['group']}_{spec['names']['plural']}"
        source = next(definition_source for definition_source in definition_sources() if file in definition_source.files)
        for version in spec["versions"]:
            origin = f"definition of {source.name} {source.version}"
            yield (
                f"{spec['group']}/{version['name']}/{spec['names']['kind']}",
                _whole(version["schema"]["openAPIV3Schema"]),
                origin,
            )


def _whole(schema: Schema) -> dict[str, Any]:
    """The schema of a custom kind, with the fields that every kind has."""
    text = {"type": "string"}
    return {**schema, "properties": {**schema["properties"], "apiVersion": text, "kind": text, "metadata": {"$ref": _META}}}


def _bare(schema: Schema) -> dict[str, Any]:
    found = {key: value for key, value in schema.items() if key in _KEPT}
    if "pattern" in found:
        found |= _pattern(found["pattern"])
    types = [one["type"] for one in (*schema.get("oneOf", ()), *schema.get("anyOf", ())) if "type" in one]
    if types:
        found["type"] = sorted(set(types))
    if limit := _INTEGERS.get(schema.get("format", "")) if schema.get("type") == "integer" else None:
        found = {"minimum": -limit, "maximum": limit - 1, **found}
    return found


def _pattern(form: str) -> dict[str, str]:
    """A pattern of Go as one of Python, which takes flags only at the beginning, and in words."""
    words = _BY_HAND["patterns"].get(form)
    if "(?i)" in form:
        form = f"(?i){form.replace('(?i)', '')}"
    return {"pattern": form} | ({"description": words} if words else {})


def _or_empty(schema: dict[str, Any]) -> dict[str, Any]:
    """Of a text that may be left out: to Kubernetes, an empty one is none."""
    if schema.get("type") != "string":
        return schema
    if "enum" in schema:
        return schema | {"enum": [*schema["enum"], *({""} - {*schema["enum"]})]}
    return schema | {"pattern": f"^$|{schema['pattern']}"} if "pattern" in schema else schema


def _formed(form: Any, found: Mapping[str, Any]) -> dict[str, Any]:
    """What was written by hand: the name of a form, or forms of the keys, values or items of what a field holds."""
    if form is None:
        return {}
    if isinstance(form, str):
        return dict(_BY_HAND["forms"][form])
    keys = {"keys": "propertyNames", "values": "additionalProperties", "items": "items"}
    return {keys[part]: {**found.get(keys[part], {}), **_BY_HAND["forms"][name]} for part, name in form.items()}


def _short(name: str) -> str:
    """``core.v1.Pod`` for ``io.k8s.api.core.v1.Pod``."""
    for prefix in _BUILT_IN:
        name = name.removeprefix(prefix)
    return name
