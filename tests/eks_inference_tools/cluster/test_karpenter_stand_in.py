"""A stack's nodes beside the real scheduler: pods in the place of charts, devices, and nodes that Karpenter starts."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.running import Running, followed
from conftest import recorded
from eks_inference.accelerators.neuron.plan import DEVICE_RESOURCE
from eks_inference.catalog.instances import instance_type
from eks_inference.place.placement import INSTANCE_TYPE_LABEL, POOL_LABEL, ZONE_LABEL, Placement
from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL, footprints
from eks_inference_tools.placing.started_nodes import managed_nodes, manifest
from eks_inference_tools.reading.known_messages import runbook
from eks_inference_tools.reading.live_objects import condition_of, labels_of, name_of
from eks_inference_tools.reading.object_kinds import DAEMON_SETS, NODE_CLASSES, NODE_POOLS, NODES, PODS
from eks_inference_tools.reading.rollouts import rows
from eks_inference_tools.simulate.control_plane.control_plane import control_plane
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.stand_ins.device_plugins import DevicePlugins
from eks_inference_tools.simulate.stand_ins.ebs import EbsVolumes
from eks_inference_tools.simulate.stand_ins.karpenter import Karpenter
from eks_inference_tools.simulate.stand_ins.loop import StandIns
from eks_inference_tools.simulate.world.api_objects import cluster_objects
from eks_inference_tools.simulate.world.schemas import definitions_for, kubernetes_schemas
from eks_inference_tools.verify.node_checks import karpenter_object
from stackgraph.graph.values import at

pytestmark = pytest.mark.cluster

STACK = "inf2-llama3"
POOL = "inferentia-inf2"

# What the pods of the stack's nodes need; all else waits for other parts of a simulation.
_KINDS = ("Namespace", "StorageClass", "ServiceAccount", "NodePool", "EC2NodeClass", "DaemonSet")


@pytest.fixture(scope="module")
def running(toolchain: Toolchain) -> Iterator[Running]:
    graph = recorded(STACK)
    objects = [item for item in cluster_objects(graph) if item.kind in _KINDS]
    with control_plane(toolchain) as plane:
        for definition in definitions_for(objects, toolchain.definitions(), kubernetes_schemas(plane.api)):
            plane.api.apply(definition.manifest)
        plane.processes.wait_until(
            lambda: all(serves(plane.api, one) for one in (NODE_POOLS, NODE_CLASSES)), seconds=120, what="CRDs"
        )
        for node in managed_nodes(graph):
            plane.api.create(manifest(node))
        karpenter = Karpenter(plane)
        karpenter.follow(graph)
        with StandIns(plane.api, [DevicePlugins(graph), EbsVolumes(), karpenter]) as stand_ins:
            for item in objects:
                plane.api.apply(item.manifest)
            for made in footprints(graph).values():
                for item in made:
                    plane.api.apply(item)
            yield Running(plane, stand_ins, seconds=120)


def serves(api: Api, resource: str) -> bool:
    try:
        return api.knows(resource) and api.list(resource) == []
    except ApiRefusal:  # its storage is about to be there
        return False


def is_ready(item: dict[str, Any]) -> bool:
    return (condition_of(item, "Ready") or {}).get("status") == "True"


def test_everything_that_charts_and_add_ons_run_finds_room_on_the_core_nodes(running: Running) -> None:
    def settled() -> bool:
        pods = [pod for pod in running.api.list(PODS) if STANDS_IN_FOR_LABEL in labels_of(pod)]
        # A DaemonSet that its controller has not met yet has no pods that could be waited for.
        met = all(at(item, "status", "observedGeneration") for item in running.api.list(DAEMON_SETS))
        return met and len(pods) > 30 and all(is_ready(pod) for pod in pods)

    running.until(settled, "pods of charts and add-ons")
    assert len(running.api.list(NODES)) == 3, "nothing of it made Karpenter start a node"
    controllers = {at(pod, "spec", "nodeName") for pod in running.pods(**{"app.kubernetes.io/name": "karpenter"})}
    assert len(controllers) == 2
    counts = {name_of(item): at(item, "status", "desiredNumberScheduled") for item in running.api.list(DAEMON_SETS)}
    assert counts["aws-node"] == counts["kube-prometheus-stack-prometheus-node-exporter"] == 3
    assert counts["dcgm-exporter"] == 0, "no node has GPUs"


def test_pools_and_classes_are_ready_as_verify_wants_it(running: Running) -> None:
    def verdicts() -> list[str]:
        return [karpenter_object(kind, item).verdict for kind in (NODE_POOLS, NODE_CLASSES) for item in running.api.list(kind)]

    running.until(lambda: verdicts() == ["ok"] * 6, "NodePools and EC2NodeClasses")


def server(name: str, **amounts: str) -> dict[str, Any]:
    container = {"name": "server", "image": "registry.example/server:1", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [container],
            "nodeSelector": {POOL_LABEL: POOL},
            "tolerations": [{"key": DEVICE_RESOURCE, "operator": "Exists"}],
        },
    }


def test_pods_that_find_no_node_get_one_of_the_smallest_type_that_takes_them_and_its_devices(running: Running) -> None:
    running.api.create(server("first", cpu="8", memory="64Gi", **{DEVICE_RESOURCE: "1"}))
    running.until(lambda: is_ready(running.api.get(PODS, "first", "default") or {}), "the first server")
    node = running.api.get(NODES, at(running.api.get(PODS, "first", "default"), "spec", "nodeName"))
    assert node is not None
    assert (labels_of(node)[INSTANCE_TYPE_LABEL], labels_of(node)["karpenter.sh/nodepool"]) == ("inf2.8xlarge", POOL)
    assert at(node, "status", "allocatable", DEVICE_RESOURCE) == "1"

    # Its one device is taken: two that ask for six together get one node for both.
    for name in ("second", "third"):
        running.api.create(server(name, cpu="8", memory="64Gi", **{DEVICE_RESOURCE: "3"}))
    running.until(
        lambda: all(is_ready(running.api.get(PODS, name, "default") or {}) for name in ("second", "third")), "the other servers"
    )
    started = [node for node in running.api.list(NODES) if labels_of(node).get("karpenter.sh/nodepool")]
    assert sorted(labels_of(node)[INSTANCE_TYPE_LABEL] for node in started) == ["inf2.24xlarge", "inf2.8xlarge"]


def test_a_pod_that_is_too_large_for_every_type_starts_nothing_and_says_so(running: Running) -> None:
    before = len(running.api.list(NODES))
    running.api.create(server("giant", cpu="500"))

    def said() -> bool:
        pod = running.api.get(PODS, "giant", "default") or {}
        return (condition_of(pod, "PodScheduled") or {}).get("reason") == "Unschedulable"

    running.until(said, "the scheduler's word")
    # A pod that comes later has had its turn: the other had one before or with it.
    running.api.create(server("late", cpu="8", memory="64Gi", **{DEVICE_RESOURCE: "6"}))
    running.until(lambda: is_ready(running.api.get(PODS, "late", "default") or {}), "the late server")
    assert len(running.api.list(NODES)) == before + 1


def of_karpenter(running: Running) -> dict[str, dict[str, Any]]:
    return {name_of(node): node for node in running.api.list(NODES) if labels_of(node).get("karpenter.sh/nodepool") == POOL}


def events_of(running: Running, pod: str) -> list[str]:
    return [event["message"] for event in running.api.list("events", "default") if event["involvedObject"].get("name") == pod]


def said(type_: str, *path: str) -> str:
    """What `diff` says follows a change of a property."""
    return next(row.then for row in rows() if row.named(f"kubernetes:{type_}", path))


def test_nodes_without_pods_go_and_those_with_pods_stay(running: Running) -> None:
    pool = running.api.get(NODE_POOLS, POOL)
    assert pool is not None
    assert len(of_karpenter(running)) > 1
    for name in ("second", "third", "late"):
        running.api.delete(PODS, name, "default")
    # By default, a tenth of the nodes go at a time, which takes half a minute each.
    running.api.patch(pool, {"spec": {"disruption": {"consolidateAfter": "1s", "budgets": [{"nodes": "100%"}]}}})
    running.until(lambda: len(of_karpenter(running)) == 1, "consolidation")
    (kept,) = of_karpenter(running)
    assert kept == at(running.api.get(PODS, "first", "default"), "spec", "nodeName")
    # What the runbook asks of a cluster that costs too much: the node, its type, its pool, and the pod that keeps it.
    assert re.search(rf"{kept} .* inf2\.8xlarge +{POOL}", followed(running.plane, "cost", "get nodes -L"))
    assert re.search(rf"inf2\.8xlarge .* {kept} ", followed(running.plane, "cost", "get nodeclaims"))
    assert re.search(r"default +first ", followed(running.plane, "cost", "describe node", NODE=kept))
    running.api.patch(pool, {"spec": {"disruption": {"consolidateAfter": "Never"}}})


def test_nodes_drift_by_what_diff_says_rolls_them_and_by_nothing_else(running: Running) -> None:
    def drifted() -> set[str]:
        claims = running.api.list("nodeclaims.karpenter.sh")
        return {name_of(claim) for claim in claims if (condition_of(claim, "Drifted") or {}).get("status") == "True"}

    pool, class_ = running.api.get(NODE_POOLS, POOL), running.api.get(NODE_CLASSES, POOL)
    assert pool is not None
    assert class_ is not None
    # Disruption waits, so that what drifts stays there.
    running.api.patch(pool, {"spec": {"weight": 7, "disruption": {"budgets": [{"nodes": "0"}]}}})
    assert said("karpenter.sh/v1:NodePool", "spec", "weight") == "nothing"
    first = set(of_karpenter(running))
    assert first
    running.api.patch(class_, {"spec": {"tags": {"team": "a"}}})
    assert said("karpenter.k8s.aws/v1:EC2NodeClass", "spec", "tags", "team") == "roll"
    running.until(lambda: drifted() >= first, "drift by a tag")
    running.api.patch(class_, {"spec": {"tags": {"team": None}}})
    running.until(lambda: not drifted(), "no drift by a weight, nor by a tag that is as it was")

    running.api.patch(pool, {"spec": {"template": {"metadata": {"labels": {"team": "a"}}}}})
    assert said("karpenter.sh/v1:NodePool", "spec", "template", "metadata", "labels", "team") == "roll"
    running.until(lambda: drifted() >= first, "drift by a label")
    assert set(of_karpenter(running)) == first, "the budget lets none go"
    running.api.patch(pool, {"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}})
    running.until(lambda: not first & set(of_karpenter(running)), "the node of before goes")
    (successor,) = of_karpenter(running).values()
    assert labels_of(successor)["team"] == "a"


def test_pods_go_to_their_next_place_while_the_first_has_no_capacity_and_not_before(running: Running) -> None:
    """By the terms that a server with alternatives has. The first place is the dearer one: Karpenter alone would not take it."""
    zone = labels_of(next(node for node in running.api.list(NODES) if POOL_LABEL in labels_of(node)))[ZONE_LABEL]
    dear, cheap = (instance_type(f"inf2.{size}") for size in ("24xlarge", "8xlarge"))
    behind = Placement(POOL, cheap, {POOL_LABEL: POOL, INSTANCE_TYPE_LABEL: cheap.name})
    here = {POOL_LABEL: POOL, INSTANCE_TYPE_LABEL: dear.name, ZONE_LABEL: zone}
    affinity = Placement(POOL, dear, here, others=(behind,)).scheduling()["affinity"]

    def create(name: str, **placed: Any) -> None:
        for node in of_karpenter(running).values():  # nodes that stand are taken in any order
            running.api.patch(node, {"spec": {"unschedulable": True}})
        pod = server(name, cpu="8", memory="64Gi", **{DEVICE_RESOURCE: "1"})
        running.api.create({**pod, "spec": {**pod["spec"], **placed}})

    def type_of(name: str) -> str:
        create(name, nodeSelector={}, affinity=affinity)
        running.until(lambda: is_ready(running.api.get(PODS, name, "default") or {}), name)
        node = running.api.get(NODES, at(running.api.get(PODS, name, "default"), "spec", "nodeName"))
        return labels_of(node or {})[INSTANCE_TYPE_LABEL]

    assert type_of("with-capacity") == dear.name
    in_zone = next(node for node in running.api.list(NODES) if labels_of(node).get(ZONE_LABEL) == zone)
    running.api.patch(in_zone, {"metadata": {"labels": {"eks-inference/lost": "zone"}}})
    # Without another place it waits, and Karpenter says why.
    create("alone", nodeSelector=here)
    page = "docs/runbook/no-capacity.md"
    running.until(lambda: page in [runbook(words)[0] for words in events_of(running, "alone")], "the word of Karpenter")
    assert type_of("without-capacity") == cheap.name
    assert cheap.name in followed(running.plane, "no-capacity", "get nodeclaims")
