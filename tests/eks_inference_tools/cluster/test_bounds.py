"""The bounds of Kubernetes objects on a real API server: they are what it publishes, and what they refuse it refuses."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from covering_graphs import shipped_and_covering_graphs
from eks_inference_tools.check.value_rules import kubernetes_bounds
from eks_inference_tools.reading.pod_templates import pod_templates
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane, control_plane
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.world.admit import install_definitions
from eks_inference_tools.simulate.world.api_objects import ClusterObject, cluster_objects
from out_of_bounds import planted
from refresh import changes
from refresh.kubernetes_bounds import FILE, derived, rendered, schemas_of
from stackgraph.graph.document import Graph, Resource

pytestmark = pytest.mark.cluster

NOT_THERE = ("serviceAccountName", "priorityClassName")
"""What admission looks for, and this control plane has not."""

IN_THE_ADDRESS = (("metadata",), ("metadata", "name"), ("metadata", "namespace"))
"""What no request can be sent without."""

TOO_LONG = tuple(bound for bits in (32, 64) for bound in (2 ** (bits - 1), -(2 ** (bits - 1)) - 1))
"""Definitions of custom resources take numbers that the types of their controllers cannot hold. K8S019 does not."""


@pytest.fixture(scope="module")
def plane(toolchain: Toolchain) -> Iterator[ControlPlane]:
    with control_plane(toolchain) as plane:
        yield plane


@pytest.fixture(scope="module")
def graphs() -> tuple[Graph, ...]:
    return tuple(shipped_and_covering_graphs())


@pytest.fixture(scope="module")
def objects(plane: ControlPlane, graphs: tuple[Graph, ...]) -> tuple[ClusterObject, ...]:
    """Every object of the graphs, once however many have it. Their kinds and namespaces are in the control plane."""
    found = tuple({json.dumps(item.manifest): item for graph in graphs for item in cluster_objects(graph)}.values())
    install_definitions(plane, found)
    for namespace in sorted({item.namespace for item in found} - {""}):
        plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    return found


def test_the_bounds_are_derived_from_the_pinned_sources(
    plane: ControlPlane, toolchain: Toolchain, graphs: tuple[Graph, ...]
) -> None:
    now = rendered(derived(graphs, schemas_of(plane.api), toolchain.definitions()))
    assert not changes(FILE, now), "`make refresh TABLE=kubernetes_bounds` writes them anew"


def test_what_is_within_the_bounds_is_taken(plane: ControlPlane, objects: tuple[ClusterObject, ...]) -> None:
    refused = [cluster_object.title for cluster_object in objects if refusal_of(plane.api, cluster_object.manifest)]
    assert not refused


def test_what_is_out_of_bounds_is_refused(plane: ControlPlane, objects: tuple[ClusterObject, ...]) -> None:
    known = ((kubernetes_bounds()[f"{one.manifest['apiVersion']}/{one.kind}"]["schema"], one.manifest) for one in objects)
    taken = [
        f"{one.item['kind']}: {'.'.join(map(str, one.path))}: {one.value!r}"
        for one in planted(known)
        if one.path not in IN_THE_ADDRESS and one.value not in TOO_LONG and not refusal_of(plane.api, one.item)
    ]
    assert not taken, "\n".join(taken)


def refusal_of(api: Api, item: Mapping[str, Any]) -> str:
    """What the API server says of an object, or of a pod of one of its templates. Empty: it takes them."""
    try:
        api.apply(item, dry_run=True)
        for pod in pods_of(item):
            api.create(pod, dry_run=True)
    except (ApiRefusal, TypeError) as refusal:
        return str(refusal) or "refused"
    return ""


def pods_of(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    version = item["apiVersion"] if "/" in item["apiVersion"] else f"core/{item['apiVersion']}"
    owner = Resource(urn="owner", type=f"kubernetes:{version}:{item['kind']}", name="owner", inputs=item, custom=True)
    for pod_template in pod_templates(Graph("demo", "dev", (owner,))):
        spec = {key: value for key, value in pod_template.template["spec"].items() if key not in NOT_THERE}
        metadata = {**pod_template.template.get("metadata", {}), "generateName": "pod-", "namespace": "default"}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
