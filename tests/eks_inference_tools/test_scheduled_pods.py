"""Where pods landed, from made-up lists as an API server answers them."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from conftest import recorded
from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference.place.placement import INSTANCE_TYPE_LABEL, POOL_LABEL
from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL
from eks_inference_tools.placing.started_nodes import ZONE_LABEL
from eks_inference_tools.reading.devices import RESOURCE_CLAIMS, RESOURCE_SLICES
from eks_inference_tools.reading.object_kinds import LWS_GROUP_INDEX_LABEL, LWS_NAME_LABEL, LWS_WORKER_INDEX_LABEL
from eks_inference_tools.simulate.stand_ins.ray_cluster import cluster_pods, wanted_cluster
from eks_inference_tools.simulate.world.api_objects import cluster_objects
from eks_inference_tools.simulate.world.scheduled_pods import DEVICES_ANNOTATION, READS, ScheduledPods, scheduled_pods

Object = dict[str, Any]

NOTHING: Mapping[str, str] = {}

UNSCHEDULABLE = "0/1 nodes are available: 1 Insufficient cpu."
QUOTA = 'pods "server-x" is forbidden: exceeded quota: accelerators'


def node(name: str = "neuron-1", pool: str = "neuron", allocatable: Mapping[str, str] = NOTHING) -> Object:
    labels = {POOL_LABEL: pool, INSTANCE_TYPE_LABEL: "inf2.48xlarge", ZONE_LABEL: "us-east-2a"}
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "110", **allocatable}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}


def neuron_node(name: str = "neuron-1", devices: int = 12, cores: int = 24) -> Object:
    return node(name, allocatable={DEVICE_RESOURCE: str(devices), CORE_RESOURCE: str(cores)})


def controlled_by(kind: str, name: str) -> list[Object]:
    return [{"kind": kind, "name": name, "controller": True}]


def pod(
    name: str = "server-1",
    *,
    on: str = "",
    owner: tuple[str, str] | None = None,
    phase: str = "",
    asks: Mapping[str, str] = NOTHING,
) -> Object:
    """A pod of namespace demo with one container; ``on`` is the node it is on."""
    metadata: Object = {"name": name, "namespace": "demo", "labels": {}, "annotations": {}}
    metadata |= {"ownerReferences": controlled_by(*owner)} if owner else {}
    spec: Object = {"containers": [{"name": "one", "resources": {"requests": dict(asks)}}], "schedulerName": "default-scheduler"}
    spec |= {"nodeName": on} if on else {}
    status: Object = {"phase": phase or ("Running" if on else "Pending")}
    if not on:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": UNSCHEDULABLE}
        status["conditions"] = [{"type": "Other", "status": "False", "message": "another"}, condition]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def replica_set(name: str = "server-7", deployment: str = "server", *, wanted: int = 1, made: int = 1) -> Object:
    references = controlled_by("Deployment", deployment) if deployment else []
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "demo", "ownerReferences": references},
        "spec": {"replicas": wanted},
        "status": {"replicas": made} if made else {},
    }


def event(kind: str, name: str, message: str = QUOTA, reason: str = "FailedCreate") -> Object:
    about = {"kind": kind, "namespace": "demo", "name": name}
    return {"apiVersion": "v1", "kind": "Event", "involvedObject": about, "reason": reason, "message": message}


def landed(*seen: Object) -> ScheduledPods:
    resources = {"Node": "nodes", "Pod": "pods", "Event": "events", "ReplicaSet": "replicasets.apps"}
    resources |= {"ResourceClaim": RESOURCE_CLAIMS, "ResourceSlice": RESOURCE_SLICES}
    assert set(resources.values()) == set(READS)
    return scheduled_pods({resource: [one for one in seen if one["kind"] == kind] for kind, resource in resources.items()})


def owner_of(one: Object, *others: Object) -> str:
    return landed(one, *others).pending[0].owner


# -- who made a pod --------------------------------------------------------------------------------------------------------------


def test_a_pod_belongs_to_the_deployment_of_its_replica_set():
    one = pod(owner=("ReplicaSet", "server-7"))
    assert owner_of(one, replica_set()) == "Deployment demo/server"
    assert owner_of(one, replica_set(deployment="")) == "ReplicaSet demo/server-7"
    assert owner_of(one) == "ReplicaSet demo/server-7"


def test_a_replica_set_of_the_same_name_elsewhere_is_another():
    elsewhere = replica_set(deployment="other")
    elsewhere["metadata"]["namespace"] = "elsewhere"
    assert owner_of(pod(owner=("ReplicaSet", "server-7")), elsewhere) == "ReplicaSet demo/server-7"


def test_other_makers_are_named_as_they_are():
    assert owner_of(pod(owner=("StatefulSet", "server"))) == "StatefulSet demo/server"
    assert owner_of(pod(owner=("Job", "test"))) == "Job demo/test"
    assert owner_of(pod("alone")) == "Pod demo/alone"


def test_an_owner_that_is_no_controller_made_nothing():
    one = pod("alone")
    one["metadata"]["ownerReferences"] = [
        {"kind": "ConfigMap", "name": "parts"},
        {"kind": "Job", "name": "x", "controller": False},
    ]
    assert owner_of(one) == "Pod demo/alone"


def test_pods_of_ray_are_told_apart():
    """As the stand-in of KubeRay makes them of a real stack."""
    (ray,) = (item.manifest for item in cluster_objects(recorded("inf2-llama3")) if item.kind == "RayService")
    ray["metadata"] |= {"uid": "uid-1"}
    pods = [{"apiVersion": "v1", "kind": "Pod", **cluster_pod} for cluster_pod in cluster_pods(wanted_cluster(ray))]
    (group,) = ray["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    assert [made.owner for made in landed(*pods).pending] == [
        "RayService vllm/vllm-llama3-inf2 (head)",
        f"RayService vllm/vllm-llama3-inf2 (worker {group['groupName']})",
    ]


def test_pods_of_a_leader_worker_set_belong_to_it_and_not_to_its_stateful_sets():
    leader, worker = pod("servers-0", owner=("StatefulSet", "servers")), pod("servers-0-1", owner=("StatefulSet", "servers-0"))
    for index, one in enumerate((leader, worker)):
        one["metadata"]["labels"] = {LWS_NAME_LABEL: "servers", LWS_GROUP_INDEX_LABEL: "0", LWS_WORKER_INDEX_LABEL: str(index)}
    assert [made.owner for made in landed(leader, worker).pending] == [
        "LeaderWorkerSet demo/servers (pod 0 of group 0)",
        "LeaderWorkerSet demo/servers (pod 1 of group 0)",
    ]


# -- nodes and what is left of them ----------------------------------------------------------------------------------------------


def test_a_node_is_described_by_its_labels():
    (only,) = landed(neuron_node()).nodes
    assert (only.name, only.pool, only.type_name, only.zone) == ("neuron-1", "neuron", "inf2.48xlarge", "us-east-2a")
    assert only.allocatable["memory"] == 16 * 2**30
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}}
    assert landed(bare).nodes[0].pool == ""


def test_pods_take_of_the_node_they_are_on_and_of_no_other():
    found = landed(
        node("a"),
        node("b"),
        pod("1", on="a", asks={"cpu": "500m", "memory": "1Gi"}),
        pod("2", on="a", asks={"cpu": "2"}),
        pod("3", on="gone", asks={"cpu": "1"}),
    )
    a, b = found.nodes
    assert (a.taken["cpu"], a.taken["memory"], a.taken["pods"]) == (Decimal("2.5"), 2**30, 2)
    assert (b.taken.get("cpu", 0), b.taken["pods"]) == (0, 0)
    assert a.idle("cpu") == Decimal("5.5")
    assert b.idle("pods") == 110
    assert found.placed == 2


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_ended_leave_their_room(phase: str):
    found = landed(neuron_node(), pod("done", on="neuron-1", owner=("Job", "test"), phase=phase, asks={DEVICE_RESOURCE: "12"}))
    (only,) = found.nodes
    assert only.ended == ("Job demo/test",)
    assert (only.pods, only.idle(DEVICE_RESOURCE), found.pending) == ((), 12, ())


def test_init_containers_count_where_they_ask_for_more():
    one = pod(on="neuron-1", asks={"cpu": "1", "memory": "1Gi"})
    one["spec"]["initContainers"] = [
        {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"memory": "1Gi"}}},
        {"name": "first", "resources": {"requests": {"cpu": "3", "memory": "512Mi"}}},
        {"name": "second", "resources": {"requests": {"cpu": "2"}}},
    ]
    (only,) = landed(node(), one).nodes
    assert only.taken == {"cpu": 3, "memory": 2 * 2**30, "pods": 1}


def test_devices_are_those_of_the_scheduler_extension():
    one = pod(on="neuron-1", asks={DEVICE_RESOURCE: "4"})
    one["metadata"]["annotations"][DEVICES_ANNOTATION] = "8,9,10,11"
    found = landed(neuron_node(), one, pod("other", on="neuron-1"))
    assert {one.name: one.devices for one in found.nodes[0].pods} == {"server-1": (8, 9, 10, 11), "other": ()}
    assert found.idle_devices() == {DEVICE_RESOURCE: {"neuron-1": 8}}


def test_cores_are_devices_only_where_somebody_asks_for_them():
    assert landed(neuron_node()).idle_devices() == {DEVICE_RESOURCE: {"neuron-1": 12}}
    found = landed(neuron_node(), pod(on="neuron-1", asks={CORE_RESOURCE: "4"}))
    assert found.idle_devices() == {DEVICE_RESOURCE: {"neuron-1": 12}, CORE_RESOURCE: {"neuron-1": 20}}


def test_a_node_whose_plugin_does_not_run_offers_no_device():
    found = landed(neuron_node(devices=0, cores=0), node("core-1", "core"))
    assert [node_with_pods.devices for node_with_pods in found.nodes] == [(), ()]
    assert found.idle_devices() == {}


def test_devices_that_are_all_used_are_not_idle():
    one = neuron_node("neuron-2")
    found = landed(neuron_node(), one, pod(on="neuron-1", asks={DEVICE_RESOURCE: "12"}))
    assert found.idle_devices() == {DEVICE_RESOURCE: {"neuron-2": 12}}


def test_nodes_with_devices_come_first_and_servers_before_daemons_and_stand_ins():
    stand_in, daemon = pod("a", on="neuron-1"), pod("b", on="neuron-1", owner=("DaemonSet", "plugin"))
    stand_in["metadata"]["labels"] = {STANDS_IN_FOR_LABEL: "chart"}
    found = landed(node("core-1", "core"), neuron_node("neuron-1"), daemon, stand_in, pod("c", on="neuron-1"))
    assert [node_with_pods.name for node_with_pods in found.nodes] == ["neuron-1", "core-1"]
    pods = found.nodes[0].pods
    assert [scheduled_pod.name for scheduled_pod in pods] == ["c", "a", "b"]
    assert [scheduled_pod.stands_in_for for scheduled_pod in pods] == ["", "chart", ""]
    assert [scheduled_pod.on_each_node for scheduled_pod in pods] == [False, False, True]


# -- pods on no node -------------------------------------------------------------------------------------------------------------


def test_a_pending_pod_has_the_schedulers_words_and_what_it_asks_for():
    (only,) = landed(node(), pod(owner=("StatefulSet", "server"), asks={"cpu": "100"})).pending
    assert (only.namespace, only.name, only.said) == ("demo", "server-1", UNSCHEDULABLE)
    assert only.requests == {"cpu": 100}


def test_words_of_a_scheduler_are_one_harmless_line():
    one = pod()
    one["status"]["conditions"][1]["message"] = "no\n\x1b[2Jroom"
    assert landed(one).pending[0].said == "no [2Jroom"


def test_a_reason_without_a_message_is_told():
    one = pod()
    del one["status"]["conditions"][1]["message"]
    assert landed(one).pending[0].said == "Unschedulable"


def test_a_scheduler_that_is_not_there_is_told():
    one = pod()
    one["status"] = {"phase": "Pending"}
    one["spec"]["schedulerName"] = "my-scheduler"
    assert landed(one).pending[0].said == "no scheduler named my-scheduler has looked at it"


def test_scheduling_gates_are_told():
    one = pod()
    one["status"] = {"phase": "Pending"}
    one["spec"]["schedulingGates"] = [{"name": "example.com/first"}, {"name": "example.com/second"}]
    assert landed(one).pending[0].said == "held back by scheduling gates: example.com/first, example.com/second"


# -- pods that were never made ---------------------------------------------------------------------------------------------------


def test_pods_that_could_not_be_made_are_pending_with_the_reason():
    (only,) = landed(replica_set(wanted=2, made=1), event("ReplicaSet", "server-7")).pending
    assert (only.owner, only.name, only.said, only.requests) == ("Deployment demo/server", "", QUOTA, {})


@pytest.mark.parametrize("made", [2, 3])
def test_a_replica_set_that_has_all_its_pods_by_now_is_no_fault(made: int):
    """Its first attempts may have been too early, for a ServiceAccount or a quota."""
    assert landed(replica_set(wanted=2, made=made), event("ReplicaSet", "server-7")).pending == ()


def test_a_replica_set_that_is_gone_is_no_fault():
    assert landed(event("ReplicaSet", "server-7")).pending == ()


def test_a_replica_set_without_any_pod_is_one():
    assert len(landed(replica_set(wanted=1, made=0), event("ReplicaSet", "server-7")).pending) == 1
    assert landed(replica_set(wanted=0, made=0), event("ReplicaSet", "server-7")).pending == ()


def test_other_controllers_say_it_too():
    (only,) = landed(event("DaemonSet", "plugin", "is forbidden: violates PodSecurity")).pending
    assert (only.owner, only.said) == ("DaemonSet demo/plugin", "is forbidden: violates PodSecurity")


def test_the_last_words_count_and_are_told_once():
    first, last = event("Job", "test", "first"), event("Job", "test", "last")
    assert [pending_pod.said for pending_pod in landed(first, last).pending] == ["last"]


def test_other_events_are_not_about_pods_that_were_not_made():
    assert landed(replica_set(wanted=2), event("ReplicaSet", "server-7", reason="SuccessfulCreate")).pending == ()


def test_pending_pods_are_in_the_order_of_their_owners():
    pods = [pod("b-1", owner=("Job", "b")), pod("a-2", owner=("Job", "a")), pod("a-1", owner=("Job", "a"))]
    assert [pending_pod.name for pending_pod in landed(*pods).pending] == ["a-1", "a-2", "b-1"]


@pytest.mark.parametrize(("made", "pending"), [("2026-11-22T10:00:00Z", 1), ("2026-11-22T10:00:02Z", 0)])
def test_a_job_whose_pod_was_made_in_the_end_is_no_fault(made: str, pending: int):
    failed = {**event("Job", "compile"), "lastTimestamp": "2026-11-22T10:00:01Z"}
    one = pod(owner=("Job", "compile"), on="core-1")
    one["metadata"]["creationTimestamp"] = made
    assert len(landed(failed, one).pending) == pending
