"""What of the recorded Kubernetes objects a user can reach, and what bounds it: the rows of ``docs/bounds-kubernetes.md``.

A user can reach a property whose value differs between two recorded objects of a kind. Pods are one section whatever makes them,
and so is the metadata of all objects.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph
from stackgraph.views.manifests import manifest

SHARED = {"core.v1.PodTemplateSpec": "pods of every kind", "meta.v1.ObjectMeta": "metadata of every kind"}
_IDENTITY = ("apiVersion", "kind")
_LIMITS = {2**31: "32 bits", 2**63: "64 bits"}


@dataclass
class Property:
    """A property of a kind: its schema and the recorded values, as texts."""

    schema: Mapping[str, Any]
    values: set[str] = field(default_factory=set)


def reachable(graphs: Iterable[Graph], bounds: Mapping[str, Any]) -> dict[tuple[str, str], Property]:
    """By section and path, each property that users can reach. ``bounds`` is the content of ``kubernetes_bounds.json``.

    In a path ``[]`` is any item and ``*`` the value of any key; a path that ends with ``~`` means the keys themselves.
    """
    found: dict[tuple[str, str], Property] = {}
    for graph in graphs:
        for resource in graph.resources:
            if is_kubernetes_object(resource):
                item = manifest(resource)
                place = f"{item['apiVersion']}/{item['kind']}"
                for section, path, schema, value in _leaves(item, bounds["kinds"][place]["schema"], bounds["types"], place, ""):
                    found.setdefault((section, path), Property(schema)).values.add(repr(value))
    return {key: one for key, one in sorted(found.items()) if len(one.values) > 1 and key[1] not in _IDENTITY}


_Leaf = tuple[str, str, Mapping[str, Any], Any]


def _leaves(value: Any, schema: Mapping[str, Any], types: Mapping[str, Any], section: str, path: str) -> Iterator[_Leaf]:
    if name := schema.get("$ref"):
        section, path = (SHARED[name], "") if name in SHARED else (section, path)
        schema = types[name]
    if isinstance(value, Mapping):
        known = schema.get("properties", {})
        for key, item in value.items():
            if not known:
                yield section, f"{path}.~".strip("."), schema.get("propertyNames", {}), key
            inside = known.get(key) or schema.get("additionalProperties") or {}
            yield from _leaves(item, inside, types, section, f"{path}.{key if known else '*'}".strip("."))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item, schema.get("items", {}), types, section, f"{path}[]")
    else:
        yield section, path, schema, value


def in_words(schema: Mapping[str, Any]) -> str:
    """The bound of a scalar in words; empty where the schema says no more than a type."""
    said = []
    if "enum" in schema:
        said.append(f"one of {', '.join(str(one) for one in schema['enum'] if one != '')}")
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None and (bits := _LIMITS.get(-least)) and most == -least - 1:
        said.append(f"a whole number of {bits}")
    else:
        most = None if most is not None and most + 1 in _LIMITS else most
        said += [f"{word} {bound}" for word, bound in (("at least", least), ("at most", most)) if bound is not None]
    if "pattern" in schema:
        said.append(schema.get("description") or f"the form `{schema['pattern']}`")
    least, most = schema.get("minLength"), schema.get("maxLength")
    said += [f"{word} {bound} characters" for word, bound in (("at least", least), ("at most", most)) if bound is not None]
    return "; ".join(said)
