"""The views of a recorded graph: tree, manifests, Mermaid. They serve any Pulumi program: this one has no component of ours."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pulumi_aws as aws
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from demo_program import SECRETS, program
from eks_inference_tools.reading.facts import facts_of
from eks_inference_tools.reading.workloads import requested
from golden import assert_golden
from stackgraph.graph import describe, values
from stackgraph.graph.document import STACK_TYPE, Graph, Resource
from stackgraph.recorder import wire
from stackgraph.recorder.recording import record
from stackgraph.views.lines import braced
from stackgraph.views.manifests import manifest, render_manifests
from stackgraph.views.mermaid import render_mermaid
from stackgraph.views.tree import render_tree


@cache
def recorded() -> Graph:
    root = Path(__file__).parents[2]
    return record(program, project="demo", stack="test", config={"aws:region": "us-west-2"}, root=root)


@pytest.fixture
def graph() -> Graph:
    return recorded()


# -- renderings a reviewer wants to see ------------------------------------------------------------------------------------------


def test_tree(graph: Graph) -> None:
    assert_golden("preview/tree.txt", render_tree(graph))


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


def test_placeholders_are_those_of_the_recorder() -> None:
    assert (values.SECRET, values.UNKNOWN) == (wire.SECRET_TEXT, wire.UNKNOWN_TEXT)


# -- manifests -------------------------------------------------------------------------------------------------------------------


def test_manifests_are_the_recorded_objects_in_order(graph: Graph) -> None:
    documents = [document for document in yaml.safe_load_all(render_manifests(graph)) if document]
    places = [(d["metadata"].get("namespace", ""), d["kind"], d["metadata"]["name"]) for d in documents]
    assert places == sorted(places)
    recorded = [r.inputs for r in graph.resources if r.package == "kubernetes" and "helm" not in r.type]
    assert sorted(map(canonical, documents)) == sorted(map(canonical, recorded))


def test_a_chart_is_a_comment_with_its_values(graph: Graph) -> None:
    comment = render_manifests(graph).rpartition("---\n")[2]
    assert all(line.startswith("#") for line in comment.splitlines())
    assert "# version: 1.8.1" in comment
    assert "#     clusterName: demo" in comment


def test_a_text_of_several_lines_stays_readable(graph: Graph) -> None:
    assert "  serve.py: |\n    import vllm\n\n\n    def main():\n        vllm.run()\n" in render_manifests(graph)


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


def test_arrows_lead_from_what_comes_first_and_leave_out_what_follows(graph: Graph) -> None:
    edges = assert_is_a_flowchart(render_mermaid(graph))["edge"]
    assert ("n_net", "n_demo") in edges
    assert ("n_demo", "n_core") in edges
    assert ("n_net", "n_core") not in edges  # by way of demo
    assert ("n_core", "n_small") in edges


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


# -- facts -----------------------------------------------------------------------------------------------------------------------


def test_capacity(graph: Graph) -> None:
    core, accelerated, small = facts_of(graph).capacity
    assert (core.size, core.nodes, core.instance_types, core.interfaces) == ("2", 2, ("m6i.large",), "")
    assert (accelerated.size, accelerated.interfaces) == ("1 (1–3)", "8 EFA interfaces")
    assert accelerated.taints == small.taints == ("aws.amazon.com/neuron=true:NoSchedule",)
    assert (small.manager, small.families, small.capacity_types) == ("Karpenter", ("inf2",), ("spot", "on-demand"))
    assert (small.root_disk, small.requirements) == ("500Gi gp3 root disk", ("instance-size not 48xlarge",))


def test_workloads(graph: Graph) -> None:
    chat, worker, head = facts_of(graph).workloads
    assert (chat.title, chat.replicas, chat.accelerators) == (
        "Deployment demo/chat",
        "1–4 by HPA",
        {"aws.amazon.com/neuron": "4"},
    )
    assert (chat.cpu, chat.memory) == ("40.1", "100Gi")
    assert (worker.part, worker.replicas, worker.pods) == ("worker inf2", "1–3 by Ray", 1)
    assert (head.part, head.accelerators) == ("head", {})
    assert requested((chat, worker, head)) == {"aws.amazon.com/neuron": 5}


def test_models_of_components_and_of_pods_each_once(graph: Graph) -> None:
    found = {fact.model: (fact.owner, fact.owner_type) for fact in facts_of(graph).models}
    assert found == {
        "meta-llama/Llama-2-7b-hf": ("servers", "Servers"),
        "NousResearch/Meta-Llama-3-8B-Instruct": ("demo/llama", "RayService"),
    }


def test_a_model_belongs_to_the_innermost_component_that_names_it() -> None:
    found = graph_of(
        component("platform", inputs={"servers": {"a": {"model": "org/m"}}}),
        component("server", parent="platform", inputs={"model": {"id": "org/m"}, "max_model_len": 4096}),
    )
    (fact,) = facts_of(found).models
    assert (fact.owner, fact.settings) == ("server", {"max_model_len": "4096"})


@pytest.mark.parametrize(
    ("inputs", "model", "settings"),
    [
        ({"model": {"id": "org/m", "revision": "v1"}, "model_name": "m"}, "org/m", {"revision": "v1", "model_name": "m"}),
        ({"modelName": "m", "modelId": "org/m", "dtype": "auto"}, "org/m", {"dtype": "auto", "modelName": "m"}),
        ({"model_name": "org/m", "model": "org/m"}, "org/m", {}),
        ({"model_name": "m"}, "m", {}),
    ],
)
def test_a_component_names_a_model_once_whatever_it_calls_it(inputs: dict, model: str, settings: dict[str, str]) -> None:
    (fact,) = facts_of(graph_of(component("server", inputs=inputs))).models
    assert (fact.model, fact.settings) == (model, settings)


@pytest.mark.parametrize(
    ("container", "model"),
    [
        ({"args": ["--model", "org/m", "--port=8000"]}, "org/m"),
        ({"args": ["--model=org/m"]}, "org/m"),
        ({"command": ["bash", "-c", "exec vllm serve 'org/m' --port 8000"]}, "org/m"),
        ({"env": [{"name": "MODEL_ID", "value": "org/m"}]}, "org/m"),
        ({"env": [{"name": "MODEL_ID", "value": "[secret]"}]}, None),
        ({"command": ["bash", "-c", 'vllm serve "$MODEL" --port 8000']}, None),
    ],
)
def test_models_on_command_lines(container: dict[str, Any], model: str | None) -> None:
    pod = kubernetes_object("core/v1:Pod", "p", spec={"containers": [container]})
    assert [fact.model for fact in facts_of(graph_of(pod)).models] == ([model] if model else [])


def test_leader_and_workers_of_a_set_are_counted() -> None:
    pod = {"spec": {"containers": [{"resources": {"limits": {"aws.amazon.com/neuron": 16}}}]}}
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "leaderTemplate": pod, "workerTemplate": pod}}
    found = facts_of(graph_of(kubernetes_object("leaderworkerset.x-k8s.io/v1:LeaderWorkerSet", "pair", spec=spec))).workloads
    assert [(w.part, w.replicas, w.pods) for w in found] == [("leader", "2", 2), ("worker", "2 × 2", 4)]
    assert requested(found) == {"aws.amazon.com/neuron": 96}


@pytest.mark.parametrize(
    ("spec", "annotations", "outside", "type_"),
    [
        ({}, {}, False, "ClusterIP"),
        ({"clusterIP": "None"}, {}, False, "headless"),
        ({"type": "NodePort"}, {}, True, "NodePort"),
        ({"type": "LoadBalancer"}, {}, True, "LoadBalancer"),
        (
            {"type": "LoadBalancer"},
            {"service.beta.kubernetes.io/aws-load-balancer-scheme": "internal"},
            True,
            "LoadBalancer, internal",
        ),
        ("<unknown>", "[secret]", True, "<unknown>"),
    ],
)
def test_who_reaches_a_service(spec: Any, annotations: Any, outside: bool, type_: str) -> None:
    service = kubernetes_object("core/v1:Service", "s", spec=spec, metadata={"name": "s", "annotations": annotations})
    (endpoint,) = facts_of(graph_of(service)).endpoints
    assert (endpoint.outside, endpoint.type) == (outside, type_)


def test_a_cluster_is_public_unless_told_otherwise() -> None:
    found = facts_of(graph_of(Resource(urn("k"), "eks:index:Cluster", "k", custom=False, remote=True))).clusters
    assert [cluster.access for cluster in found] == ["endpoint public to 0.0.0.0/0"]


def test_every_aws_type_that_is_described_exists() -> None:
    known = Path(aws.__file__ or "").read_text()
    types = [type_ for type_ in (*describe._WORDS, *describe._PATHS, *describe._TELLING) if type_.startswith("aws:")]
    assert types
    assert not [type_ for type_ in types if f'"{type_}"' not in known]


# -- tree ------------------------------------------------------------------------------------------------------------------------


def test_the_headline_adds_up(graph: Graph) -> None:
    headline = render_tree(graph).split("\n\n")[0]
    total, *parts = [int(number) for number in re.findall(r"(?<![.\d])\d+(?= )", headline.partition("\nreads")[0])]
    assert total == sum(parts)
    made = [r for r in graph.resources if r.type != STACK_TYPE and not r.is_default_provider and "read" not in r.options]
    assert total == len(made)


def test_every_resource_is_in_the_tree_or_counted(graph: Graph) -> None:
    tree = render_tree(graph, width=400).split("\n\nClusters")[0]
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

PLANTED = "Tr0ub4dor-planted"
_NAMES = ("a", "b", "net", "net-vpc", 'q"<>&|', "end", "é-ü", "", "x" * 120)
_INPUTS: tuple[str, ...] = ("spec", "metadata", "model", "data", "values", "kind")
_TOKENS = ("<unknown>", "[secret]", "<a.b>")
_KNOWN_TYPES = (
    *describe._WORDS,
    *describe._PATHS,
    "aws:lb/loadBalancer:LoadBalancer",
    "demo:index:Component",
    "kubernetes:apps/v1:DaemonSet",
    "kubernetes:apps/v1:Deployment",
    "kubernetes:autoscaling/v2:HorizontalPodAutoscaler",
    "kubernetes:batch/v1:CronJob",
    "kubernetes:core/v1:Secret",
    "kubernetes:core/v1:Service",
    "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass",
    "kubernetes:karpenter.sh/v1:NodePool",
    "kubernetes:keda.sh/v1alpha1:ScaledObject",
    "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet",
    "kubernetes:networking.k8s.io/v1:Ingress",
    "kubernetes:ray.io/v1:RayService",
    "odd",
    "pulumi:providers:aws",
    STACK_TYPE,
)

odd_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(_TOKENS) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def odd_graphs(draw: st.DrawFn) -> Graph:
    """Recorded resources with anything at some place of their inputs, and resources of known types with anything as inputs.

    Parents and dependencies may be missing or lead in circles. Whatever stands in a Secret is planted.
    """
    resources = []
    for number in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            found = draw(st.sampled_from(recorded().resources))
            inputs: dict[str, Any] = {key: _with_odd_places(draw, value) for key, value in found.inputs.items()}
            type_, custom, remote = found.type, found.custom, found.remote
        else:
            type_, custom, remote = draw(st.sampled_from(_KNOWN_TYPES)), draw(st.booleans()), draw(st.booleans())
            inputs = draw(st.dictionaries(st.sampled_from(_INPUTS), odd_values))
        if type_ == "kubernetes:core/v1:Secret":
            inputs = {**inputs, "data": {"key": PLANTED}, "stringData": PLANTED}
        others = st.sampled_from([urn(str(other)) for other in range(7)])
        resources.append(
            Resource(
                urn(str(number)),
                type_,
                draw(st.sampled_from(_NAMES)),
                parent=draw(st.just("") | others),
                custom=custom,
                remote=remote,
                provider=draw(st.just("") | others),
                inputs=inputs,
                dependencies=tuple(draw(st.lists(others, max_size=3))),
                property_dependencies={"launchTemplate": tuple(draw(st.lists(others, max_size=1)))},
                options=draw(st.sampled_from(({}, {}, {"read": "id"}, {"protect": True}))),
                source=draw(st.sampled_from(("", "infra/__main__.py:3"))),
            )
        )
    outputs = draw(st.dictionaries(st.text(max_size=8), odd_values, max_size=3))
    return Graph("p", draw(st.sampled_from(_NAMES)), tuple(resources), outputs, tuple(draw(st.lists(st.text(), max_size=2))))


def _with_odd_places(draw: st.DrawFn, value: Any) -> Any:
    """The value with one place inside, or itself, replaced."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: _with_odd_places(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], _with_odd_places(draw, value[place]), *value[place + 1 :]]
    return draw(odd_values)


@given(odd=odd_graphs(), width=st.integers(20, 160))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


# -- graphs made by hand ---------------------------------------------------------------------------------------------------------


def urn(name: str) -> str:
    return f"urn:pulumi:s::p::t::{name}"


def component(name: str, *, parent: str = "", type_: str = "demo:index:Part", inputs: dict[str, Any] | None = None) -> Resource:
    return Resource(urn(name), type_, name, parent=urn(parent) if parent else "", custom=False, inputs=inputs or {})


def kubernetes_object(type_: str, name: str, *, options: dict[str, Any] | None = None, **inputs: Any) -> Resource:
    return Resource(urn(name), f"kubernetes:{type_}", name, inputs=inputs, options=options or {})


def graph_of(*resources: Resource, outputs: dict[str, Any] | None = None, warnings: tuple[str, ...] = ()) -> Graph:
    return Graph("p", "s", resources, outputs or {}, warnings)


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
