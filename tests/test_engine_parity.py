"""The recorder against the engine: the same program, previewed by both, registers the same resources.

Needs a ``pulumi`` command on PATH and nothing else: the providers are echoes of our own (tests/engine/echo.py), the state is a
folder of the test, and no account, cluster or network is used.
"""

import difflib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from engine import cli

from eks_inference.preview import wire
from eks_inference.preview.graph import PROVIDER_PREFIX, STACK_TYPE, Graph, Resource
from eks_inference.preview.recording import record

pytestmark = pytest.mark.skipif(bool(cli.missing()), reason=cli.missing())

TOY = Path(__file__).parent / "engine" / "program"


def test_toy_program_registers_the_same_in_engine_and_recorder(tmp_path: Path) -> None:
    config = {"aws:region": "us-west-2", "aws:defaultTags": '{"tags": {"a": "b"}}', "eks:some": "thing"}
    secrets = {"parity:token": "hush-hush", "aws:secretKey": "very-hush"}
    engine = cli.preview(TOY, tmp_path, project="parity", stack="parity", config=config, secrets=secrets)
    graph = record(TOY, project="parity", stack="parity", config=config | secrets, secret_keys=secrets, strict=True)
    assert_same(engine_view(engine, graph), recorder_view(graph))


# -- comparison ---------------------------------------------------------------------------------------------------------------


def assert_same(engine: Mapping[str, Any], recorder: Mapping[str, Any]) -> None:
    left, right = _lines(engine), _lines(recorder)
    difference = "\n".join(difflib.unified_diff(left, right, "engine", "recorder", n=4, lineterm=""))
    assert not difference, f"engine and recorder disagree:\n{difference}"


def _lines(view: Mapping[str, Any]) -> list[str]:
    """One property a line, each with its resource, so that a difference can be read alone."""
    return [f"{urn}  {key} = {json.dumps(value, sort_keys=True)}" for urn in sorted(view) for key, value in sorted(view[urn].items())]


def recorder_view(graph: Graph) -> dict[str, dict[str, Any]]:
    view = {resource.urn: _recorded(resource) for resource in graph.resources}
    view[graph.of_type(STACK_TYPE)[0].urn]["outputs"] = graph.outputs
    return view


def _recorded(resource: Resource) -> dict[str, Any]:
    options = dict(resource.options)
    # The engine keeps it with the provider that it makes from it, whose name tells it.
    options.pop("pluginDownloadUrl", None)
    # The engine counts in seconds.
    if timeouts := options.get("customTimeouts"):
        options["customTimeouts"] = {action: _seconds(text) for action, text in timeouts.items()}
    return {
        "type": resource.type,
        "parent": resource.parent,
        "custom": resource.custom,
        "inputs": resource.inputs,
        "dependencies": list(resource.dependencies),
        "propertyDependencies": {key: list(urns) for key, urns in resource.property_dependencies.items()},
        # The state of a component does not tell which provider constructs it.
        "provider": "" if resource.remote else resource.provider,
        "options": options,
    }


def engine_view(preview: cli.EnginePreview, graph: Graph) -> dict[str, dict[str, Any]]:
    """The engine's resources in the recorder's terms."""
    remote = {resource.urn for resource in graph.resources if resource.remote}

    def owner(urn: str) -> str:
        """The remote component a resource is part of, or the resource itself: what is in there only a plugin knows."""
        found = urn
        while urn in preview.states and urn not in graph.by_urn:
            urn = preview.states[urn].get("parent", "")
            if urn in remote:
                found = urn
        return found

    view = {}
    for urn in preview.states.keys() | preview.goals.keys():
        type_ = urn.split("::")[2].rpartition("$")[2]
        # Built into the engine, to look up resources by URN: it is no plugin, and the recorder answers itself.
        if owner(urn) == urn and type_ != f"{PROVIDER_PREFIX}pulumi":
            view[urn] = _planned(type_, preview.states.get(urn, {}), preview.goals.get(urn), owner)
        if type_ == STACK_TYPE:
            view[urn]["outputs"] = _plain(preview.goals[urn]["outputDiff"].get("adds", {}))
    return view


def _planned(type_: str, state: Mapping[str, Any], goal: Mapping[str, Any] | None, owner: Any) -> dict[str, Any]:
    read = goal is None
    goal = goal or {}
    told = {**state, **goal}
    inputs = _plain(state.get("inputs", {}) if read else goal["inputDiff"].get("adds", {}))
    # Where the engine keeps what it needs to know of a plugin.
    inputs.pop("__internal", None)
    # A state has the URNs of providers with an id, which a preview does not know.
    provider = told.get("provider", "").rpartition("::")[0]
    options = {
        "additionalSecretOutputs": sorted(told.get("additionalSecretOutputs", [])),
        "aliases": [_alias(alias) for alias in goal.get("structuredAliases", [])],
        "customTimeouts": told.get("customTimeouts", {}),
        "deleteBeforeReplace": goal.get("deleteBeforeReplace", False),
        "deletedWith": state.get("deletedWith", ""),
        "hideDiffs": state.get("hideDiff", []),
        "ignoreChanges": sorted(told.get("ignoreChanges", [])),
        "import": goal.get("id", ""),
        "protect": told.get("protect", False),
        "read": state.get("id", "") if read else "",
        "replaceOnChanges": sorted(state.get("replaceOnChanges", [])),
        "hooks": {hook[0].lower() + hook[1:]: names for hook, names in state.get("resourceHooks", {}).items()},
        "replacementTrigger": state.get("replacementTrigger"),
        "replaceWith": sorted(state.get("replaceWith", [])),
        "retainOnDelete": state.get("retainOnDelete", False),
    }
    property_dependencies = {key: sorted({owner(urn) for urn in urns}) for key, urns in told.get("propertyDependencies", {}).items()}
    return {
        "type": type_,
        "parent": told.get("parent", ""),
        "custom": told["custom"],
        "inputs": inputs,
        # Sets, in no order; the engine names properties without dependencies too.
        "dependencies": sorted({owner(urn) for urn in told.get("dependencies", [])}),
        "propertyDependencies": {key: urns for key, urns in property_dependencies.items() if urns},
        "provider": provider,
        "options": {key: value for key, value in options.items() if value},
    }


def _plain(value: Any) -> Any:
    """A value of a plan as graphs hold it."""
    if value == wire.UNKNOWN:
        return wire.UNKNOWN_TEXT
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        signature = value.get(wire.SIGNATURE)
        if signature == wire.SECRET:
            return wire.SECRET_TEXT
        if signature == wire.RESOURCE:
            return {"resource": value["urn"]}
        if signature in (wire.ASSET, wire.ARCHIVE):
            # The engine reads assets to know whether they changed; the recorder shows where they come from.
            kept = {key: _plain(item) for key, item in value.items() if key not in (wire.SIGNATURE, "hash")}
            return {"asset" if signature == wire.ASSET else "archive": kept}
        return {key: _plain(item) for key, item in value.items()}
    return value


def _alias(alias: Mapping[str, Any]) -> dict[str, Any]:
    """Empty fields of an alias mean those of the resource itself."""
    names = {"URN": "urn", "Name": "name", "Type": "type", "Project": "project", "Stack": "stack", "Parent": "parent", "NoParent": "noParent"}
    return {name: alias[key] for key, name in names.items() if alias[key]}


def _seconds(text: str) -> int:
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", text))
