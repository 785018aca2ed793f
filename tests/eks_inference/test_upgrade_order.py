"""A new Kubernetes minor version: what it changes, and in which order `pulumi up` gets to it.

`pulumi up` changes a resource after everything it stands on, so the edges that make creation and deletion right are the order of
an upgrade too. Kubernetes' version skew policy decides what the order must be: kube-proxy, kube-scheduler and kubelets are never
newer than the control plane, and may be older.

The second scheduler runs on the core pool and cannot be made before it, so it cannot be upgraded before it either; kubelets and
kube-scheduler do not mind. Nodes of Karpenter's pools are not of this order: their image is an alias that follows the control
plane, and Karpenter replaces them as it finds them drifted, as far as disruption budgets let it.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from conftest import recorded
from eks_inference.catalog import versions
from graphs import stands_on
from stackgraph.graph.document import Graph, Resource
from stackgraph.problems import ProgramError
from variants import recorded_with

STACK = "inf2-llama3"
BEFORE, AFTER = "1.35", "1.36"
SCHEDULER = "inf2-llama3-neuron-scheduler-scheduler-deployment"


@cache
def upgraded() -> Graph:
    return recorded_with({"cluster": {"version": AFTER}})


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if steps is None:
        yield path, value
    else:
        for step, item in steps:
            yield from leaves(item, (*path, step))


def changes() -> dict[tuple[str, str], tuple[Any, Any]]:
    """Resource and input → value before and after, of everything custom that the new version changes."""
    before, after = recorded(STACK), upgraded()
    assert before.by_urn.keys() == after.by_urn.keys(), "an upgrade makes and deletes nothing"
    found = {}
    for urn, old in before.by_urn.items():
        new = after.by_urn[urn]
        assert (old.dependencies, old.options) == (new.dependencies, new.options)
        if old.custom or old.remote:
            was, now = dict(leaves(dict(old.inputs))), dict(leaves(dict(new.inputs)))
            for path in sorted(was.keys() | now.keys(), key=str):
                if was.get(path) != now.get(path):
                    found[old.name, ".".join(map(str, path))] = (was.get(path), now.get(path))
    return found


def addon(graph: Graph, name: str) -> Resource:
    (found,) = [r for r in graph.of_type("aws:eks/addon:Addon") if r.inputs["addonName"] == name]
    return found


def control_plane(graph: Graph) -> Resource:
    (found,) = graph.of_type("eks:index:Cluster")
    return found


@pytest.mark.thorough
def test_a_new_minor_version_changes_versions_and_nothing_else():
    pinned = {name: (versions.addon(name, BEFORE), versions.addon(name, AFTER)) for name in ("kube-proxy", "metrics-server")}
    release = tuple(versions.ami_release("AL2023_x86_64_STANDARD", version) for version in (BEFORE, AFTER))
    scheduler = tuple(versions.image("kube-scheduler", version) for version in (BEFORE, AFTER))
    assert changes() == {
        ("inf2-llama3-control-plane", "version"): (BEFORE, AFTER),
        ("inf2-llama3-kube-proxy", "addonVersion"): pinned["kube-proxy"],
        ("inf2-llama3-addons-metrics-server", "addonVersion"): pinned["metrics-server"],
        ("inf2-llama3-core-nodes", "version"): (BEFORE, AFTER),
        ("inf2-llama3-core-nodes", "releaseVersion"): release,
        (SCHEDULER, "spec.template.spec.containers.0.image"): scheduler,
    }


def test_whatever_has_a_version_comes_after_the_control_plane(shipped):
    for type_ in ("aws:eks/addon:Addon", "aws:eks/nodeGroup:NodeGroup", "kubernetes:helm.sh/v3:Release"):
        for resource in shipped.of_type(type_):
            assert stands_on(shipped, resource, control_plane(shipped)), resource.name


def test_node_add_ons_come_before_the_nodes(shipped):
    for name in ("vpc-cni", "kube-proxy", "eks-pod-identity-agent"):
        for group in shipped.of_type("aws:eks/nodeGroup:NodeGroup"):
            assert stands_on(shipped, group, addon(shipped, name))


def test_every_add_on_with_pods_comes_after_the_core_nodes(shipped):
    (core,) = [g for g in shipped.of_type("aws:eks/nodeGroup:NodeGroup") if g.inputs["labels"]["eks-inference/pool"] == "core"]
    for resource in shipped.of_type("aws:eks/addon:Addon"):
        if resource.inputs["addonName"] not in ("vpc-cni", "kube-proxy", "eks-pod-identity-agent"):
            assert stands_on(shipped, resource, core), resource.name


@pytest.mark.parametrize("stack", ["trn2-di", "trn2-di-pair"])
def test_a_pinned_image_changes_together_with_the_version(stack):
    with pytest.raises(ProgramError, match=r"POO003: the release is for another Kubernetes version"):
        recorded_with({"pools": {"trn2": {"ami": {"kind": "release", "release_version": "1.34.2-20251217"}}}}, stack)
