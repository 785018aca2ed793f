"""The recorder against the engine: previewed by both, a program registers the same resources.

Needs a ``pulumi`` command on PATH and nothing else. The providers are echoes of our own (tests/engine/echo.py),
and the state is a folder of the test. It uses no account, cluster or network.

One difference is known and accepted: what a remote component such as ``eks.Cluster`` consists of only its plugin knows. The
recorder shows the component alone, without outputs when strict, and whoever uses its outputs depends on it. In the engine they
depend on the component *and* the resource inside it: with pulumi-eks 4.4, ``cluster.eks_cluster.endpoint`` brings the cluster
component and its ``aws.eks.Cluster``, and ``cluster.core`` also what the component itself depends on.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from clones import copy_project
from conftest import PROJECT, ROOT, STACKS
from eks_inference.kubernetes.secrets import CONFIG_SECRETS
from engine import cli
from engine.echo import ANSWERS
from stackgraph.graph import values
from stackgraph.graph.document import PROVIDER_PREFIX, STACK_TYPE, Graph, Resource
from stackgraph.recorder import wire
from stackgraph.recorder.answers import read_answers
from stackgraph.recorder.project import Project, find_project
from stackgraph.recorder.recording import record

pytestmark = pytest.mark.skipif(bool(cli.missing()), reason=cli.missing())


@pytest.mark.thorough
def test_one_of_everything(tmp_path: Path) -> None:
    program = find_project(ROOT / "tests" / "engine" / "program")
    assert_engine_agrees(program, "parity", tmp_path, {"parity:token": "hush-hush", "aws:secretKey": "very-hush"})


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_shipped_stack(stack: str, tmp_path: Path) -> None:
    assert_engine_agrees(PROJECT, stack, tmp_path, {f"{PROJECT.name}:{key}": f"a-{key}" for key in CONFIG_SECRETS})


@pytest.mark.thorough
def test_the_engine_shows_why_a_rule_refuses_a_stack(tmp_path: Path) -> None:
    project = with_stack(tmp_path, "inf2-llama3", lambda text: text.replace("max_num_seqs: 10", "max_num_seqs: 40"))
    (work := tmp_path / "work").mkdir()
    with pytest.raises(AssertionError, match=r"NEU008: .*\n +given: .*max_num_seqs 40"):
        cli.preview(project, "inf2-llama3", work)


@pytest.mark.thorough
def test_a_stack_with_an_address_from_outside(tmp_path: Path) -> None:
    front = {"endpoints": {"llama2": {}}, "gateway": {"host": "models.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ"}}

    def fronted(text: str) -> str:
        file = yaml.safe_load(text)
        file["config"]["eks-inference:stack"] |= front
        return yaml.safe_dump(file, sort_keys=False)

    project = with_stack(tmp_path, "inf2-llama2", fronted)
    (work := tmp_path / "work").mkdir()
    keys = {f"{PROJECT.name}:endpointKeys": '{"team-a": "a-key-of-team-a-in-a-test"}'}
    assert_engine_agrees(project, "inf2-llama2", work, keys)


def with_stack(folder: Path, stack: str, change: Callable[[str], str]) -> Project:
    """Returns a copy of the shipped project with one stack file changed."""
    changed = folder / "changed"
    changed.mkdir()
    copy_project(changed)
    file = changed / "stacks" / f"Pulumi.{stack}.yaml"
    file.write_text(change(file.read_text()))
    return find_project(changed)


def assert_engine_agrees(project: Project, stack: str, work: Path, secrets: Mapping[str, str]) -> None:
    engine = cli.preview(project, stack, work, secrets)
    config = project.config(project.stack_file(stack))
    graph = record(
        project.main,
        project=project.name,
        stack=stack,
        config={**config.values, **secrets},
        secret_keys={*config.secret_keys, *secrets},
        strict=True,
        answers=read_answers(ANSWERS),
    )
    left, right = _lines(engine_view(engine, graph)), _lines(recorder_view(graph))
    difference = "\n".join(difflib.unified_diff(left, right, "engine", "recorder", n=0, lineterm=""))
    assert not difference, f"engine and recorder disagree:\n{difference}"


def _lines(view: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One property a line, each with its resource, so that a difference can be read alone."""
    return [
        f"{urn}  {key} = {json.dumps(value, sort_keys=True)}" for urn in sorted(view) for key, value in sorted(view[urn].items())
    ]


# -- both sides in the same terms ---------------------------------------------------------------------------------------------
#
# Whatever is changed here is a difference that is accepted; each says why.


def recorder_view(graph: Graph) -> dict[str, dict[str, Any]]:
    view = {resource.urn: _recorded(resource) for resource in graph.resources}
    view[graph.of_type(STACK_TYPE)[0].urn]["outputs"] = graph.outputs
    return view


def _recorded(resource: Resource) -> dict[str, Any]:
    options = dict(resource.options)
    # The engine counts in seconds.
    if timeouts := options.get("customTimeouts"):
        options["customTimeouts"] = {action: _seconds(text) for action, text in timeouts.items()}
    # The engine keeps it with the provider, whose name tells it.
    options.pop("pluginDownloadUrl", None)
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
    def visible(urn: str) -> str:
        """Resources inside a remote component are known to its plugin only: the recorder shows the component in their place."""
        while urn in preview.states and urn not in graph.by_urn:
            urn = preview.states[urn].get("parent", "")
        return urn

    def inside(urn: str) -> bool:
        return visible(urn) != urn and graph.by_urn[visible(urn)].remote

    view = {}
    for urn in preview.states.keys() | preview.goals.keys():
        type_ = urn.split("::")[2].rpartition("$")[2]
        # A provider built into the engine, for looking up resources inside remote components; no plugin, nothing to configure.
        if type_ != f"{PROVIDER_PREFIX}pulumi" and not inside(urn):
            view[urn] = _planned(type_, preview.states.get(urn, {}), preview.goals.get(urn), visible)
        if type_ == STACK_TYPE:
            view[urn]["outputs"] = _plain(preview.goals[urn]["outputDiff"].get("adds", {}))
    return view


def _planned(
    type_: str, state: Mapping[str, Any], goal: Mapping[str, Any] | None, visible: Callable[[str], str]
) -> dict[str, Any]:
    if goal is None:
        goal, inputs, read = {}, _plain(state.get("inputs", {})), state["id"]
    else:
        goal, inputs, read = goal, _plain(goal["inputDiff"].get("adds", {})), ""
    told = {**state, **goal}
    # Where the engine keeps what it needs to know of a plugin.
    inputs.pop("__internal", None)
    options = {
        "additionalSecretOutputs": sorted(told.get("additionalSecretOutputs", [])),
        "aliases": [_alias(alias) for alias in goal.get("structuredAliases", [])],
        "customTimeouts": told.get("customTimeouts"),
        "deleteBeforeReplace": goal.get("deleteBeforeReplace"),
        "deletedWith": state.get("deletedWith"),
        "hideDiffs": state.get("hideDiff"),
        "hooks": {hook[0].lower() + hook[1:]: names for hook, names in state.get("resourceHooks", {}).items()},
        "ignoreChanges": sorted(told.get("ignoreChanges", [])),
        "import": goal.get("id"),
        "protect": told.get("protect"),
        "read": read,
        "replaceOnChanges": sorted(state.get("replaceOnChanges", [])),
        "replaceWith": sorted(state.get("replaceWith", [])),
        "replacementTrigger": state.get("replacementTrigger"),
        "retainOnDelete": state.get("retainOnDelete"),
    }
    property_dependencies = {key: sorted(set(map(visible, urns))) for key, urns in told.get("propertyDependencies", {}).items()}
    return {
        "type": type_,
        "parent": told.get("parent", ""),
        "custom": told["custom"],
        "inputs": inputs,
        # The engine keeps sets, in no order, and names properties without dependencies too.
        "dependencies": sorted(set(map(visible, told.get("dependencies", [])))),
        "propertyDependencies": {key: urns for key, urns in property_dependencies.items() if urns},
        # The engine adds the id of the provider, which a preview does not know.
        "provider": told.get("provider", "").rpartition("::")[0],
        "options": {key: value for key, value in options.items() if value},
    }


def _plain(value: Any) -> Any:
    """A value of a plan as graphs hold it."""
    if value == wire.UNKNOWN:
        return values.UNKNOWN
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    signature = value.get(wire.SIGNATURE)
    if signature == wire.SECRET:
        return values.SECRET
    if signature == wire.RESOURCE:
        return {"resource": value["urn"]}
    if signature in (wire.ASSET, wire.ARCHIVE):
        # The engine reads assets to know whether they change; the recorder shows where they come from.
        kept = {key: _plain(item) for key, item in value.items() if key not in (wire.SIGNATURE, "hash")}
        return {"asset" if signature == wire.ASSET else "archive": kept}
    return {key: _plain(item) for key, item in value.items()}


def _alias(alias: Mapping[str, Any]) -> dict[str, Any]:
    """The plan writes all fields, with the names of a Go structure; empty ones say nothing."""
    names = {"URN": "urn", "NoParent": "noParent"}
    return {names.get(key, key.lower()): value for key, value in alias.items() if value}


def _seconds(text: str) -> int:
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", text))
