"""The views of a recorded graph: tree, manifests, Mermaid. They serve any Pulumi program: this one has no component of ours."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulumi_aws as aws
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from demo_program import SECRETS
from golden import assert_golden
from odd_graphs import PLANTED, component, graph_of, kubernetes_object, odd_graphs, recorded, urn
from stackgraph.domain import Domain, Listing, Section
from stackgraph.graph import describe
from stackgraph.graph.document import STACK_TYPE, Graph, Resource
from stackgraph.graph.wording import shorten
from stackgraph.views.manifests import manifest, render_manifests
from stackgraph.views.mermaid import render_mermaid
from stackgraph.views.tree import Row, braced, render_tree


@pytest.fixture
def graph() -> Graph:
    return recorded()


# -- renderings a reviewer wants to see ------------------------------------------------------------------------------------------


def test_manifests(graph: Graph) -> None:
    assert_golden("preview/manifests.yaml", render_manifests(graph))


def test_mermaid(graph: Graph) -> None:
    assert_golden("preview/components.mmd", render_mermaid(graph))


def test_colour_adds_nothing_but_colour(graph: Graph) -> None:
    coloured = render_tree(graph, colour=True)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert coloured != bare
    assert [line.rstrip() for line in bare.splitlines()] == render_tree(graph).splitlines()


# -- what the program made secret ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("render", [render_tree, render_manifests, render_mermaid])
def test_no_view_shows_a_secret(graph: Graph, render: Callable[[Graph], str]) -> None:
    assert not [secret for secret in SECRETS if secret in render(graph)]


def test_plain_texts_in_a_secret_object_are_hidden_and_its_keys_shown() -> None:
    text = render_manifests(graph_of(kubernetes_object("core/v1:Secret", "a", data={"token": "aGVsbG8="})))
    assert yaml.safe_load(text)["data"] == {"token": "[secret]"}


# -- manifests -------------------------------------------------------------------------------------------------------------------


def test_objects_that_are_only_read_are_not_manifests() -> None:
    assert render_manifests(graph_of(kubernetes_object("core/v1:Namespace", "a", options={"read": "a"}))) == ""


# -- Mermaid ---------------------------------------------------------------------------------------------------------------------

_ID = r"[A-Za-z][A-Za-z0-9_]*"
_LABEL = r'"[^"<>&`\n]*(?:<br/>[^"<>&`\n]*)*"'
_LINES = {
    "node": re.compile(rf"\s+({_ID})\[{_LABEL}\](?::::opaque)?"),
    "box": re.compile(rf"\s+subgraph ({_ID})\[{_LABEL}\]"),
    "end": re.compile(r"\s+end"),
    "edge": re.compile(rf"  ({_ID}) (?:-->|-\.-) ({_ID})"),
    "style": re.compile(r"  classDef opaque stroke-dasharray: 5 5"),
}


def assert_is_a_flowchart(diagram: str) -> dict[str, list[tuple[str, ...]]]:
    """Every line is one of the kinds we write, boxes close, identifiers are made once, edges join what there is."""
    first, *lines = diagram.splitlines()
    assert first == "flowchart TB"
    found: dict[str, list[tuple[str, ...]]] = {kind: [] for kind in _LINES}
    for line in lines:
        kinds = [(kind, match) for kind, pattern in _LINES.items() if (match := pattern.fullmatch(line))]
        assert len(kinds) == 1, line
        found[kinds[0][0]].append(kinds[0][1].groups())
    assert len(found["box"]) == len(found["end"])
    identifiers = [made for (made,) in (*found["node"], *found["box"])]
    assert len(set(identifiers)) == len(identifiers)
    assert {end for edge in found["edge"] for end in edge} <= set(identifiers)
    return found


def test_components_in_components_are_boxes_and_names_are_harmless() -> None:
    diagram = render_mermaid(
        graph_of(
            component("end", type_="demo:index:Platform"),
            component('a "b"<c>', parent="end"),
            component("d", parent="end"),
            Resource(urn("vpc"), "aws:ec2/vpc:Vpc", "vpc", parent=urn('a "b"<c>')),
            Resource(urn("sub"), "aws:ec2/subnet:Subnet", "sub", parent=urn("d"), dependencies=(urn("vpc"),)),
            Resource(urn("loose"), "aws:s3/bucket:Bucket", "loose", parent=urn("end")),
        )
    )
    found = assert_is_a_flowchart(diagram)
    assert found["box"] == [("n_end",)]
    assert found["edge"] == [("n_a_b_c", "n_d")]
    assert '"1 AWS resource"' in diagram
    assert "#34;b#34;#60;c#62;" in diagram


def test_a_circle_of_components_stays_drawn() -> None:
    crossing = graph_of(
        component("a"),
        component("b"),
        Resource(urn("a1"), "aws:s3/bucket:Bucket", "a1", parent=urn("a")),
        Resource(urn("a2"), "aws:s3/bucket:Bucket", "a2", parent=urn("a"), dependencies=(urn("b1"),)),
        Resource(urn("b1"), "aws:s3/bucket:Bucket", "b1", parent=urn("b"), dependencies=(urn("a1"),)),
    )
    assert assert_is_a_flowchart(render_mermaid(crossing))["edge"] == [("n_a", "n_b"), ("n_b", "n_a")]


def test_a_large_graph_shows_outer_components_only() -> None:
    outer = [component(f"outer-{number}") for number in range(5)]
    inner = [component(f"inner-{number}", parent=f"outer-{number % 5}") for number in range(100)]
    found = assert_is_a_flowchart(render_mermaid(graph_of(*outer, *inner)))
    assert len(found["node"]) == 5
    assert not found["box"]


# -- words -----------------------------------------------------------------------------------------------------------------------


def test_every_aws_type_that_is_described_exists() -> None:
    known = Path(aws.__file__ or "").read_text()
    types = [type_ for type_ in (*describe._WORDS, *describe._TELLING) if type_.startswith("aws:")]
    assert types
    assert not [type_ for type_ in types if f'"{type_}"' not in known]


@pytest.mark.parametrize(
    ("type_", "inputs", "said"),
    [
        ("ec2/securityGroupRule", {"protocol": "-1", "cidrBlocks": ["10.0.0.0/8", "a"], "self": False}, "all 10.0.0.0/8, a"),
        ("ec2/securityGroupRule", {"protocol": "tcp", "fromPort": 1, "toPort": 2, "self": True}, "tcp 1–2 itself"),
        ("vpc/securityGroupIngressRule", {"ipProtocol": "tcp", "fromPort": 1, "toPort": 1, "cidrIpv4": "a"}, "tcp 1 from a"),
        ("vpc/securityGroupEgressRule", {"ipProtocol": "-1", "cidrIpv6": "::/0"}, "all to ::/0"),
        ("fsx/lustreFileSystem", {"storageCapacity": 1200, "deploymentType": "SCRATCH_2"}, "SCRATCH_2, 1200 GiB"),
        ("iam/role", {"assumeRolePolicy": "no JSON"}, ""),
        ("iam/role", {"assumeRolePolicy": '{"Statement": {"Principal": {"AWS": ["a", "b"], "Service": "c"}}}'}, "for a, b, c"),
    ],
)
def test_a_resource_is_told_by_what_it_does(type_: str, inputs: dict[str, Any], said: str) -> None:
    name = type_.rpartition("/")[2]
    found = Resource(urn("a"), f"aws:{type_}:{name[0].upper()}{name[1:]}", "a", inputs=inputs)
    assert describe.describe(found, {}) == said


# -- tree ------------------------------------------------------------------------------------------------------------------------


def test_a_domain_adds_sections_and_words() -> None:
    bucket = Resource(urn("a"), "aws:s3/bucket:Bucket", "a", inputs={"bucket": "kept"})

    def sections(graph: Graph) -> Iterator[Section]:
        rows = [Row((resource.name, "1 GiB"), {"holds": ["x", "y"]}) for resource in graph.resources]
        yield Section("Data", [Listing(("STORE", "SIZE"), rows)], ("Store",), [], ("all in all", "3 GiB"))
        yield Section("Nothing", [Listing(("STORE",), [])], ("Store",), [])

    domain = Domain(words={bucket.type: lambda inputs: f"holds {inputs['bucket']}"}, sections=sections)
    tree = render_tree(graph_of(bucket), domain)
    assert "s3.Bucket  a  holds kept" in tree
    assert "\n\nData\n  STORE  SIZE\n  a      1 GiB\n      holds x, y\n  all in all: 3 GiB\n" in tree
    assert "Nothing" not in tree
    assert "s3.Bucket  a  kept" in render_tree(graph_of(bucket))


def test_the_headline_adds_up(graph: Graph) -> None:
    headline = render_tree(graph).split("\n\n")[0]
    total, *parts = [int(number) for number in re.findall(r"(?<![.\d])\d+(?= )", headline.partition("\nreads")[0])]
    assert total == sum(parts)
    made = [r for r in graph.resources if r.type != STACK_TYPE and not r.is_default_provider and "read" not in r.options]
    assert total == len(made)


def test_every_resource_is_in_the_tree_or_counted(graph: Graph) -> None:
    tree = render_tree(graph, width=400).split("\n\nOutputs")[0]
    counts = Counter(r.type for r in graph.resources if not r.is_default_provider and r.type != STACK_TYPE)
    for type_, count in counts.items():
        label = describe.short_component_type(type_) if type_.startswith("demo:") else describe.short_type(type_)
        pattern = re.compile(rf"(?:(\d+) × |[ ─]|^){re.escape(label)}(?= |$)", re.MULTILINE)
        assert sum(int(many or 1) for many in pattern.findall(tree)) == count, type_


def test_components_stand_in_the_order_in_which_they_are_made(graph: Graph) -> None:
    order = re.findall(r"^(\w+)  \w+ +\d+ resources$", render_tree(graph), re.MULTILINE)
    assert order == ["net", "demo", "core", "inf2", "small", "servers"]


@pytest.mark.parametrize(
    ("names", "room", "shown"),
    [
        (["net-public-routes", "net-private-routes"], 60, "net-{public, private}-routes"),
        ([f"demo/chat-{number}" for number in range(10)], 30, "demo/chat-{0, 1, 2, … 7 more}"),
        (["one", "two"], 60, "one, two"),
        (["a-role", "a-role-policy"], 60, "a-role, a-role-policy"),
    ],
)
def test_names_write_what_they_share_once(names: list[str], room: int, shown: str) -> None:
    assert braced(names, room) == shown


@pytest.mark.parametrize("shown", ["arn:123", "arn…23", "ar…23", "a…", "…", ""])
def test_a_line_without_room_keeps_both_ends(shown: str) -> None:
    assert shorten("arn:123", len(shown)) == shown


def test_a_program_cannot_steer_the_terminal() -> None:
    tree = render_tree(graph_of(component("a\x1b[31m\nb"), outputs={"x\n": "\x1b]0;title\x07"}, warnings=("\x1b[2J",)))
    assert all(letter.isprintable() or letter == "\n" for letter in tree)


def test_a_command_among_the_outputs_can_be_copied_whole() -> None:
    command = "kubectl -n demo port-forward svc/" + "x" * 60
    assert f"\n      {command}\n" in render_tree(graph_of(outputs={"next": ["kubectl get nodes", command]}))


def test_views_need_neither_pulumi_nor_the_rest_of_the_library() -> None:
    modules = ", ".join(f"stackgraph.views.{name}" for name in ("mermaid", "tree"))
    code = (
        f"import sys, {modules}\n"
        "heavy = {'pulumi', 'yaml', 'pydantic', 'google'} & set(sys.modules)\n"
        "ours = {m for m in sys.modules if m.startswith('eks_inference')}\n"
        "assert not heavy | ours, heavy | ours\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


# -- any graph -------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@given(odd=odd_graphs(), width=st.integers(20, 160))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_graph_can_be_drawn(odd: Graph, width: int) -> None:
    tree, manifests, diagram = render_tree(odd, width=width), render_manifests(odd), render_mermaid(odd)
    assert PLANTED not in tree + manifests + diagram
    assert max(map(cell_len, tree.split("\n"))) <= max(width, 40)
    assert all(letter.isprintable() or letter == "\n" for letter in tree)
    assert (tree, manifests, diagram) == (render_tree(odd, width=width), render_manifests(odd), render_mermaid(odd))
    assert_is_a_flowchart(diagram)
    documents = [document for document in yaml.safe_load_all(manifests) if document is not None]
    objects = [r for r in odd.resources if describe.is_kubernetes_object(r) and not r.is_default_provider]
    assert len(documents) == len(objects)
    expected = [json.loads(json.dumps(manifest(resource))) for resource in objects]
    assert sorted(map(canonical, documents)) == sorted(map(canonical, expected))


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
