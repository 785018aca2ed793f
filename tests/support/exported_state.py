"""Writes the export that a stack would have if every resource of a recorded graph had been created as the program says.

It is made from the graph, not by an engine: every output that the graph refers to gets a text, and each reference that text.
tests/stackgraph/deployed/export.json is what the engine itself wrote.
"""

from collections.abc import Mapping
from typing import Any

from stackgraph.graph.document import STACK_TYPE, Graph, Resource
from stackgraph.graph.values import REFERENCE, SECRET, UNKNOWN, leaves, mapped, references
from stackgraph.state.exported import ASSET_MARK, RESOURCE_MARK, SECRET_MARK, SIGNATURE
from stackgraph.state.inputs import normalized

CIPHERTEXT = {SIGNATURE: SECRET_MARK, "ciphertext": "v1:c2VjcmV0"}


def export_of(graph: Graph) -> dict[str, Any]:
    """The document of ``pulumi stack export``."""
    used = {found for resource in graph.resources for leaf in leaves(resource.inputs) for found in _references(leaf)}
    used |= {found for leaf in leaves(graph.outputs) for found in _references(leaf)}
    resources = [_state(resource, graph, used) for resource in graph.resources]
    resources.sort(key=lambda one: one["type"] != STACK_TYPE)
    return {"version": 3, "deployment": {"manifest": {}, "resources": resources}}


def _references(leaf: Any) -> list[str]:
    return references(leaf) if isinstance(leaf, str) else []


def _state(resource: Resource, graph: Graph, used: set[str]) -> dict[str, Any]:
    outputs: dict[str, Any] = _stored(graph.outputs) if resource.type == STACK_TYPE else _stored(resource.inputs)
    for reference in used:
        if reference.startswith(f"{resource.name}."):
            *path, last = reference.removeprefix(f"{resource.name}.").split(".")
            inner = outputs
            for step in path:
                inner = inner.setdefault(step, {})
            inner[last] = f"known-{reference}"
    state = {
        "urn": resource.urn,
        "custom": resource.custom,
        "type": resource.type,
        "parent": resource.parent,
        "inputs": _stored(normalized(resource.type, resource.inputs)) | {"__defaults": []},
        "outputs": outputs,
        "dependencies": list(resource.dependencies),
        "propertyDependencies": {key: list(urns) for key, urns in resource.property_dependencies.items()},
        **{
            key: _stored(resource.options[key])
            for key in ("protect", "deletedWith", "replacementTrigger")
            if key in resource.options
        },
    }
    if resource.custom:
        state |= {"id": outputs.pop("id", f"known-{resource.name}"), "provider": f"{resource.provider}::some-id"}
    return state


def _stored(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.keys() == {"asset"}:
            return {SIGNATURE: ASSET_MARK, "hash": "any", **value["asset"]}
        if value.keys() == {"resource"}:
            return {SIGNATURE: RESOURCE_MARK, "urn": value["resource"]}
        return {key: _stored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_stored(item) for item in value]
    if value == SECRET:
        return CIPHERTEXT
    if value == UNKNOWN:
        return "computed at the time"
    return mapped(value, lambda leaf: REFERENCE.sub(lambda found: f"known-{found[1]}", leaf) if isinstance(leaf, str) else leaf)
