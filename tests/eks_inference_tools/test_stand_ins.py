"""What the stand-ins of controllers make, decide and say: the parts that need no API server."""

import base64
import copy
import gzip
import json
from collections.abc import Callable
from typing import Any, cast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conftest import STACKS, recorded
from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL
from eks_inference_tools.reading.object_kinds import INGRESSES, PODS, SERVICES
from eks_inference_tools.simulate.control_plane.kubernetes_api import ApiRefusal
from eks_inference_tools.simulate.stand_ins import ebs
from eks_inference_tools.simulate.stand_ins import leader_worker_groups as lws
from eks_inference_tools.simulate.stand_ins.helm import DESCRIPTION, helm_records
from eks_inference_tools.simulate.stand_ins.kuberay import FINALIZER, KubeRay, Observation, applications_of, status_of
from eks_inference_tools.simulate.stand_ins.leader_worker_groups import Group, Rollout, next_step
from eks_inference_tools.simulate.stand_ins.leader_worker_set import LeaderWorkerSets
from eks_inference_tools.simulate.stand_ins.load_balancers import LoadBalancers
from eks_inference_tools.simulate.stand_ins.loop import condition, conditions
from eks_inference_tools.simulate.stand_ins.ray_cluster import (
    RayCluster,
    cluster_pods,
    clusters_after,
    generated_services_of,
    head_service_of,
    wanted_cluster,
)
from eks_inference_tools.simulate.world.api_objects import cluster_objects
from eks_inference_tools.verify.observed import Finding
from eks_inference_tools.verify.ray_checks import ray_service as judged
from stackgraph.graph.document import Graph
from stackgraph.problems import ProblemsFound
from variants import recorded_with

Object = dict[str, Any]
Edit = Callable[[Object], object]


def manifest(graph: Graph, kind: str) -> Object:
    """The only object of that kind, as the API server would show it."""
    (found,) = (copy.deepcopy(item.manifest) for item in cluster_objects(graph) if item.kind == kind)
    found["metadata"] |= {"uid": "uid-1", "generation": 1}
    return found


@pytest.fixture
def ray() -> Object:
    return manifest(recorded("inf2-llama3"), "RayService")


@pytest.fixture
def pair() -> Object:
    return manifest(recorded("trn2-di-pair"), "LeaderWorkerSet")


def ready(pod: Object) -> Object:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {**pod, "metadata": {**pod["metadata"], "uid": pod["metadata"]["name"]}, "status": status}


def config_of(ray: Object) -> Object:
    return ray["spec"]["rayClusterConfig"]


def group_of(ray: Object) -> Object:
    return config_of(ray)["workerGroupSpecs"][0]


def selects(service: Object, pod: Object) -> bool:
    return service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


class RecordingApi:
    """Takes what it is given; refuses what ``refused`` says."""

    def __init__(self, refused: Callable[[Object], str] = lambda item: "") -> None:
        self.made: list[Object] = []
        self.deleted: list[tuple[str, str]] = []
        self.patches: list[tuple[Object, Any]] = []
        self._refused = refused

    def create(self, item: Object) -> Object:
        if words := self._refused(item):
            raise ApiRefusal(403, "Forbidden", words)
        self.made.append(item)
        return item

    def apply(self, item: Object, *, manager: str = "") -> Object:
        return self.create(item)

    def patch(self, item: Object, body: Any, *, subresource: str = "", kind: str = "merge") -> None:
        self.patches.append((item, body))

    def delete(self, resource: str, name: str, namespace: str = "", *, propagation: str = "") -> None:
        self.deleted.append((resource, name))

    def names(self, kind: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.made if item["kind"] == kind]


# -- KubeRay: pods and Services --------------------------------------------------------------------------------------------------


def test_the_pods_of_a_ray_service_are_its_templates_and_what_kuberay_adds(ray: Object):
    head, worker = cluster_pods(wanted_cluster(ray))
    for pod, template in ((head, config_of(ray)["headGroupSpec"]["template"]), (worker, group_of(ray)["template"])):
        assert template["metadata"]["labels"].items() <= pod["metadata"]["labels"].items()
        assert pod["spec"]["containers"][0] == template["spec"]["containers"][0]
        assert pod["spec"]["restartPolicy"] == "Never"  # the autoscaler's second version
        assert pod["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
        for key in ("nodeSelector", "tolerations", "securityContext", "volumes"):
            assert pod["spec"][key] == template["spec"][key]
    assert worker["spec"].get("schedulerName") == group_of(ray)["template"]["spec"].get("schedulerName")
    cluster = head["metadata"]["labels"]["ray.io/cluster"]
    assert (head["metadata"]["labels"]["ray.io/node-type"], head["metadata"]["labels"]["ray.io/group"]) == ("head", "headgroup")
    assert (worker["metadata"]["labels"]["ray.io/node-type"], worker["metadata"]["labels"]["ray.io/group"]) == (
        "worker",
        group_of(ray)["groupName"],
    )
    assert worker["metadata"]["labels"]["ray.io/cluster"] == cluster
    assert cluster.startswith("vllm-llama3-inf2-")


def test_the_autoscaler_runs_beside_the_head_and_under_its_own_account(ray: Object):
    head, worker = cluster_pods(wanted_cluster(ray))
    _, autoscaler = head["spec"]["containers"]
    asked = {"cpu": "500m", "memory": "512Mi"}
    assert autoscaler["resources"] == {"requests": asked, "limits": asked}
    assert autoscaler["securityContext"] == config_of(ray)["autoscalerOptions"]["securityContext"]
    assert head["spec"]["serviceAccountName"] == head["metadata"]["labels"]["ray.io/cluster"]
    assert worker["spec"]["serviceAccountName"] == group_of(ray)["template"]["spec"]["serviceAccountName"]
    config_of(ray)["autoscalerOptions"]["resources"] = {"requests": {"cpu": "1"}}
    assert cluster_pods(wanted_cluster(ray))[0]["spec"]["containers"][1]["resources"] == {"requests": {"cpu": "1"}}
    config_of(ray)["enableInTreeAutoscaling"] = False
    (head, worker) = cluster_pods(wanted_cluster(ray))
    assert len(head["spec"]["containers"]) == 1
    assert "serviceAccountName" not in head["spec"]
    assert "restartPolicy" not in worker["spec"]


def test_a_worker_waits_for_its_head_in_an_init_container_that_admission_takes(ray: Object):
    group_of(ray)["template"]["spec"]["initContainers"] = [{"name": "first", "image": "first"}]
    worker = cluster_pods(wanted_cluster(ray))[1]
    first, wait = worker["spec"]["initContainers"]
    assert first == {"name": "first", "image": "first"}
    assert wait["resources"]["requests"] == {"cpu": "200m", "memory": "256Mi"}
    assert wait["securityContext"] == worker["spec"]["containers"][0]["securityContext"]
    assert wait["volumeMounts"] == worker["spec"]["containers"][0]["volumeMounts"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("edit", "workers"),
    [
        ({"replicas": 3}, 3),
        ({"replicas": 0, "minReplicas": 2}, 2),
        ({"replicas": 9, "maxReplicas": 2}, 2),
        ({"replicas": 2, "numOfHosts": 3}, 6),
        # Ray's autoscaler adds what the first Serve replica needs, up to the most.
        ({"replicas": 0, "minReplicas": 0, "maxReplicas": 3}, 1),
        ({"replicas": 0, "minReplicas": 0, "maxReplicas": 0}, 0),
        ({"replicas": 0, "minReplicas": 0, "suspend": True}, 0),
    ],
)
def test_a_group_has_as_many_workers_as_its_bounds_and_the_first_replicas_ask_for(ray: Object, edit: Object, workers: int):
    group_of(ray).update(edit)
    names = [pod["metadata"]["name"] for pod in cluster_pods(wanted_cluster(ray))]
    assert len(names) == len(set(names)) == 1 + workers


def test_a_group_without_bounds_has_as_many_workers_as_it_says(ray: Object):
    config_of(ray)["enableInTreeAutoscaling"] = False
    group = group_of(ray)
    del group["minReplicas"], group["maxReplicas"]
    for count in (0, 7):
        group["replicas"] = count
        assert len(cluster_pods(wanted_cluster(ray))) == 1 + count


def test_the_autoscaler_adds_a_worker_for_each_replica_that_the_others_have_no_room_for(ray: Object):
    serve = yaml.safe_load(ray["spec"]["serveConfigV2"])
    serve["applications"][0]["deployments"][0]["autoscaling_config"]["min_replicas"] = 3
    ray["spec"]["serveConfigV2"] = yaml.safe_dump(serve)
    assert len(cluster_pods(wanted_cluster(ray))) == 1 + 3
    group_of(ray)["maxReplicas"] = 2
    assert len(cluster_pods(wanted_cluster(ray))) == 1 + 2
    config_of(ray)["enableInTreeAutoscaling"] = False
    assert len(cluster_pods(wanted_cluster(ray))) == 1 + 1


def test_services_lead_to_the_head_and_to_the_pods_that_serve(ray: Object):
    head, worker = cluster_pods(wanted_cluster(ray))
    to_head, to_serve = generated_services_of(wanted_cluster(ray))
    assert to_head["metadata"]["name"] == "vllm-llama3-inf2-head-svc"
    assert to_serve["metadata"]["name"] == "vllm-llama3-inf2-serve-svc"
    for service in (to_head, head_service_of(wanted_cluster(ray))):
        assert selects(service, head)
        assert not selects(service, worker)
        assert service["spec"]["clusterIP"] == "None"
        assert {port["name"] for port in service["spec"]["ports"]} == {"client", "dashboard", "gcs-server", "metrics", "serve"}
    assert [port["port"] for port in to_serve["spec"]["ports"]] == [8000]
    assert selects(to_serve, worker)
    assert not selects(to_serve, head)  # until KubeRay finds that it answers
    head["metadata"]["labels"]["ray.io/serve"] = "true"
    assert selects(to_serve, head)


# -- KubeRay: changes ------------------------------------------------------------------------------------------------------------


def image(ray: Object) -> None:
    group_of(ray)["template"]["spec"]["containers"][0]["image"] = "other"


def head_memory(ray: Object) -> None:
    config_of(ray)["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "1Gi"


def one_group_less(ray: Object) -> None:
    config_of(ray)["workerGroupSpecs"] = []


def numbers(ray: Object) -> None:
    group_of(ray).update(replicas=2, minReplicas=2, maxReplicas=7)


def tolerations(ray: Object) -> None:
    group_of(ray)["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]


def serve_config(ray: Object) -> None:
    ray["spec"]["serveConfigV2"] = "applications: []"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("edit", "strategy", "another"),
    [
        *((edit, "NewCluster", True) for edit in (image, head_memory, one_group_less)),
        *((edit, None, True) for edit in (image, head_memory, one_group_less)),
        *((edit, "None", False) for edit in (image, head_memory, one_group_less)),
        *((edit, "NewCluster", False) for edit in (numbers, tolerations, serve_config)),
    ],
)
def test_a_change_makes_another_cluster_or_none(ray: Object, edit: Edit, strategy: str | None, another: bool):
    active = wanted_cluster(copy.deepcopy(ray))
    edit(ray)
    ray["metadata"]["generation"] = 2
    ray["spec"]["upgradeStrategy"] = {"type": strategy} if strategy else {}
    found = clusters_after(ray, active, None)
    assert found[0] is active
    if another:
        assert found[1] is not None
        assert found[1].name != active.name
        assert found[1].config == config_of(ray)
    else:
        assert found[1] is None


def test_a_group_appended_is_added_to_the_cluster_there_is(ray: Object):
    active = wanted_cluster(copy.deepcopy(ray))
    config_of(ray)["workerGroupSpecs"].append({**copy.deepcopy(group_of(ray)), "groupName": "more"})
    ray["metadata"]["generation"] = 2
    extended, pending = clusters_after(ray, active, None)
    assert pending is None
    assert extended is not None
    assert (extended.name, extended.config) == (active.name, config_of(ray))


def test_a_change_during_an_upgrade_replaces_the_cluster_that_was_to_come(ray: Object):
    ray["spec"]["upgradeStrategy"] = {"type": "NewCluster"}
    active = wanted_cluster(copy.deepcopy(ray))
    image(ray)
    ray["metadata"]["generation"] = 2
    _, first = clusters_after(ray, active, None)
    serve_config(ray)
    ray["metadata"]["generation"] = 3
    assert clusters_after(ray, active, first) == (active, first)
    ray = copy.deepcopy(ray)
    head_memory(ray)
    ray["metadata"]["generation"] = 4
    still, second = clusters_after(ray, active, first)
    assert still is active
    assert second is not None
    assert first is not None
    assert second.name not in (active.name, first.name)


# -- KubeRay: status -------------------------------------------------------------------------------------------------------------


def observed(cluster: RayCluster, pods: list[Object]) -> Observation:
    return Observation(cluster, pods, applications_of(cluster, pods))


def judge(ray: Object, **clusters: Any) -> Finding:
    item = {**ray, "status": status_of(ray, clusters.get("active"), clusters.get("pending"), clusters.get("endpoints", 0))}
    return judged(ray, item)


def test_a_ray_service_is_well_only_when_its_pods_are_ready_and_serve(ray: Object):
    cluster, pods = wanted_cluster(ray), cluster_pods(wanted_cluster(ray))
    head, worker = (ready(pod) for pod in pods)
    assert judge(ray, pending=observed(cluster, pods)).verdict == "wait"
    assert applications_of(cluster, [pods[0], worker]) == {}  # nobody to ask
    half = observed(cluster, [head, pods[1]])
    assert not half.serves
    assert "0 of 1 replicas have a place" in json.dumps(half.applications)
    well = observed(cluster, [head, worker])
    assert well.serves
    assert judge(ray, active=well).verdict == "wait"
    assert judge(ray, active=well, endpoints=2) == Finding(
        "ok", "Running, 2 serve endpoints, application vllm RUNNING, VLLMDeployment HEALTHY"
    )
    assert judge(ray, active=well, pending=half, endpoints=2).verdict == "wait"  # an upgrade


def test_endpoints_that_are_gone_are_told_as_kuberay_does(ray: Object):
    well = observed(wanted_cluster(ray), [ready(pod) for pod in cluster_pods(wanted_cluster(ray))])
    ray["status"] = status_of(ray, well, None, 2)
    after = status_of(ray, well, None, 0)
    assert "serviceStatus" not in after
    assert [one["reason"] for one in after["conditions"] if one["type"] == "Ready"] == ["ZeroServeEndpoints"]


# -- KubeRay: the controller -----------------------------------------------------------------------------------------------------


def seen(ray: Object, **objects: list[Object]) -> dict[str, list[Object]]:
    return {resource: [] for resource in KubeRay.reads} | {"rayservices.ray.io": [ray]} | objects


def test_a_refused_pod_is_told_in_an_event_and_keeps_the_rest_from_nothing(ray: Object):
    api = RecordingApi(lambda item: "violates PodSecurity" if item["kind"] == "Pod" else "")
    KubeRay().reconcile(seen(ray), api)  # type: ignore[arg-type]
    (event,) = (item for item in api.made if item["kind"] == "Event")
    assert (event["reason"], event["message"]) == ("FailedToCreateHeadPod", "violates PodSecurity")
    assert event["involvedObject"]["uid"] == "uid-1"
    (status,) = (body[0]["value"] for _, body in api.patches if isinstance(body, list))
    assert status["pendingServiceStatus"]["rayClusterName"] == api.names("ControllerRevision")[0]


def test_pods_that_ended_are_replaced(ray: Object):
    head, worker = (ready(pod) for pod in cluster_pods(wanted_cluster(ray)))
    worker["status"] = {"phase": "Failed"}
    api = RecordingApi()
    KubeRay().reconcile(seen(ray, pods=[head, worker]), api)  # type: ignore[arg-type]
    assert api.deleted == [("pods", worker["metadata"]["name"])]
    assert api.names("Pod") == []
    api = RecordingApi()
    KubeRay().reconcile(seen(ray, pods=[head]), api)  # type: ignore[arg-type]
    assert api.names("Pod") == [worker["metadata"]["name"]]


def test_a_ray_service_that_is_deleted_waits_for_its_clusters(ray: Object):
    cluster = wanted_cluster(ray)
    revision = {"metadata": {"name": cluster.name, "namespace": ray["metadata"]["namespace"]}, "data": config_of(ray)}
    revision["metadata"]["ownerReferences"] = [{"uid": "uid-1", "controller": True}]
    ray["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["other", FINALIZER]}
    pods = [ready(pod) for pod in cluster_pods(wanted_cluster(ray))]
    api = RecordingApi()
    KubeRay().reconcile(seen(ray, pods=pods, **{"controllerrevisions.apps": [revision]}), api)  # type: ignore[arg-type]
    assert {("pods", pod["metadata"]["name"]) for pod in pods} < set(api.deleted)
    assert not api.patches
    KubeRay().reconcile(seen(ray), api)  # type: ignore[arg-type]
    assert [body for _, body in api.patches] == [{"metadata": {"finalizers": ["other"]}}]
    assert not api.made


# -- LeaderWorkerSet: what is made -----------------------------------------------------------------------------------------------


def pod_in(stateful_set: Object, ordinal: int) -> Object:
    """As the StatefulSet controller makes it."""
    template = stateful_set["spec"]["template"]
    name = f"{stateful_set['metadata']['name']}-{ordinal}"
    metadata = {**template["metadata"], "name": name, "namespace": stateful_set["metadata"]["namespace"], "uid": f"uid-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def test_leaders_and_workers_are_the_pods_of_two_stateful_sets(pair: Object):
    template = pair["spec"]["leaderWorkerTemplate"]
    leaders = lws.leaders_of(pair, "rev", replicas=1, partition=0)
    leader = pod_in(leaders, 0)
    leader["metadata"]["labels"] |= lws.late_labels(leader)
    workers = lws.workers_of(pair, leader, template["workerTemplate"])
    worker = pod_in(workers, workers["spec"]["ordinals"]["start"])
    worker["metadata"]["labels"] = worker["metadata"]["labels"] | lws.late_labels(worker)
    assert (leader["metadata"]["name"], worker["metadata"]["name"]) == ("llama3-70b-servers-0", "llama3-70b-servers-0-1")
    assert workers["spec"]["replicas"] == 1
    for pod, own, index in ((leader, template["leaderTemplate"], "0"), (worker, template["workerTemplate"], "1")):
        labels = pod["metadata"]["labels"]
        assert own["metadata"]["labels"].items() <= labels.items()
        assert labels["leaderworkerset.sigs.k8s.io/name"] == "llama3-70b-servers"
        assert labels["leaderworkerset.sigs.k8s.io/group-index"] == "0"
        assert labels["leaderworkerset.sigs.k8s.io/worker-index"] == index
        variables = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        assert variables["LWS_GROUP_SIZE"] == "2"
        assert {one["name"] for one in own["spec"]["containers"][0]["env"]} < variables.keys()
        assert {key: value for key, value in pod["spec"].items() if key != "containers"} == {
            key: value for key, value in own["spec"].items() if key != "containers"
        }
    assert len({pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-key"] for pod in (leader, worker)}) == 1
    assert workers["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    for stateful_set in (leaders, workers):
        chosen = stateful_set["spec"]["selector"]["matchLabels"].items()
        assert chosen <= stateful_set["spec"]["template"]["metadata"]["labels"].items()
    assert not leaders["spec"]["selector"]["matchLabels"].items() <= workers["spec"]["template"]["metadata"]["labels"].items()


def test_the_address_of_the_leader_is_the_one_that_the_servers_were_told(pair: Object):
    leader = pod_in(lws.leaders_of(pair, "rev", replicas=1, partition=0), 0)
    workers = lws.workers_of(pair, leader, pair["spec"]["leaderWorkerTemplate"]["workerTemplate"])
    variables = {one["name"]: one.get("value") for one in workers["spec"]["template"]["spec"]["containers"][0]["env"]}
    texts = [text for item in cluster_objects(recorded("trn2-di-pair")) for text in item.manifest.get("data", {}).values()]
    assert any(f"{variables['LWS_LEADER_ADDRESS']}.svc.cluster.local" in text for text in texts)
    service = lws.service_of(pair)
    assert (service["metadata"]["name"], service["metadata"]["namespace"]) == ("llama3-70b-servers", "disaggregated")
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert selects(service, leader)


@pytest.mark.parametrize(
    ("edit", "word"),
    [
        (lambda pair: pair["metadata"].update(annotations={"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}), "rack"),
        (lambda pair: pair["spec"]["leaderWorkerTemplate"].update(subGroupPolicy={"subGroupSize": 2}), "subGroupPolicy"),
        (lambda pair: pair["spec"].update(networkConfig={"subdomainPolicy": "UniquePerReplica"}), "UniquePerReplica"),
    ],
)
def test_what_the_stand_in_does_not_know_it_says(pair: Object, edit: Edit, word: str):
    edit(pair)
    objects = {resource: [] for resource in LeaderWorkerSets.reads} | {LeaderWorkerSets.reads[0]: [pair]}
    with pytest.raises(ProblemsFound, match=word):
        LeaderWorkerSets().reconcile(objects, RecordingApi())  # type: ignore[arg-type]


# -- LeaderWorkerSet: the controller ---------------------------------------------------------------------------------------------


class Cluster:
    """A LeaderWorkerSet with a leader and a worker, as the controller sees it."""

    def __init__(self, pair: Object) -> None:
        self.pair, self.stand_in = pair, LeaderWorkerSets()
        template = lws.template_of(pair)
        key = lws.revision_of(template)
        self.leaders = lws.leaders_of(pair, key, replicas=1, partition=0)
        leader = pod_in(self.leaders, 0)
        leader["metadata"]["labels"] |= lws.late_labels(leader)
        self.workers = lws.workers_of(pair, leader, template["leaderWorkerTemplate"]["workerTemplate"])
        self.workers["metadata"]["uid"] = "uid-workers"
        worker = pod_in(self.workers, 1)
        worker["metadata"]["ownerReferences"] = [{"uid": "uid-workers", "controller": True}]
        self.revision = {
            "metadata": {
                "name": key,
                "namespace": pair["metadata"]["namespace"],
                "labels": {lws.LWS_NAME_LABEL: pair["metadata"]["name"], lws.LWS_REVISION_LABEL: key},
                "ownerReferences": [{"uid": "uid-1", "controller": True}],
            },
            "data": {"spec": template},
        }
        self.pods = [ready(leader), ready(worker)]
        self.pods[0]["metadata"]["uid"] = leader["metadata"]["uid"]
        self.sets = [self.leaders, self.workers]

    def step(self) -> RecordingApi:
        api = RecordingApi()
        objects = {
            "leaderworkersets.leaderworkerset.x-k8s.io": [self.pair],
            "statefulsets.apps": self.sets,
            "pods": self.pods,
            "services": [],
            "controllerrevisions.apps": [self.revision],
        }
        self.stand_in.reconcile(objects, api)  # type: ignore[arg-type]
        return api


def test_workers_are_made_once_their_leader_is_there(pair: Object):
    cluster = Cluster(pair)
    cluster.sets, cluster.pods = [cluster.leaders], [{**cluster.pods[0], "status": {"phase": "Pending"}}]
    assert cluster.step().names("StatefulSet") == ["llama3-70b-servers-0"]
    pair["spec"]["startupPolicy"] = "LeaderReady"
    assert cluster.step().names("StatefulSet") == []
    cluster.pods = [ready(cluster.pods[0])]
    assert cluster.step().names("StatefulSet") == ["llama3-70b-servers-0"]


def test_workers_of_an_earlier_leader_are_waited_for(pair: Object):
    cluster = Cluster(pair)
    cluster.pods = [cluster.pods[0]]
    cluster.pods[0]["metadata"]["uid"] = "uid-of-the-next-leader"
    assert cluster.step().names("StatefulSet") == []


LEADER = ("pods", "llama3-70b-servers-0")


def leaving(cluster: Cluster) -> None:
    cluster.pods[1]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def restarted(cluster: Cluster) -> None:
    cluster.pods[1]["status"]["containerStatuses"] = [{"restartCount": 1}]


def gone_and_back(cluster: Cluster) -> None:
    """Between two looks."""
    cluster.step()
    cluster.pods[1]["metadata"]["uid"] = "another"


@pytest.mark.parametrize("happens", [leaving, restarted, gone_and_back])
@pytest.mark.parametrize(
    ("policy", "anew"), [("RecreateGroupOnPodRestart", True), ("RecreateGroupAfterStart", True), ("None", False)]
)
def test_a_group_starts_anew_with_one_of_its_pods(pair: Object, happens: Callable[[Cluster], None], policy: str, anew: bool):
    pair["spec"]["leaderWorkerTemplate"]["restartPolicy"] = policy
    cluster = Cluster(pair)
    assert cluster.step().deleted == []
    happens(cluster)
    assert cluster.step().deleted == ([LEADER] if anew else [])


def test_a_group_that_is_still_starting_can_be_left_to_start(pair: Object):
    pair["spec"]["leaderWorkerTemplate"]["restartPolicy"] = "RecreateGroupAfterStart"
    cluster = Cluster(pair)
    cluster.pods[0]["status"]["phase"] = "Pending"
    leaving(cluster)
    assert cluster.step().deleted == []


def test_a_group_is_ready_when_leader_and_workers_are(pair: Object):
    def status() -> Object:
        api = cluster.step()
        return next(body[0]["value"] for _, body in api.patches if isinstance(body, list))

    cluster = Cluster(pair)
    cluster.workers["status"] = {"availableReplicas": 0}
    assert "readyReplicas" not in status()
    cluster.workers["status"] = {"availableReplicas": 1, "currentRevision": "a", "updateRevision": "b"}
    assert "readyReplicas" not in status()
    cluster.workers["status"] = {"availableReplicas": 1}
    cluster.leaders["status"] = {"replicas": 1}
    found = status()
    assert (found["replicas"], found["readyReplicas"], found["updatedReplicas"], found["observedGeneration"]) == (1, 1, 1, 1)
    assert [one["type"] for one in found["conditions"] if one["status"] == "True"] == ["Available"]
    cluster.pods[0]["status"]["conditions"] = []
    assert "readyReplicas" not in status()


def test_a_changed_template_is_a_new_revision_of_which_nothing_is_made_at_once(pair: Object):
    cluster = Cluster(pair)
    cluster.pair = copy.deepcopy(pair)
    cluster.pair["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"] = "other"
    api = cluster.step()
    (leaders,) = (item for item in api.made if item["kind"] == "StatefulSet")
    assert leaders["spec"]["updateStrategy"]["rollingUpdate"]["partition"] == 1
    assert leaders["metadata"]["labels"][lws.LWS_REVISION_LABEL] != cluster.leaders["metadata"]["labels"][lws.LWS_REVISION_LABEL]
    assert len(api.names("ControllerRevision")) == 1


# -- LeaderWorkerSet: updates ----------------------------------------------------------------------------------------------------

ROLLOUTS = st.builds(
    Rollout,
    replicas=st.integers(1, 6),
    unavailable=st.integers(0, 4),
    surge=st.integers(0, 4),
    partition=st.just(0),
).filter(lambda rollout: rollout.surge <= rollout.replicas and rollout.unavailable + rollout.surge > 0)


@given(ROLLOUTS)
def test_an_update_ends_and_never_takes_away_more_than_it_may(rollout: Rollout):
    groups = [Group(ready=True, updated=False)] * rollout.replicas
    partition, replicas = next_step(rollout, groups, 0, changed=True)
    assert partition == rollout.replicas  # at first nothing goes
    for _ in range(100):
        # The StatefulSet controller, at its fastest: what is new begins, what is old from the partition on goes.
        groups = groups[:replicas] + [Group(ready=False, updated=True)] * (replicas - len(groups))
        groups = [
            Group(ready=False, updated=True) if n >= partition and not group.updated else group for n, group in enumerate(groups)
        ]
        assert len(groups) <= rollout.replicas + rollout.surge
        assert sum(group.ready for group in groups) >= rollout.replicas - rollout.unavailable
        # The next one of those that started becomes ready.
        waiting = [n for n, group in enumerate(groups) if not group.ready]
        if not waiting and partition == 0 and len(groups) == rollout.replicas:
            break
        if waiting:
            groups[waiting[-1]] = Group(ready=True, updated=True)
        partition, replicas = next_step(rollout, groups, partition)
    assert groups == [Group(ready=True, updated=True)] * rollout.replicas


@pytest.mark.parametrize(
    ("are_ready", "partition"),
    [
        ((True, True, True), 2),
        ((False, True, True), 3),  # as many are away as may be
        ((True, True, False), 2),  # replacing what is away anyway takes nothing away
        ((False, False, False), 2),  # or an update out of a bad state would never begin
    ],
)
def test_groups_that_are_away_already_count(are_ready: tuple[bool, ...], partition: int):
    rollout = Rollout(replicas=3, unavailable=1, surge=0, partition=0)
    assert next_step(rollout, [Group(ready=one, updated=False) for one in are_ready], 3) == (partition, 3)


@pytest.mark.parametrize(("unready", "replicas"), [(4, 6), (3, 6), (2, 5), (1, 4)])
def test_surplus_groups_are_released_as_the_last_groups_become_ready(unready: int, replicas: int):
    groups = [Group(ready=n < 4 - unready, updated=n < 4 - unready) for n in range(4)] + [Group(ready=True, updated=True)] * 2
    assert next_step(Rollout(replicas=4, unavailable=1, surge=2, partition=0), groups, 4)[1] == replicas


def test_an_update_with_surge_waits_where_there_is_no_room_for_one_more():
    rollout = Rollout(replicas=1, unavailable=0, surge=1, partition=0)
    groups = [Group(ready=True, updated=False), Group(ready=False, updated=True)]
    assert next_step(rollout, groups, 1) == (1, 2)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({}, Rollout(4, 1, 0, 0)),
        ({"maxUnavailable": "30%", "maxSurge": "30%"}, Rollout(4, 1, 2, 0)),
        ({"maxUnavailable": 2, "maxSurge": 9, "partition": 3}, Rollout(4, 2, 4, 3)),
    ],
)
def test_shares_of_an_update_are_rounded_as_the_api_says(strategy: Object, expected: Rollout):
    spec = {"replicas": 4, "rolloutStrategy": {"rollingUpdateConfiguration": strategy}}
    assert lws.rollout_of({"spec": spec}) == expected


def test_groups_below_the_partition_of_the_spec_keep_their_template():
    rollout = Rollout(replicas=3, unavailable=3, surge=0, partition=2)
    assert next_step(rollout, [Group(ready=True, updated=False)] * 3, 3)[0] == 2


# -- EBS -------------------------------------------------------------------------------------------------------------------------


def claim(**spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data",
            "namespace": "demo",
            "uid": "uid-of-data",
            "annotations": {"volume.kubernetes.io/storage-provisioner": "ebs.csi.aws.com"},
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "gp3", "resources": {"requests": {"storage": "1500Mi"}}}
        | spec,
    }


def storage_class(**fields: Any) -> Object:
    usual: Object = {"provisioner": "ebs.csi.aws.com", "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer"}
    return {"metadata": {"name": "gp3"}} | usual | fields


ZONES = {"node-a": "us-east-2a", "node-b": "us-east-2b"}


def test_a_volume_is_made_in_the_zone_of_the_node_that_the_scheduler_chose():
    asked = claim()
    assert ebs.zone_of(asked, storage_class(), ZONES) == ""  # none yet
    asked["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = "node-b"
    zone = ebs.zone_of(asked, storage_class(), ZONES)
    volume = ebs.volume_of(asked, storage_class(), zone)
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-2b"]}]
    assert volume["spec"]["capacity"] == {"storage": "2Gi"}  # whole GiB
    assert volume["spec"]["claimRef"]["uid"] == "uid-of-data"
    assert volume["metadata"]["name"] == ebs.volume_name(asked)


def test_a_class_that_does_not_wait_takes_a_zone_it_allows():
    at_once = storage_class(volumeBindingMode="Immediate")
    assert ebs.zone_of(claim(), at_once, ZONES) == "us-east-2a"
    only = [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["us-east-2b"]}]}]
    assert ebs.zone_of(claim(), {**at_once, "allowedTopologies": only}, ZONES) == "us-east-2b"
    assert ebs.zone_of(claim(), at_once, {}) == ""


@pytest.mark.parametrize(
    ("spec", "possible"),
    [
        ({}, True),
        ({"accessModes": ["ReadWriteOncePod"]}, True),
        ({"accessModes": ["ReadWriteMany"]}, False),
        ({"accessModes": ["ReadOnlyMany"]}, False),
        ({"accessModes": ["ReadWriteMany"], "volumeMode": "Block"}, True),
    ],
)
def test_ebs_has_no_volume_for_several_nodes(spec: Object, possible: bool):
    assert (ebs.refusal_of(claim(**spec)) == "") is possible


def test_only_claims_left_to_the_driver_get_a_volume_and_only_its_own_volumes_go():
    assert ebs.is_asked_for(claim())
    assert not ebs.is_asked_for(claim(volumeName="there"))
    other = claim()
    other["metadata"]["annotations"] = {"volume.kubernetes.io/storage-provisioner": "efs.csi.aws.com"}
    assert not ebs.is_asked_for(other)
    volume: Object = ebs.volume_of(claim(), storage_class(), "us-east-2a") | {"status": {"phase": "Released"}}
    assert ebs.is_to_go(volume)
    assert not ebs.is_to_go(volume | {"status": {"phase": "Bound"}})
    kept = ebs.volume_of(claim(), storage_class(reclaimPolicy="Retain"), "us-east-2a") | {"status": {"phase": "Released"}}
    assert not ebs.is_to_go(kept)
    volume["metadata"]["annotations"] = {}
    assert not ebs.is_to_go(volume)


# -- Helm ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", STACKS)
def test_every_release_of_a_stack_has_a_record_that_helm_could_read(stack: str):
    graph = recorded(stack)
    records = helm_records(graph)
    releases = {(one.inputs["namespace"], one.inputs["name"]) for one in graph.of_type("kubernetes:helm.sh/v3:Release")}
    found = {(record["metadata"]["namespace"], record["metadata"]["labels"]["name"]): record for record in records}
    assert found.keys() == releases
    for (namespace, name), record in found.items():
        assert record["type"] == "helm.sh/release.v1"
        assert record["metadata"]["name"] == f"sh.helm.release.v1.{name}.v1"
        labels = record["metadata"]["labels"]
        assert (labels["owner"], labels["status"], labels["version"]) == ("helm", "deployed", "1")
        release = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(record["data"]["release"]))))
        assert (release["namespace"], release["info"]["description"]) == (namespace, DESCRIPTION)


# -- what they share -------------------------------------------------------------------------------------------------------------


def test_a_condition_keeps_the_time_of_its_last_turn():
    before = [
        {"type": "Ready", "status": "True", "reason": "Old", "lastTransitionTime": "then"},
        {"type": "Other", "status": "x"},
    ]
    item = {"metadata": {"generation": 2}, "status": {"conditions": before}}
    same, other = conditions(item, [condition("Ready", True, "New", "")])
    assert (same["lastTransitionTime"], same["reason"], same["observedGeneration"]) == ("then", "New", 2)
    assert other == before[1]
    turned, _ = conditions(item, [condition("Ready", False, "New", "")])
    assert turned["lastTransitionTime"] != "then"


# -- load balancers --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def gateway() -> Graph:
    section = {"gateway": {"host": "m.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ"}}
    return recorded_with(section, "inf2-llama2", {"eks-inference:endpointKeys": '{"team-a": "a-key-of-team-a-in-a-test"}'})


class Balanced:
    """Ingresses and Services of a stack, with the controller's pods or without; patches are applied."""

    def __init__(self, graph: Graph) -> None:
        self.controller = LoadBalancers(graph)
        live = [copy.deepcopy(item.manifest) for item in cluster_objects(graph)]
        self.ingresses = [item for item in live if item["kind"] == "Ingress"]
        self.services = [item for item in live if item["kind"] == "Service"]
        self.pods = [{"metadata": {"labels": {STANDS_IN_FOR_LABEL: LBC}}, "status": {"phase": "Running"}}]
        self.events: list[Object] = []

    def rounds(self, count: int = 2) -> None:
        for _ in range(count):
            api = RecordingApi()
            seen = {INGRESSES: self.ingresses, SERVICES: self.services, PODS: self.pods}
            self.controller.reconcile(copy.deepcopy(seen), cast(Any, api))
            self.events += api.made
            for item, body in api.patches:
                live = next(one for one in self.ingresses if one["metadata"]["namespace"] == item["metadata"]["namespace"])
                if isinstance(body, list):
                    live["status"] = body[0]["value"]
                else:
                    live["metadata"] |= body["metadata"]
            self.ingresses = [
                one for one in self.ingresses if "deletionTimestamp" not in one["metadata"] or one["metadata"].get("finalizers")
            ]

    def delete(self, ingress: Object) -> None:
        ingress["metadata"]["deletionTimestamp"] = "2026-11-25T00:00:00Z"

    def addresses(self) -> set[str]:
        return {one["status"]["loadBalancer"]["ingress"][0]["hostname"] for one in self.ingresses if one.get("status")}


LBC = "aws-load-balancer-controller"


@pytest.mark.thorough
def test_ingresses_of_one_group_get_one_address_and_are_held_until_it_has_gone(gateway: Graph):
    cluster = Balanced(gateway)
    cluster.rounds()
    assert len(cluster.ingresses) == 3
    assert all(ingress.get("status") for ingress in cluster.ingresses)
    assert len(cluster.addresses()) == 1
    assert cluster.controller.balancers == {"inf2-llama2-gateway"}
    for ingress in cluster.ingresses[:2]:
        cluster.delete(ingress)
    cluster.rounds(1)
    assert len(cluster.ingresses) == 1
    assert cluster.controller.balancers, "the last Ingress still needs it"
    cluster.delete(cluster.ingresses[0])
    cluster.rounds(1)
    assert not cluster.ingresses
    assert not cluster.controller.balancers


def test_without_its_controller_an_ingress_gets_no_address_and_never_goes(gateway: Graph):
    cluster = Balanced(gateway)
    cluster.pods = []
    cluster.rounds()
    assert not cluster.addresses()
    cluster.pods = [{"metadata": {"labels": {STANDS_IN_FOR_LABEL: LBC}}, "status": {"phase": "Running"}}]
    cluster.rounds()
    cluster.pods = []
    for ingress in cluster.ingresses:
        cluster.delete(ingress)
    cluster.rounds()
    assert len(cluster.ingresses) == 3
    assert cluster.controller.balancers, "a load balancer would be left behind"


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (
            lambda one: one["metadata"]["annotations"].update({"alb.ingress.kubernetes.io/scheme": "internet-facing"}),
            "conflicting",
        ),
        (lambda one: one["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"].update(name="x"), "there is no Service x"),
        (lambda one: one["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"].update(number=5), "has no port 5"),
    ],
)
def test_a_group_with_a_fault_gets_nothing_and_says_why(gateway: Graph, edit: Edit, told: str):
    cluster = Balanced(gateway)
    edit(cluster.ingresses[-1])
    cluster.rounds()
    assert not cluster.addresses()
    assert all(told in event["message"] for event in cluster.events)
    assert cluster.events


def test_ingresses_of_others_are_left_alone(gateway: Graph):
    cluster = Balanced(gateway)
    for ingress in cluster.ingresses:
        ingress["metadata"]["annotations"] = {}
    cluster.rounds()
    assert not any("finalizers" in ingress["metadata"] for ingress in cluster.ingresses)
