"""Renders a graph as ``pulumi preview --json`` shows a new stack, for tools that read that.

Keys: ``PreviewDigest`` and ``PreviewStep`` of pulumi/pulumi, ``pkg/display/json.go``; states: ``ResourceV3``,
``sdk/go/common/apitype/core.go``. Left out is what only a run of the engine has: ids of providers, times and stack traces.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from stackgraph.graph.document import STACK_TYPE, Graph, Resource, is_read
from stackgraph.graph.structure import in_order
from stackgraph.graph.values import SECRET, UNKNOWN, mapped

UNKNOWN_VALUE = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What the engine writes for a value that only a deployment knows (``plugin.UnknownStringValue``)."""

_SIGNATURE = "4dabf18193072939515e22adb298388d"
_MARKS = {"asset": "c44067f5952c0a294b673a41bacd8c17", "archive": "0def7320c3a5731c473e5ecbe6d01bc7"}
_REFERENCE = "5cf8f73096256a8f31e491e813e4eb8e"

# Options that a state has, by their name there.
_OPTIONS = {
    **{key: key for key in ("additionalSecretOutputs", "deletedWith", "protect", "replaceOnChanges", "replaceWith")},
    **{key: key for key in ("replacementTrigger", "retainOnDelete", "ignoreChanges")},
    "hideDiffs": "hideDiff",
}
_SECONDS = {"h": 3600, "m": 60, "s": 1}


def render_engine_json(graph: Graph, config: Mapping[str, str], secret_keys: Collection[str], notes: Iterable[str] = ()) -> str:
    """The document. ``config`` is the stack's configuration; the values of ``secret_keys`` are not shown.

    ``notes`` are messages about the whole stack.
    """
    shown = [graph.by_urn[urn] for urn in in_order(graph) if not graph.by_urn[urn].is_default_provider]
    steps = [_step(resource) for resource in shown]
    operations = [step["op"] for step in steps]
    document = {
        "config": {key: SECRET if key in secret_keys else value for key, value in sorted(config.items())},
        "steps": steps,
        "diagnostics": [
            *({"message": f"warning: {warning}\n", "severity": "warning"} for warning in graph.warnings),
            *({"message": f"{note}\n", "severity": "info"} for note in notes),
        ],
        "duration": 0,
        "changeSummary": {op: operations.count(op) for op in sorted(set(operations))},
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _step(resource: Resource) -> dict[str, Any]:
    provider = {"provider": f"{resource.provider}::{UNKNOWN_VALUE}"} if resource.provider and resource.custom else {}
    op = "read" if is_read(resource) else "create"
    return {"op": op, "urn": resource.urn, **provider, "newState": _state(resource, provider), "detailedDiff": None}


def _state(resource: Resource, provider: Mapping[str, str]) -> dict[str, Any]:
    options = resource.options
    state: dict[str, Any] = {"urn": resource.urn, "custom": resource.custom, "type": resource.type}
    if is_read(resource):
        state |= {"id": options["read"], "external": True}
    if resource.type != STACK_TYPE and resource.inputs:
        state["inputs"] = _written(resource.inputs)
    if resource.parent:
        state["parent"] = resource.parent
    if resource.dependencies:
        state["dependencies"] = list(resource.dependencies)
    state |= provider
    if resource.inputs and not is_read(resource) and resource.type != STACK_TYPE:
        state["propertyDependencies"] = {
            key: list(resource.property_dependencies.get(key, ())) for key in sorted(resource.inputs)
        }
    state |= {name: _written(options[key]) for key, name in _OPTIONS.items() if options.get(key)}
    if timeouts := options.get("customTimeouts"):
        state["customTimeouts"] = {action: _seconds(text) for action, text in timeouts.items()}
    return state


def _written(value: Any) -> Any:
    """A value of a graph as a state has it."""
    if isinstance(value, Mapping) and len(value) == 1:
        ((key, inner),) = value.items()
        if key in _MARKS and isinstance(inner, Mapping):
            return {_SIGNATURE: _MARKS[key], **_written(inner)}
        if key == "resource" and isinstance(inner, str) and inner.startswith("urn:pulumi:"):
            return {_SIGNATURE: _REFERENCE, "urn": inner, "id": "", "packageVersion": ""}
    if isinstance(value, Mapping):
        return {key: _written(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    return mapped(value, lambda leaf: UNKNOWN_VALUE if leaf == UNKNOWN else leaf)


def _seconds(text: str) -> int:
    return sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"(\d+)([hms])", text))
