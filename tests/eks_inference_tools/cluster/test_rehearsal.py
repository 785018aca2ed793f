"""Pairs of revisions with a known end, rehearsed on a real control plane: hangs and outages are told, clean changes are not."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import pytest

from cluster.test_edits import rehearsal_of
from conftest import ROOT
from edits import CHAT, EDITS, NEURON, OPEN_WEBUI, SEQS, TWO, pool, server
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.rehearsal.text import render_text
from eks_inference_tools.simulate.rollout.changes import with_other_images
from readme import block
from stackgraph.graph.document import Graph
from variants import recorded_with

pytestmark = pytest.mark.cluster

STACK = "smoke-gpu"
PAGE = ROOT / "docs" / "rehearse.md"


@dataclass(frozen=True)
class Pair:
    """``shows`` are words of the report. ``few``: in quick runs. ``unsaid``: ``diff`` does not know it.

    ``graphs`` records the base and the head, which takes too long for every run that only collects this file.
    """

    change: str
    graphs: Callable[[], tuple[Graph, Graph]]
    shows: tuple[str, ...] = ()
    few: bool = False
    unsaid: bool = False


def of(has: Mapping[str, Any], edit: Mapping[str, Any] | None = None) -> Callable[[], tuple[Graph, Graph]]:
    return lambda: (stack(has), stack({**has, **(edit or {})}))


def stack(has: Mapping[str, Any] = MappingProxyType({}), name: str = STACK) -> Graph:
    return recorded_with(dict(has), name)


def of_plain(
    change: Callable[[Graph], Graph], has: Mapping[str, Any] = MappingProxyType({})
) -> Callable[[], tuple[Graph, Graph]]:
    return lambda: (stack(has), change(stack(has)))


def both(
    change: Callable[[Graph], Graph], base: Mapping[str, Any], head: Mapping[str, Any], name: str = STACK
) -> Callable[[], tuple[Graph, Graph]]:
    return lambda: (change(stack(base, name)), change(stack(head, name)))


def with_inputs(graph: Graph, kind: str, change: Callable[[dict[str, Any]], None]) -> Graph:
    """The graph with other inputs of the objects of a kind."""
    resources = []
    for resource in graph.resources:
        if resource.type.endswith(f":{kind}"):
            inputs = {**resource.inputs, "spec": dict(resource.inputs["spec"])}
            change(inputs["spec"])
            resource = replace(resource, inputs=inputs)
        resources.append(resource)
    assert [*resources] != [*graph.resources]
    return replace(graph, resources=tuple(resources))


def blocked(graph: Graph) -> Graph:
    def none_may_go(spec: dict[str, Any]) -> None:
        spec.pop("minAvailable", None)
        spec["maxUnavailable"] = 0

    return with_inputs(graph, "PodDisruptionBudget", none_may_go)


def unforced(graph: Graph) -> Graph:
    """The graph with node groups that EKS gives up to update where a pod cannot be evicted."""
    groups = {one.urn: {**one.inputs, "forceUpdateVersion": False} for one in graph.resources if one.type.endswith(":NodeGroup")}
    return replace(graph, resources=tuple(replace(one, inputs=groups.get(one.urn, one.inputs)) for one in graph.resources))


def without_namespace(graph: Graph, name: str) -> Graph:
    """What is left of a program that no longer makes the namespace of its objects."""
    (gone,) = (one for one in graph.resources if one.type.endswith(":Namespace") and one.inputs["metadata"]["name"] == name)
    return _without(graph, gone.urn)


def _without(graph: Graph, urn: str) -> Graph:
    def cut(one: Any) -> Any:
        below = {key: tuple(u for u in urns if u != urn) for key, urns in one.property_dependencies.items()}
        options = {key: value for key, value in one.options.items() if (key, value) != ("deletedWith", urn)}
        return replace(
            one, dependencies=tuple(u for u in one.dependencies if u != urn), property_dependencies=below, options=options
        )

    return replace(graph, resources=tuple(cut(resource) for resource in graph.resources if resource.urn != urn))


def with_widgets(graph: Graph, *finalizers: str, defined: bool = True) -> Graph:
    """The graph with an object of a kind that the program itself defines, or no longer."""
    (like,) = (one for one in graph.resources if one.type.endswith(":Namespace") and one.inputs["metadata"]["name"] == "qwen3")
    names = {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}

    def made(of: str, kind: str, inputs: dict[str, Any], *after: str) -> Any:
        type_, urn = f"kubernetes:{of}:{kind}", like.urn.rpartition("$")[0] + f"$kubernetes:{of}:{kind}::{kind.lower()}"
        inputs = {"apiVersion": of, "kind": kind, **inputs}
        return replace(like, urn=urn, name=kind.lower(), type=type_, inputs=inputs, dependencies=after, property_dependencies={})

    named = {"metadata": {"name": "widgets.example.com"}, "spec": spec}
    definition = made("apiextensions.k8s.io/v1", "CustomResourceDefinition", named)
    held = {"metadata": {"name": "a", "namespace": "default", "finalizers": [*finalizers]}}
    widget = made("example.com/v1", "Widget", held, *((definition.urn,) if defined else ()))
    return replace(graph, resources=(*graph.resources, *((definition,) if defined else ()), widget))


def with_another_claim(graph: Graph) -> Graph:
    return with_inputs(graph, "PersistentVolumeClaim", lambda spec: spec.update(storageClassName="other"))


def with_another_selector(graph: Graph) -> Graph:
    """The graph with a label that the selectors of Deployments ask for too, which nothing may change later."""

    def select(spec: dict[str, Any]) -> None:
        labels = {**spec["selector"]["matchLabels"], "generation": "2"}
        metadata = {**spec["template"]["metadata"], "labels": {**spec["template"]["metadata"]["labels"], **labels}}
        spec.update(selector={"matchLabels": labels}, template={**spec["template"], "metadata": metadata})

    return with_inputs(graph, "Deployment", select)


def of_an_old_api(graph: Graph) -> Graph:
    """The graph with budgets of an API that Kubernetes has not had since 1.25."""
    old = "policy/v1beta1"
    return replace(
        graph,
        resources=tuple(
            replace(resource, type=f"kubernetes:{old}:PodDisruptionBudget", inputs={**resource.inputs, "apiVersion": old})
            if resource.type.endswith(":PodDisruptionBudget")
            else resource
            for resource in graph.resources
        ),
    )


def of_one_device(graph: Graph) -> Graph:
    return with_inputs(graph, "ResourceQuota", lambda spec: spec.update(hard={"requests.nvidia.com/gpu": "1"}))


def standing(graph: Graph) -> Graph:
    """The graph with pools of Karpenter whose budget lets no node go."""
    return with_inputs(
        graph, "NodePool", lambda spec: spec.update(disruption={**spec["disruption"], "budgets": [{"nodes": "0"}]})
    )


def parts(text: str) -> list[str]:
    """Without the names that a controller made up."""
    return re.sub(r"qwen3-[0-9a-f]+-\w+", "qwen3-HASH", text).split("[…]\n")


SURGE, ROOM = server("qwen3", surge=1), pool("gpu", size=2)
AGAIN = {"clients": {"smoke_test": {"run": "again"}}}
KARPENTER = "inf2-llama3"
LABELLED = pool(NEURON, extra_labels={"team": "ml"})
SMALLER = {"clients": {"open_webui": {"volume_gib": 10}}}
LARGER_DISKS = {**TWO, **pool("gpu", size=2, root_volume_gib=200)}
TWO_CHANGED = {**TWO, **server("qwen3", replicas=2, max_num_seqs=128)}
SURGE_CHANGED = server("qwen3", surge=1, max_num_seqs=128)

PAIRS = (
    Pair(
        "an upgrade that no node has room for",
        of(SURGE, SURGE_CHANGED),
        ("Deployment qwen3/qwen3 waits: .*", "Insufficient nvidia.com/gpu"),
        few=True,
    ),
    Pair(
        "a budget that lets no pod go, without force",
        both(lambda graph: unforced(blocked(graph)), TWO, LARGER_DISKS),
        (
            "waits: nodes that are not drained .*",
            "Cannot evict pod as it would violate the pod's disruption budget",
            "Agrees diff says: nodes of smoke-gpu-gpu-nodes: PodDisruptionBudget qwen3/qwen3 lets no pod",
        ),
    ),
    Pair("a budget that EKS overrides", both(blocked, TWO, LARGER_DISKS)),
    Pair("another setting of the only pod", of({}, SEQS), ("qwen3 stops 0 s after the beginning, for 16 s or more",)),
    Pair(
        "another image on a pool of one node",
        of_plain(with_other_images),
        ("qwen3 stops .* for 3 min 48 s", "runs a second time"),
    ),
    Pair(
        "a namespace that goes before its objects",
        of_plain(lambda graph: without_namespace(graph, "qwen3")),
        ("qwen3 stops .* does not come back", "Deployment qwen3/qwen3 was removed with something else"),
    ),
    Pair(
        "a definition that leaves before its objects",
        lambda: (with_widgets(stack()), with_widgets(stack(), defined=False)),
        ("Widget default/a was removed with something else",),
    ),
    Pair(
        "a definition with objects that a controller holds, which is gone",
        lambda: (with_widgets(stack(), "example.com/gone"), with_widgets(stack(), "example.com/gone", defined=False)),
        ("CustomResourceDefinition widgets.example.com waits: it is not gone yet, held by customresourcecleanup",),
        unsaid=True,
    ),
    Pair(
        "a claim that shrinks",
        lambda: (stack(OPEN_WEBUI), stack(SMALLER)),
        ("PersistentVolumeClaim openwebui/open-webui is refused: .* can not be less",),
    ),
    Pair(
        "a claim of another class",
        of_plain(with_another_claim, OPEN_WEBUI),
        ("PersistentVolumeClaim openwebui/open-webui waits: it is not gone yet, held by kubernetes.io/pvc-protection",),
    ),
    Pair("another selector", of_plain(with_another_selector), ("qwen3 stops 0 s after the beginning, for 16 s or more",)),
    Pair(
        "an API that is gone",
        of_plain(of_an_old_api),
        ("is refused: the API server knows no .* of policy/v1beta1",),
        unsaid=True,
    ),
    Pair(
        "a quota that lets in no second pod",
        both(of_one_device, {**SURGE, **ROOM}, {**ROOM, **SURGE_CHANGED}),
        ("Deployment qwen3/qwen3 waits: .* exceeded quota: accelerators",),
        unsaid=True,
    ),
    Pair("another namespace", of({}, server("qwen3", namespace="other")), ("qwen3 stops", "smoke-test.* runs a second time")),
    Pair(
        "another name without nodes for both",
        of({}, {"servers": {"qwen3": None, "chat": CHAT}}),
        ("Deployment chat/chat waits: .*", "Insufficient nvidia.com/gpu"),
    ),
    Pair(
        "a router that no node has room for",
        next(edit for edit in EDITS if "load_test" in edit.has).graphs,
        ("Deployment disaggregated/llama3-70b-router waits: .*", "Insufficient cpu"),
    ),
    Pair("nodes of Karpenter that drift and may not go", both(standing, {}, LABELLED, KARPENTER)),
    Pair("nodes of Karpenter that drift", both(lambda graph: graph, {}, LABELLED, KARPENTER), ("vllm-llama3-inf2 stops",)),
    Pair("a Job that runs again", of({}, AGAIN), ("smoke-test.* runs a second time",)),
    Pair("another setting of two servers", of(TWO, TWO_CHANGED), few=True),
    Pair("a label of a pool that nobody uses", of({}, pool("gpu", extra_labels={"team": "ml"}))),
    Pair("a claim that grows", of(OPEN_WEBUI, {"clients": {"open_webui": {"volume_gib": 40}}})),
    Pair("metrics that come", of({}, {"observability": {"prometheus": {}, "dcgm_exporter": {}}})),
    Pair("other addresses", of({}, {"cluster": {"endpoint": {"public_access_cidrs": ["203.0.113.0/24"]}}})),
    Pair("a later consolidation", both(lambda graph: graph, {}, pool(NEURON, consolidate_after="600s"), KARPENTER)),
    Pair("room for one more", of({**SURGE, **ROOM}, {**ROOM, **SURGE_CHANGED})),
)
CLEAN = {pair.change for pair in PAIRS if not pair.shows} | {"a Job that runs again"}


@pytest.mark.parametrize(
    "pair", [one for one in PAIRS if one.few or os.environ.get("EDITS") == "all"], ids=lambda pair: pair.change
)
def test_a_planted_change_ends_as_known(pair: Pair, toolchain: Toolchain):
    """``EDITS=all`` rehearses all of them."""
    saw = rehearsal_of(*pair.graphs(), toolchain)
    text = render_text(saw)
    told = re.sub(r"\s+", " ", text)
    if pair is PAIRS[0]:
        assert [part for part in parts(block("text", "Rehearsing a change", PAGE).text) if part not in parts(text)[0]] == []
    assert saw.is_well == (pair.change in CLEAN)
    for words in pair.shows:
        assert re.search(words, told), told
    assert any(foretold.verdict == "differs" for foretold in saw.foretold) == pair.unsaid
