"""Provides graphs that every view must render: the demonstration program, hand-made ones, and ones no engine would produce."""

from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from demo_program import program
from stackgraph.graph import describe
from stackgraph.graph.document import STACK_TYPE, Graph, Resource
from stackgraph.recorder.recording import record


@cache
def recorded() -> Graph:
    """Returns the graph of the demonstration program."""
    root = Path(__file__).parents[2]
    return record(program, project="demo", stack="test", config={"aws:region": "us-west-2"}, root=root)


PLANTED = "Tr0ub4dor-planted"
_NAMES = ("a", "b", "net", "net-vpc", 'q"<>&|', "end", "é-ü", "", "x" * 120)
_INPUTS: tuple[str, ...] = ("spec", "metadata", "model", "data", "values", "kind")
_TOKENS = ("<unknown>", "[secret]", "<a.b>")
_KNOWN_TYPES = (
    *describe._WORDS,
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
    """Draws recorded resources with an arbitrary value somewhere in their inputs, and known types with arbitrary inputs.

    Parents and dependencies may be missing or circular. Every Secret contains ``PLANTED``.
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
    """Returns the value with one place in it, or the whole, replaced."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: _with_odd_places(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], _with_odd_places(draw, value[place]), *value[place + 1 :]]
    return draw(odd_values)


def urn(name: str) -> str:
    return f"urn:pulumi:s::p::t::{name}"


def component(name: str, *, parent: str = "", type_: str = "demo:index:Part", inputs: dict[str, Any] | None = None) -> Resource:
    return Resource(urn(name), type_, name, parent=urn(parent) if parent else "", custom=False, inputs=inputs or {})


def kubernetes_object(type_: str, name: str, *, options: dict[str, Any] | None = None, **inputs: Any) -> Resource:
    return Resource(urn(name), f"kubernetes:{type_}", name, inputs=inputs, options=options or {})


def graph_of(*resources: Resource, outputs: dict[str, Any] | None = None, warnings: tuple[str, ...] = ()) -> Graph:
    return Graph("p", "s", resources, outputs or {}, warnings)
