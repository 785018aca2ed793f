"""What a change does to the shipped stacks, in files that a reviewer reads. Sources (file and line) are left out of all of them.

``resources.txt`` misses nothing: it has a line for each resource, with a digest of each part of it, so that any change of any
property fails and names its resource. The other files say what stands there: manifests, roles and user data, and for each stack
the tree, cost, time (test_timeline.py) and the arithmetic of the rules. ``eks-inference diff`` shows the properties behind a
digest.

A change is in one place: what several stacks have in common is there once, and a file of ours by its name (``golden.py``).
"""

import base64
import email
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import golden
from conftest import ROOT, STACKS, recorded
from eks_inference.faults import format_path
from eks_inference.observability import prometheus_plan
from eks_inference_tools.check.report import judge, short_name
from eks_inference_tools.cost.estimate import estimated
from eks_inference_tools.cost.money import in_short
from eks_inference_tools.cost.needed_quotas import needs
from eks_inference_tools.domain import eks
from eks_inference_tools.program import program
from golden import GOLDEN, LIBRARY, assert_golden, by_name, named, once, sections
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at
from stackgraph.views.manifests import render_manifests
from stackgraph.views.tree import render_tree

SHOWN = ("gpu-opt350m", "inf2-llama3", "smoke-gpu", "trn2-di-pair", "trn2-nixl")
"""Stacks whose manifests are there. Together they have every type of component and of resource."""

OF_EACH = {"cost.txt", "rules.txt", "timeline.txt", "tree.txt"}
"""Files of each stack."""

LONG = 40
"""Lines of a text in a manifest from which on a digest stands for it."""


def test_the_resources_of_all_stacks() -> None:
    found = once(of_stacks(resources))
    head = "inputs   edges    options  type and name, in which stacks"
    lines = sorted((f"{line}, {stacks}" for line, stacks in found.items()), key=lambda line: (line[27:], line))
    assert_golden("stacks/resources.txt", "\n".join((head, *lines)))


def test_the_files_of_ours_in_all_stacks() -> None:
    found = once({stack: sorted(named([resource.inputs for resource in recorded(stack).resources])) for stack in STACKS})
    assets = {path.relative_to(LIBRARY).as_posix() for path in LIBRARY.rglob("assets/*") if path.is_file()}
    lines = (
        f"{digest((LIBRARY / name).read_text('utf-8'))} {name}, {found.get(name, 'none')}" for name in sorted(assets | {*found})
    )
    assert_golden("stacks/files.txt", "\n".join(("digest   file, in which stacks as it is", *lines)))


def test_the_manifests_of_some_stacks() -> None:
    assert_golden("stacks/manifests.yaml", sections(of_stacks(manifests, SHOWN), "---\n# "))


def test_the_roles_of_all_stacks() -> None:
    assert_golden("stacks/roles.txt", sections(of_stacks(roles)))


def test_the_user_data_of_all_stacks() -> None:
    assert_golden("stacks/user-data.txt", sections(of_stacks(user_data)))


@pytest.mark.parametrize("stack", STACKS)
def test_the_tree_of_a_stack(stack: str) -> None:
    assert_golden(f"stacks/{stack}/tree.txt", render_tree(recorded(stack), eks()))


@pytest.mark.parametrize("stack", STACKS)
def test_the_arithmetic_of_a_stack(stack: str, recorded_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert_golden(f"stacks/{stack}/rules.txt", "\n".join(arithmetic(stack)))


@pytest.mark.parametrize("stack", STACKS)
def test_the_cost_of_a_stack(stack: str) -> None:
    assert_golden(f"stacks/{stack}/cost.txt", "\n".join(bill(recorded(stack))))


def test_every_type_of_resource_is_in_a_manifest_or_above_one() -> None:
    types = {stack: {resource.type for resource in recorded(stack).resources} for stack in STACKS}
    assert set().union(*types.values()) == set().union(*(types[stack] for stack in SHOWN))


def test_no_golden_file_is_left_of_what_is_gone() -> None:
    folder = GOLDEN / "stacks"
    assert {path.name for path in folder.iterdir() if path.is_dir()} == set(STACKS)
    assert all({path.name for path in (folder / stack).iterdir()} == OF_EACH for stack in STACKS)


# -- nothing changes unseen ------------------------------------------------------------------------------------------------------


def resources(graph: Graph) -> Iterator[str]:
    """A line for each resource, then one for each other part of the document."""
    yield from (line(resource, graph.stack) for resource in graph.resources)
    found = graph.document()
    del found["resources"]
    yield from (f"{digest(value, graph.stack):<26} {key}" for key, value in found.items())


def line(resource: Resource, stack: str) -> str:
    """What it is, after digests of its inputs, of what it stands on, and of the rest but for its line in our code."""
    found = resource.document()
    del found["source"]
    inputs = digest(found.pop("inputs"), stack)
    edges = digest([found.pop(key) for key in ("parent", "provider", "dependencies", "propertyDependencies")], stack)
    shown = resource.urn.split("::", 2)[2].replace("eks-inference:index:", "")
    return f"{inputs} {edges} {digest(found, stack)} {anonymous(shown, stack)}"


def digest(value: Any, stack: str = "") -> str:
    """A hash of a value with files of ours by their names, without the name of the stack."""
    text = json.dumps(by_name(value) if stack else value, sort_keys=True)
    return sha256(anonymous(text, stack).encode()).hexdigest()[:8]


def anonymous(text: str, stack: str) -> str:
    """The text without the name of its stack, in which the same resources of two stacks differ."""
    return re.sub(rf"(?<![a-zA-Z0-9]){re.escape(stack)}(?![a-zA-Z0-9])", "<stack>", text) if stack else text


@pytest.mark.parametrize("stack", STACKS)
def test_any_change_of_a_resource_changes_its_line(stack: str) -> None:
    for one in recorded(stack).resources:
        inputs = [{**one.inputs, key: "other"} for key in one.inputs] + [{**one.inputs, "other": None}]
        changed: list[Resource] = [replace(one, inputs=each) for each in inputs]
        texts = ("urn", "type", "name", "parent", "provider")
        changed += [replace(one, **{name: f"{getattr(one, name)}-other"}) for name in texts]
        changed += [replace(one, **{name: not getattr(one, name)}) for name in ("custom", "remote")]
        changed += [replace(one, dependencies=(*one.dependencies, "other")), replace(one, options={**one.options, "protect": 0})]
        changed += [replace(one, property_dependencies={**one.property_dependencies, "other": ("other",)})]
        assert line(one, stack) not in {line(each, stack) for each in changed}


def test_only_a_whole_file_of_ours_is_there_by_its_name() -> None:
    name = "observability/assets/rules.yaml"
    rules, text = prometheus_plan.rules(), (LIBRARY / name).read_text("utf-8")
    assert by_name({"spec": rules, "data": [text]}) == {"spec": f"(file {name})", "data": [f"(file {name})"]}
    assert named({"spec": rules}) == named(text) == {name}
    other: dict[str, Any] = {
        "spec": {**rules, "groups": rules["groups"][1:]},
        "data": text + "#",
        "of": f"(file {name}x)",
        "empty": "",
    }
    assert by_name(other) == other
    assert not named(other)


def test_the_same_in_several_stacks_is_there_once() -> None:
    assert once({"a": ["one", "two"], "b": ["two", "three"]}) == {"one": "a", "two": "all", "three": "b"}
    assert anonymous("trn2-di-net, a/trn2-di, strn2-di, trn2-disk", "trn2-di") == "<stack>-net, a/<stack>, strn2-di, trn2-disk"


def test_an_update_tells_what_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROOT", "GOLDEN"):
        monkeypatch.setattr(golden, name, tmp_path)
    monkeypatch.setenv("UPDATE_GOLDEN", "1")
    assert_golden("new/lines.txt", "\n".join(map(str, range(100))))
    assert_golden("new/lines.txt", "0")
    told = [diff.splitlines()[-1] for diff in golden.written]
    golden.written.clear()
    assert told == ["43 more lines: git diff new/lines.txt"] * 2
    monkeypatch.delenv("UPDATE_GOLDEN")
    with pytest.raises(AssertionError, match=r"(?s)new/lines.txt changed.*\n-0\n\+1\n$"):
        assert_golden("new/lines.txt", "1")


# -- what a reviewer reads -------------------------------------------------------------------------------------------------------


def of_stacks(shown: Callable[[Graph], Iterable[str]], stacks: Sequence[str] = STACKS) -> Mapping[str, Iterable[str]]:
    """What a function shows of stacks, without their names."""
    return {stack: [anonymous(text, stack) for text in shown(recorded(stack))] for stack in stacks}


def manifests(graph: Graph) -> Iterator[str]:
    """Every Kubernetes object."""
    shortened = [replace(one, inputs=without_long_texts(by_name(one.inputs), graph.stack), source="") for one in graph.resources]
    return iter(re.split("^---\n", render_manifests(replace(graph, resources=tuple(shortened))), flags=re.MULTILINE)[1:])


def roles(graph: Graph) -> Iterator[str]:
    """Each role: who may take it, managed policies by name, and its own policies, a statement a line."""
    for role in graph.of_type("aws:iam/role:Role"):
        yield "\n".join((role.name, *_role(graph, role)))


def _role(graph: Graph, role: Resource) -> Iterator[str]:
    for statement in json.loads(role.inputs["assumeRolePolicy"])["Statement"]:
        yield f"  taken by {_statement(statement)}"
    for attached in graph.of_type("aws:iam/rolePolicyAttachment:RolePolicyAttachment"):
        if role.urn in attached.property_dependencies["role"]:
            yield f"  managed  {attached.inputs['policyArn']}"
    for policy in graph.of_type("aws:iam/rolePolicy:RolePolicy"):
        if role.urn in policy.property_dependencies["role"]:
            yield f"  policy   {policy.name}"
            yield from (f"    {_statement(one)}" for one in json.loads(policy.inputs["policy"])["Statement"])


def _statement(statement: dict[str, Any]) -> str:
    return json.dumps(statement, sort_keys=True)


def user_data(graph: Graph) -> Iterator[str]:
    """What nodes are told at their first start, of launch templates and of Karpenter's node classes, part by part."""
    for resource in graph.resources:
        encoded, plain = at(resource.inputs, "userData"), at(resource.inputs, "spec", "userData")
        if isinstance(encoded, str) or isinstance(plain, str):
            text = base64.b64decode(encoded).decode() if isinstance(encoded, str) else str(plain)
            parts = (part for part in email.message_from_string(text).walk() if not part.is_multipart())
            shown = (f"-- {part.get_content_type()}\n" + str(part.get_payload()).strip("\n") for part in parts)
            yield "\n".join((short_name(resource.urn), *shown))


def bill(graph: Graph) -> Iterator[str]:
    """Totals, each charge at its fewest, as deployed and at its most, what depends on use, and quotas."""
    found = estimated(graph)
    yield in_short(found)
    for line in found.lines:
        charge = line.charge
        amounts = " / ".join(f"{amount:g}" for amount in charge.amounts)
        yield f"{charge.part}, {charge.owner}: {charge.what}, {amounts} {charge.item} in {charge.region}"
    yield from (f"by use: {one.what}, {one.item}" for one, _ in found.by_use)
    yield from (f"not counted: {uncounted.shown}" for uncounted in found.uncounted)
    yield from (f"quota: {what}, {amount}; a new account has {new or 'an unknown number'}" for what, amount, new in quotas(graph))


def quotas(graph: Graph) -> Iterator[tuple[str, str, str]]:
    yield from (need.cells for need in needs(graph, estimated(graph)))


def arithmetic(stack: str) -> Iterator[str]:
    """What the rules worked out for the keys of the stack object."""
    report = judge(program(stack))
    assert not report.stopped
    for rule, judgement in report.verdict.judgements:
        if judgement.path and judgement.working:
            yield f"{rule.id} {'holds ' if judgement.holds else 'BROKEN'} {format_path(judgement.path)}"
            yield from (f"    {line}" for line in judgement.working)


def without_long_texts(value: Any, stack: str) -> Any:
    if isinstance(value, dict):
        return {key: without_long_texts(item, stack) for key, item in value.items()}
    if isinstance(value, list):
        return [without_long_texts(item, stack) for item in value]
    if isinstance(value, str) and value.count("\n") > LONG:
        return f"({value.count(chr(10))} lines, {digest(value, stack)})"
    return value
