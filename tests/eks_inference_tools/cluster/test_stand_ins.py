"""Stand-ins of controllers beside the real ones: pods that the real scheduler places, and what a change makes of them."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.running import Running
from conftest import recorded
from eks_inference_tools.reading.expected import Expected, expected_of
from eks_inference_tools.reading.live_objects import condition_of
from eks_inference_tools.reading.object_kinds import generated_services
from eks_inference_tools.simulate.control_plane.control_plane import control_plane
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.stand_ins.ebs import EbsVolumes
from eks_inference_tools.simulate.stand_ins.helm import helm_records
from eks_inference_tools.simulate.stand_ins.kuberay import KubeRay
from eks_inference_tools.simulate.stand_ins.leader_worker_set import LeaderWorkerSets
from eks_inference_tools.simulate.stand_ins.loop import StandIns
from eks_inference_tools.simulate.stand_ins.ray_cluster import cluster_pods, wanted_cluster
from eks_inference_tools.simulate.world.api_objects import ClusterObject, cluster_objects
from eks_inference_tools.simulate.world.schemas import definitions_for, kubernetes_schemas
from eks_inference_tools.verify.cluster_api import Kubectl
from eks_inference_tools.verify.observed import Observed
from eks_inference_tools.verify.ray_checks import ray_groups, ray_service
from eks_inference_tools.verify.release_checks import service as service_finding
from eks_inference_tools.verify.workload_checks import workload

pytestmark = pytest.mark.cluster

RAY = "rayservices.ray.io"
LWS = "leaderworkersets.leaderworkerset.x-k8s.io"

Object = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(toolchain: Toolchain) -> Iterator[Running]:
    with control_plane(toolchain) as plane:
        objects = [*cluster_objects(recorded("inf2-llama3")), *cluster_objects(recorded("trn2-di-pair"))]
        definitions = definitions_for(objects, toolchain.definitions(), kubernetes_schemas(plane.api))
        for definition in definitions:
            if definition.resource in (RAY, LWS):
                plane.api.apply(definition.manifest)
        plane.processes.wait_until(lambda: all(serves(plane.api, one) for one in (RAY, LWS)), seconds=120, what="definitions")
        with StandIns(plane.api, [KubeRay(), LeaderWorkerSets(), EbsVolumes()]) as stand_ins:
            yield Running(plane, stand_ins, seconds=120)


def serves(api: Api, resource: str) -> bool:
    try:
        return api.knows(resource) and api.list(resource) == []
    except ApiRefusal:  # its storage is about to be there
        return False


def only(stack: str, kind: str) -> ClusterObject:
    (found,) = (item for item in cluster_objects(recorded(stack)) if item.kind == kind)
    return found


def add_node(cluster: Running, name: str, pod: Object) -> None:
    """A node that is made for one such pod."""
    spec = pod["spec"]
    devices = {key: value for key, value in spec["containers"][0]["resources"]["limits"].items() if "/" in key}
    sizes = {"cpu": "192", "memory": "2Ti", "pods": "110", **devices}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "us-east-2a", **spec["nodeSelector"]}
    status = {"capacity": sizes, "allocatable": sizes}
    cluster.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status})


def make_room(cluster: Running, item: ClusterObject) -> None:
    """The namespace with what pods refer to, as far as admission or the scheduler look at it."""
    namespaces = [one for one in cluster_objects(recorded(stack_of(item))) if one.kind == "Namespace"]
    cluster.api.apply(next(namespace.manifest for namespace in namespaces if namespace.name == item.namespace))
    for cluster_object in cluster_objects(recorded(stack_of(item))):
        mine = cluster_object.kind in ("ServiceAccount", "PersistentVolumeClaim") and cluster_object.namespace == item.namespace
        if mine or cluster_object.kind == "PersistentVolume":
            cluster.api.apply(cluster_object.manifest)


def stack_of(item: ClusterObject) -> str:
    return item.urn.split(":")[2]


def look(cluster: Running, stack: str) -> tuple[Expected, Observed]:
    expected = expected_of(recorded(stack))
    return expected, Kubectl(kubeconfig=cluster.plane.kubeconfig).read(expected.resources(), releases=True)


@pytest.fixture(autouse=True)
def kubectl_on_path(toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(toolchain.path("kubectl").parent), prepend=":")


def pods_by_name(cluster: Running, namespace: str) -> dict[str, Object]:
    return {pod["metadata"]["name"]: pod for pod in cluster.api.list("pods", namespace)}


def test_a_ray_service_runs_is_updated_beside_itself_and_goes(cluster: Running):
    item = only("inf2-llama3", "RayService")
    wanted, space = item.manifest, item.namespace
    head, worker = cluster_pods(wanted_cluster({**wanted, "metadata": {**wanted["metadata"], "uid": ""}}))
    add_node(cluster, "core", head)
    add_node(cluster, "neuron-1", worker)
    make_room(cluster, item)

    def status() -> Object:
        return (cluster.api.get(RAY, item.name, space) or {}).get("status") or {}

    cluster.api.apply(wanted)
    cluster.until(lambda: status().get("serviceStatus") == "Running", "the RayService")
    _, observed = look(cluster, "inf2-llama3")
    live = observed.find(RAY, space, item.name)
    assert live is not None
    assert ray_service(wanted, live).verdict == "ok"
    assert [finding.verdict for _, finding in ray_groups(wanted, live, observed)] == ["ok", "ok"]
    for name in generated_services(item.name):
        made = observed.find("services", space, name)
        assert made is not None
        assert service_finding({}, made, observed).verdict == "ok"

    # On full nodes a second cluster waits for ever: the first one does not go before the second one serves.
    first = status()["activeServiceStatus"]["rayClusterName"]
    changed = copy.deepcopy(wanted)
    changed["spec"]["upgradeStrategy"] = {"type": "NewCluster"}
    changed["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["image"] = "new"
    cluster.api.apply(changed)

    def stuck() -> list[Object]:
        found = cluster.api.list("pods", space, fieldSelector="status.phase=Pending")
        return [item for pod in found for item in pod["status"].get("conditions", ()) if item.get("reason") == "Unschedulable"]

    wanted_words = "Insufficient aws.amazon.com/neuron"
    cluster.until(lambda: any(wanted_words in one["message"] for one in stuck()), "the second cluster's worker")
    assert status()["activeServiceStatus"]["rayClusterName"] == first
    assert ray_service(changed, cluster.api.get(RAY, item.name, space) or {}).verdict == "wait"

    add_node(cluster, "neuron-2", worker)
    cluster.until(lambda: not status().get("pendingServiceStatus"), "the switch")
    second = status()["activeServiceStatus"]["rayClusterName"]
    assert second != first
    cluster.until(lambda: len(pods_by_name(cluster, space)) == 2, "the end of the first cluster")
    clusters = {pod["metadata"]["labels"]["ray.io/cluster"] for pod in pods_by_name(cluster, space).values()}
    assert clusters == {second}
    selectors = [cluster.api.get("services", name, space) or {} for name in generated_services(item.name)]
    assert {selector["spec"]["selector"]["ray.io/cluster"] for selector in selectors} == {second}

    cluster.api.delete(RAY, item.name, space)
    cluster.until(lambda: cluster.api.get(RAY, item.name, space) is None and not pods_by_name(cluster, space), "its deletion")


def test_a_pair_starts_together_is_updated_in_place_and_starts_anew_together(cluster: Running):
    item = only("trn2-di-pair", "LeaderWorkerSet")
    wanted, space = item.manifest, item.namespace
    for name, role in (("pair-1", "leaderTemplate"), ("pair-2", "workerTemplate")):
        add_node(cluster, name, wanted["spec"]["leaderWorkerTemplate"][role])
    make_room(cluster, item)

    def live() -> Object:
        return cluster.api.get(LWS, item.name, space) or {}

    def is_well() -> bool:
        observed = look(cluster, "trn2-di-pair")[1]
        found = observed.find(LWS, space, item.name)
        return bool(found and found.get("status")) and workload(LWS, wanted, found or {}, observed).verdict == "ok"

    cluster.api.apply(wanted)
    cluster.until(is_well, "the pair")
    first = pods_by_name(cluster, space)
    assert {name: pod["spec"]["nodeName"] for name, pod in first.items()}.keys() == {f"{item.name}-0", f"{item.name}-0-1"}
    assert len({pod["spec"]["nodeName"] for pod in first.values()}) == 2

    changed = copy.deepcopy(wanted)
    changed["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"] = "new"
    cluster.api.apply(changed)

    def is_updated() -> bool:
        images = {name: pod["spec"]["containers"][0]["image"] for name, pod in pods_by_name(cluster, space).items()}
        return images.get(f"{item.name}-0-1") == "new" and is_well()

    cluster.until(is_updated, "the update")
    second = pods_by_name(cluster, space)
    assert all(second[name]["metadata"]["uid"] != pod["metadata"]["uid"] for name, pod in first.items())

    cluster.api.delete("pods", f"{item.name}-0-1", space)

    def is_anew() -> bool:
        pods = pods_by_name(cluster, space)
        return pods.keys() == second.keys() and all(
            pods[name]["metadata"]["uid"] != pod["metadata"]["uid"] for name, pod in second.items()
        )

    cluster.until(is_anew, "a new group")
    cluster.until(is_well, "the new group")
    assert live()["status"]["observedGeneration"] == live()["metadata"]["generation"]


def test_a_claim_waits_for_its_pod_and_gets_a_volume_where_that_runs(cluster: Running):
    for name, zone in (("zone-a", "us-east-2a"), ("zone-b", "us-east-2b")):
        add_node(cluster, name, {"spec": {"nodeSelector": {"zone": zone}, "containers": [{"resources": {"limits": {}}}]}})
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        cluster.api.patch(node, {"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}})
    cluster.api.apply(only("inf2-llama3", "StorageClass").manifest)
    class_name = only("inf2-llama3", "StorageClass").name
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "resources": {"requests": {"storage": "5Gi"}},
        },
    }

    def pod(name: str, zone: str) -> Object:
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        spec = {"containers": [{"name": "main", "image": "main"}], "volumes": [volume], "nodeSelector": {"zone": zone}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}

    cluster.api.apply(claim)

    def waits() -> bool:
        return "WaitForFirstConsumer" in {item["reason"] for item in cluster.api.list("events", "default")}

    cluster.until(waits, "the controller's word")
    assert (cluster.api.get("persistentvolumeclaims", "data", "default") or {})["status"]["phase"] == "Pending"
    cluster.api.apply(pod("first", "us-east-2b"))
    cluster.until(lambda: pods_by_name(cluster, "default")["first"]["status"]["phase"] == "Running", "the pod")
    cluster.api.apply(pod("second", "us-east-2a"))

    def words() -> str:
        return (condition_of(pods_by_name(cluster, "default")["second"], "PodScheduled") or {}).get("message", "")

    cluster.until(lambda: "didn't match PersistentVolume's node affinity" in words(), "the scheduler's word")
    for name in ("first", "second"):
        cluster.api.delete("pods", name, "default")
    cluster.api.delete("persistentvolumeclaims", "data", "default")

    def volumes() -> list[Object]:
        return [item for item in cluster.api.list("persistentvolumes") if item["metadata"]["name"].startswith("pvc-")]

    cluster.until(lambda: not volumes(), "the volume's end")


def test_verify_reads_the_records_of_releases(cluster: Running):
    records = helm_records(recorded("inf2-llama3"))
    for record in records:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": record["metadata"]["namespace"]}}
        cluster.api.apply(namespace)
        cluster.api.apply(record)
    expected, observed = look(cluster, "inf2-llama3")
    found = observed.releases or {}
    assert {(release.namespace, release.name) for release in expected.releases} <= found.keys()
    assert {release_record.status for release_record in found.values()} == {"deployed"}
