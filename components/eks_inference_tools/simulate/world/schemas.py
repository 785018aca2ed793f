"""Finds the custom resource definitions (CRDs) that a stack's objects are checked against: the projects' own, or else ours.

Ours (``assets/<group>.yaml``) follow the published API references and are named as ours wherever they appear. The pod templates
in them are the API server's own schemas, so a pod inside a RayService is checked as strictly as any other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from eks_inference_tools.simulate.control_plane.kubernetes_api import Api
from eks_inference_tools.simulate.control_plane.toolchain import definition_sources
from eks_inference_tools.simulate.world.api_objects import ClusterObject

_OURS = ("leaderworkerset.x-k8s.io.yaml", "ray.io.yaml")

# Kinds that the controller of a group creates itself, or that its other kinds require.
_OF_KARPENTER = (("karpenter.sh", "NodePool"), ("karpenter.sh", "NodeClaim"), ("karpenter.k8s.aws", "EC2NodeClass"))
_TOGETHER = {"karpenter.sh": _OF_KARPENTER, "karpenter.k8s.aws": _OF_KARPENTER}

# Where an API server publishes the schemas of its own kinds.
_OPENAPI = ("/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1", "/openapi/v3/apis/networking.k8s.io/v1")


@dataclass(frozen=True)
class Definition:
    """A CustomResourceDefinition and its origin: ``CRD of karpenter-provider-aws v1.14.1`` or ``schema of ours, after …``."""

    manifest: dict[str, Any]
    origin: str

    @property
    def kind(self) -> tuple[str, str]:
        """API group and kind."""
        spec = self.manifest["spec"]
        return spec["group"], spec["names"]["kind"]

    @property
    def resource(self) -> str:
        """The name that kubectl uses: ``rayservices.ray.io``."""
        return self.manifest["metadata"]["name"]


def definitions_for(
    objects: Iterable[ClusterObject], real: Iterable[Mapping[str, Any]], kubernetes: Mapping[str, Any]
) -> tuple[Definition, ...]:
    """Returns the known definitions of all custom kinds that the objects use, sorted by kind.

    ``real`` are the projects' own definitions (``Toolchain.definitions``), which are preferred to ours. ``kubernetes`` are the
    API server's own schemas (``kubernetes_schemas``).
    """
    used = {(item.group, item.kind) for item in objects}
    wanted = used.union(*(_TOGETHER.get(group, ()) for group, _ in used))
    found = {definition.kind: definition for definition in (_real(manifest) for manifest in real) if definition.kind in wanted}
    for document in _documents():
        for kind in document["kinds"]:
            if (document["group"], kind) in wanted - found.keys():
                found[document["group"], kind] = _ours(document, kind, kubernetes)
    return tuple(found[kind] for kind in sorted(found))


def kubernetes_schemas(api: Api) -> dict[str, Any]:
    """Returns the API server's own schemas that our definitions refer to, by full name."""
    return {name: schema for path in _OPENAPI for name, schema in api.raw("GET", path)["components"]["schemas"].items()}


def _real(manifest: Mapping[str, Any]) -> Definition:
    spec = manifest["spec"]
    file = f"{spec['group']}_{spec['names']['plural']}"
    source = next((definition_source for definition_source in definition_sources() if file in definition_source.files), None)
    origin = f"CRD of {source.module.removesuffix('/v2').rpartition('/')[2]} {source.version}" if source else "CRD"
    return Definition(dict(manifest), origin)


@cache
def _documents() -> tuple[Mapping[str, Any], ...]:
    folder = resources.files("eks_inference_tools.simulate.world").joinpath("assets")
    return tuple(yaml.safe_load(folder.joinpath(name).read_text("utf-8")) for name in _OURS)


def _ours(document: Mapping[str, Any], kind: str, kubernetes: Mapping[str, Any]) -> Definition:
    row = document["kinds"][kind]
    known = {**kubernetes, **document["schemas"]}
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _structural(known[row["spec"]], known),
            # Only controllers and their stand-ins write the status.
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
        "x-kubernetes-validations": row["rules"],
    }
    names = {"kind": kind, "listKind": f"{kind}List", "plural": row["plural"], "singular": kind.lower()}
    version = {
        "name": document["version"],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}} | ({"scale": row["scale"]} if "scale" in row else {}),
    }
    manifest = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{row['plural']}.{document['group']}"},
        "spec": {
            "group": document["group"],
            "names": names | ({"shortNames": row["short"]} if "short" in row else {}),
            "scope": "Namespaced",
            "versions": [version],
        },
    }
    return Definition(manifest, document["origin"])


# -- from OpenAPI to structural schemas ------------------------------------------------------------------------------------------
# Kubernetes, "Extend the Kubernetes API with CustomResourceDefinitions": a structural schema has no references, types every
# value, and marks the two types of Kubernetes that are an integer or a string.

_QUANTITY = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
_NUMBER_OR_TEXT = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {**_NUMBER_OR_TEXT, "pattern": _QUANTITY},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _NUMBER_OR_TEXT,
    # What a template may set; the API server fills in the rest.
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {
        "type": "object",
        "properties": {
            "annotations": _TEXTS,
            "finalizers": {"type": "array", "items": {"type": "string"}},
            "labels": _TEXTS,
            "name": {"type": "string"},
            "namespace": {"type": "string"},
        },
    },
}

_KEPT = frozenset(
    (
        "default",
        "enum",
        "format",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
        "required",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    )
)


def _structural(schema: Mapping[str, Any], known: Mapping[str, Any], *, builtin: bool = False) -> dict[str, Any]:
    """Returns the schema with all its references resolved. ``builtin`` marks schemas of Kubernetes itself."""
    base: dict[str, Any] = {}
    for part in (schema, *schema.get("allOf", ())):
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            special = _SPECIAL.get(name)
            base = dict(special) if special else _structural(known[name], known, builtin=name.startswith("io.k8s."))
    found = base | {key: value for key, value in schema.items() if key in _KEPT}
    if builtin:
        # Kubernetes gives fields that Go always serializes an empty default. Only the parent schema can tell it from a real one.
        found.pop("default", None)
    if "required" in base:
        found["required"] = sorted({*base["required"], *schema.get("required", ())})
    if "properties" in schema:
        properties = {key: _structural(value, known, builtin=builtin) for key, value in schema["properties"].items()}
        for key, value in schema["properties"].items() if builtin else ():
            if value.get("default", {}) != {} and key not in schema.get("required", ()):
                properties[key]["default"] = value["default"]
        found["properties"] = properties
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            found[key] = _structural(schema[key], known, builtin=builtin)
    if "anyOf" in schema:
        found["anyOf"] = schema["anyOf"]
    if found.get("type") == "object" and not found.keys() & {"properties", "additionalProperties"}:
        found["x-kubernetes-preserve-unknown-fields"] = True
    return found
