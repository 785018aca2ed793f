"""What a change does to the shipped stacks, in files that a reviewer reads. Sources (file and line) are left out of all of them.

``resources.txt`` misses nothing: it has a line for each resource, with a digest of each part of it, so that any change of any
property fails and names its resource. The other files say what stands there: the tree, and of the parts that matter most, roles,
user data, manifests, cost, time (test_timeline.py) and the arithmetic of the rules. One stack is there as the whole document.
``eks-inference diff`` shows the properties behind a digest.
"""

import base64
import email
import json
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from conftest import ROOT, STACKS, recorded
from eks_inference.faults import format_path
from eks_inference_tools.check.report import judge, short_name
from eks_inference_tools.cost.estimate import estimated
from eks_inference_tools.cost.quotas import needs
from eks_inference_tools.cost.words import in_short
from eks_inference_tools.domain import eks
from eks_inference_tools.program import program
from golden import GOLDEN, assert_golden
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at
from stackgraph.views.manifests import render_manifests
from stackgraph.views.tree import render_tree

WHOLE = "gpu-opt350m"
"""The smallest document."""

LONG = 20
"""Lines of a text in a manifest from which on a digest stands for it: files of ours, which show their changes themselves."""


@pytest.mark.parametrize("stack", STACKS)
def test_the_resources_of_a_stack(stack: str) -> None:
    assert_golden(f"stacks/{stack}/resources.txt", resources(recorded(stack)))


@pytest.mark.parametrize("stack", STACKS)
def test_the_tree_of_a_stack(stack: str) -> None:
    assert_golden(f"stacks/{stack}/tree.txt", render_tree(recorded(stack), eks()))


@pytest.mark.parametrize("stack", STACKS)
def test_the_roles_of_a_stack(stack: str) -> None:
    assert_golden(f"stacks/{stack}/roles.txt", "\n".join(roles(recorded(stack))))


@pytest.mark.parametrize("stack", STACKS)
def test_the_user_data_of_a_stack(stack: str) -> None:
    assert_golden(f"stacks/{stack}/user-data.txt", "\n".join(user_data(recorded(stack))))


@pytest.mark.parametrize("stack", STACKS)
def test_the_arithmetic_of_a_stack(stack: str, recorded_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert_golden(f"stacks/{stack}/rules.txt", "\n".join(arithmetic(stack)))


@pytest.mark.parametrize("stack", STACKS)
def test_the_manifests_of_a_stack(stack: str) -> None:
    graph = recorded(stack)
    shortened = [replace(one, inputs=without_long_texts(one.inputs), source="") for one in graph.resources]
    assert_golden(f"stacks/{stack}/manifests.yaml", render_manifests(replace(graph, resources=tuple(shortened))))


@pytest.mark.parametrize("stack", STACKS)
def test_the_cost_of_a_stack(stack: str) -> None:
    assert_golden(f"stacks/{stack}/cost.txt", "\n".join(bill(recorded(stack))))


def test_the_document_of_a_stack() -> None:
    text = json.dumps(document(recorded(WHOLE)), indent=1, sort_keys=True, ensure_ascii=False)
    assert_golden(f"stacks/{WHOLE}/graph.json", text)


def test_no_golden_file_is_left_of_a_stack_that_is_gone() -> None:
    assert {folder.name for folder in (GOLDEN / "stacks").iterdir() if folder.is_dir()} == set(STACKS)


# -- nothing changes unseen ------------------------------------------------------------------------------------------------------


def document(graph: Graph) -> dict[str, Any]:
    """The whole document but for lines of our code."""
    found = graph.document()
    for resource in found["resources"]:
        del resource["source"]
    return found


def resources(graph: Graph) -> str:
    """A line for each resource, then one for each other part of the document."""
    found = document(graph)
    del found["resources"]
    head = "inputs   edges    options  type and name"
    return "\n".join((head, *map(line, graph.resources), *(f"{digest(value):<26} {key}" for key, value in found.items())))


def line(resource: Resource) -> str:
    """What it is, after digests of its inputs, of what it stands on, and of the rest."""
    found = resource.document()
    del found["source"]
    inputs = digest(found.pop("inputs"))
    edges = digest([found.pop(key) for key in ("parent", "provider", "dependencies", "propertyDependencies")])
    shown = resource.urn.split("::", 2)[2].replace("eks-inference:index:", "")
    return f"{inputs} {edges} {digest(found)} {shown}"


def digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


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
        assert line(one) not in {line(each) for each in changed}


# -- what a reviewer reads -------------------------------------------------------------------------------------------------------


def roles(graph: Graph) -> Iterator[str]:
    """Each role: who may take it, managed policies by name, and its own policies, a statement a line."""
    for role in graph.of_type("aws:iam/role:Role"):
        yield role.name
        for statement in json.loads(role.inputs["assumeRolePolicy"])["Statement"]:
            yield f"  taken by {_statement(statement)}"
        for attached in graph.of_type("aws:iam/rolePolicyAttachment:RolePolicyAttachment"):
            if role.urn in attached.property_dependencies["role"]:
                yield f"  managed  {attached.inputs['policyArn']}"
        for policy in graph.of_type("aws:iam/rolePolicy:RolePolicy"):
            if role.urn in policy.property_dependencies["role"]:
                yield f"  policy   {policy.name}"
                yield from (f"    {_statement(one)}" for one in json.loads(policy.inputs["policy"])["Statement"])
        yield ""


def _statement(statement: dict[str, Any]) -> str:
    return json.dumps(statement, sort_keys=True)


def user_data(graph: Graph) -> Iterator[str]:
    """What nodes are told at their first start, of launch templates and of Karpenter's node classes, part by part."""
    found = False
    for resource in graph.resources:
        encoded, plain = at(resource.inputs, "userData"), at(resource.inputs, "spec", "userData")
        if isinstance(encoded, str) or isinstance(plain, str):
            text = base64.b64decode(encoded).decode() if isinstance(encoded, str) else str(plain)
            found = True
            yield f"== {short_name(resource.urn)}"
            for part in email.message_from_string(text).walk():
                if not part.is_multipart():
                    yield f"-- {part.get_content_type()}"
                    yield str(part.get_payload()).strip("\n")
            yield ""
    if not found:
        yield "none: every node starts as its image does"


def bill(graph: Graph) -> Iterator[str]:
    """Totals, each charge at its fewest, as deployed and at its most, what depends on use, and quotas."""
    found = estimated(graph)
    yield in_short(found)
    for line in found.lines:
        charge = line.charge
        amounts = " / ".join(f"{amount:g}" for amount in charge.amounts)
        yield f"{charge.part}, {charge.owner}: {charge.what}, {amounts} {charge.item} in {charge.region}"
    yield from (f"by use: {one.what}, {one.item}" for one, _ in found.by_use)
    yield from (f"not counted: {one.shown}" for one in found.uncounted)
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


def without_long_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_long_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_long_texts(item) for item in value]
    if isinstance(value, str) and value.count("\n") > LONG:
        return f"({value.count(chr(10))} lines, {digest(value)})"
    return value
