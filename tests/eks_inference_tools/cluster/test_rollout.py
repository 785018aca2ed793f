"""Rollouts through the real controllers: what goes through, and what would hang in ``pulumi up`` for ever, with its reason."""

import copy
import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from cluster.running import followed
from eks_inference.accelerators.neuron.plan import DEVICE_RESOURCE
from eks_inference.place.placement import HOSTNAME_LABEL, ZONE_LABEL
from eks_inference_tools.reading.known_messages import runbook
from eks_inference_tools.reading.live_objects import Seen, labels_of, name_of, node_of
from eks_inference_tools.reading.object_kinds import DEPLOYMENTS, EBS_DRIVERS, PODS
from eks_inference_tools.reading.readiness import SKIP_AWAIT
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane, control_plane
from eks_inference_tools.simulate.control_plane.processes import ComponentError
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.rehearsal.clock import HELD
from eks_inference_tools.simulate.rollout.changes import containers_in
from eks_inference_tools.simulate.rollout.rollout import create, delete, settle, update
from eks_inference_tools.simulate.rollout.walk import Outcome, Stall
from eks_inference_tools.simulate.stand_ins.ebs import EbsVolumes
from eks_inference_tools.simulate.stand_ins.kuberay import KubeRay
from eks_inference_tools.simulate.stand_ins.loop import StandIns
from eks_inference_tools.simulate.world.admit import install_definitions
from eks_inference_tools.simulate.world.api_objects import ClusterObject
from eks_inference_tools.verify.observed import Observed
from eks_inference_tools.verify.workload_checks import workload
from stackgraph.graph.values import at

pytestmark = pytest.mark.cluster

DEVICES = 12

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def plane(toolchain: Toolchain) -> Iterator[ControlPlane]:
    """A control plane with one node that has devices, and one in another zone that has none."""
    custom = Stack("custom")
    custom.serve_with_ray("llm", 1)
    definitions = partial(install_definitions, objects=custom.all)
    with control_plane(toolchain, prepare=definitions) as plane, StandIns(plane.api, [EbsVolumes(), KubeRay()]):
        plane.api.create(node("plain", "us-west-2a"))
        plane.api.create(node("inf2", "us-west-2b", **{DEVICE_RESOURCE: str(DEVICES)}))
        yield plane


def node(name: str, zone: str, **devices: str) -> Manifest:
    size = {"cpu": "192", "memory": "768Gi", "pods": "110", "ephemeral-storage": "1000Gi", **devices}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {ZONE_LABEL: zone, HOSTNAME_LABEL: name}},
        "status": {"capacity": size, "allocatable": size},
    }


class Stack:
    """Objects of a namespace in the order in which they were added, each after those that it names."""

    def __init__(self, namespace: str, labels: dict[str, str] | None = None) -> None:
        self.namespace = namespace
        self.objects: dict[str, ClusterObject] = {}
        self.add("v1/Namespace", namespace, metadata={"labels": labels or {}})

    def add(self, kind: str, name: str, *after: str, metadata: Manifest | None = None, **fields: Any) -> None:
        version, _, kind = kind.rpartition("/")
        cluster_wide = kind in ("Namespace", "PriorityClass", "StorageClass")
        place = {} if cluster_wide else {"namespace": self.namespace}
        token = f"kubernetes:{version if '/' in version else f'core/{version}'}:{kind}"
        self.objects[name] = ClusterObject(
            urn=f"urn:pulumi:test::test::{token}::{name}",
            manifest={"apiVersion": version, "kind": kind, "metadata": {**(metadata or {}), "name": name, **place}, **fields},
            after=frozenset(
                self.objects[one].urn for one in (*after, *(() if cluster_wide or not self.objects else (self.namespace,)))
            ),
            title=f"{kind} {'' if cluster_wide else f'{self.namespace}/'}{name}",
        )

    def serve(self, name: str, devices: int, *after: str, surge: int = 0, replicas: int = 1, **pod: Any) -> None:
        """A Deployment."""
        strategy = {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1 - surge}}
        spec = {"replicas": replicas, "strategy": strategy, "selector": {"matchLabels": {"app": name}}}
        self.add("apps/v1/Deployment", name, *after, spec={**spec, "template": template(name, devices, **pod)})

    def serve_with_ray(self, name: str, devices: int) -> None:
        """A RayService with one worker, which is upgraded by a second cluster beside the first."""
        serve = {"applications": [{"name": name, "deployments": [{"name": name, "ray_actor_options": {"num_cpus": 1}}]}]}
        worker = template("worker", 0, container={"resources": {"limits": {"cpu": "1", DEVICE_RESOURCE: str(devices)}}})
        group = {"groupName": "group", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "rayStartParams": {}}
        cluster = {
            "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": template("head", 0)},
            "workerGroupSpecs": [{**group, "template": worker}],
        }
        spec = {"serveConfigV2": yaml.dump(serve), "upgradeStrategy": {"type": "NewCluster"}, "rayClusterConfig": cluster}
        self.add("ray.io/v1/RayService", name, spec=spec)

    def run(self, name: str, *after: str, metadata: Manifest | None = None, **pod: Any) -> None:
        """A Job."""
        spec = {"backoffLimit": 0, "template": template(name, 0, restartPolicy="Never", **pod)}
        self.add("batch/v1/Job", name, *after, metadata=metadata, spec=spec)

    @property
    def all(self) -> tuple[ClusterObject, ...]:
        return tuple(self.objects.values())

    def with_image(self, image: str) -> tuple[ClusterObject, ...]:
        changed = copy.deepcopy(self.all)
        for container in (one for item in changed for one in containers_in(item.manifest)):
            container["image"] = image
        return changed


def template(name: str, devices: int, **pod: Any) -> Manifest:
    resources = {"limits": {DEVICE_RESOURCE: str(devices)}} if devices else {}
    container = {"name": "main", "image": "server:1", "resources": resources, **pod.pop("container", {})}
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **pod}}


def only_stall(outcome: Outcome) -> Stall:
    assert not outcome.is_complete
    assert not outcome.refusals
    (stall,) = outcome.stalls
    return stall


@pytest.fixture
def stack(request: pytest.FixtureRequest, plane: ControlPlane) -> Iterator[Stack]:
    """An empty stack; its objects are gone when the test is over."""
    stack = Stack(request.node.name.removeprefix("test_").replace("_", "-")[:50].strip("-"))
    yield stack
    namespace, *inside = stack.all
    assert delete(plane, inside).is_complete
    plane.api.delete("namespaces", namespace.name)  # nothing is in it, and nobody waits for it


# -- what goes through -----------------------------------------------------------------------------------------------------------


def test_a_stack_is_made_changed_and_deleted(plane: ControlPlane):
    stack = Stack("whole")
    stack.serve("server", DEVICES)
    stack.add("v1/Service", "api", "server", spec={"selector": {"app": "server"}, "ports": [{"port": 80}]})
    stack.run("check-0123456789", "server")

    made = create(plane, stack.all)
    assert made.is_complete, made
    # The Service and the Job come after the Deployment, each when it is ready.
    first, last = [item.title for item in stack.all[:2]], {item.title for item in stack.all[2:]}
    assert [step.title for step in made.steps[:2]] == first
    assert {step.title for step in made.steps[2:]} == last
    assert settle(plane, stack.all).is_complete

    most = 0

    def count(seen: Any) -> None:
        nonlocal most
        most = max(most, sum(at(pod, "metadata", "labels", "app") == "server" for pod in seen["pods"]))

    other = stack.with_image("server:2")
    changed = update(plane, stack.all, other, observe=count)
    assert changed.is_complete, changed
    assert [(step.title, step.action) for step in changed.steps] == [
        ("Deployment whole/server", "update"),
        ("Job whole/check-0123456789", "replace"),
    ]
    (pod,) = [pod for pod in plane.api.list("pods", "whole") if at(pod, "metadata", "labels", "app") == "server"]
    assert pod["spec"]["containers"][0]["image"] == "server:2"
    assert most <= 2  # the one that goes and the one that comes, which waits for its devices

    gone = delete(plane, other)
    assert gone.is_complete, gone
    assert [step.title for step in gone.steps][-2:] == ["Namespace whole", "what objects leave behind"]
    assert plane.api.get("namespaces", "whole") is None


def test_a_job_with_priority_takes_the_devices_of_a_server(plane: ControlPlane, stack: Stack):
    """As the pair's compilation does; the server comes back after it."""
    stack.serve("server", DEVICES)
    stack.add("scheduling.k8s.io/v1/PriorityClass", "urgent", value=1000)
    devices = {"resources": {"limits": {DEVICE_RESOURCE: str(DEVICES)}}}
    stack.run("compile", "server", "urgent", priorityClassName="urgent", container=devices)
    for outcome in (create(plane, stack.all), settle(plane, stack.all)):
        assert outcome.is_complete, outcome


# -- what would hang -------------------------------------------------------------------------------------------------------------


def test_a_surge_has_no_room_on_a_full_node(plane: ControlPlane, stack: Stack):
    stack.serve("server", DEVICES, surge=1)
    stack.add("v1/Service", "api", "server", spec={"selector": {"app": "server"}, "ports": [{"port": 80}]})
    stack.run("check", "server")
    assert create(plane, stack.all).is_complete
    stall = only_stall(update(plane, stack.all, stack.with_image("server:2")))
    assert stall.title == f"Deployment {stack.namespace}/server"
    assert stall.waits_for == "0 of 1 pod of the newest revision is ready"
    assert f"2 Insufficient {DEVICE_RESOURCE}" in stall.words[0]
    assert stall.behind == (f"Job {stack.namespace}/check",)


def test_a_surge_is_more_than_the_quota(plane: ControlPlane, stack: Stack):
    stack.add("v1/ResourceQuota", "devices", spec={"hard": {f"requests.{DEVICE_RESOURCE}": "4"}})
    stack.serve("server", 4, "devices", surge=1)
    assert create(plane, stack.all).is_complete
    stall = only_stall(update(plane, stack.all, stack.with_image("server:2")))
    assert any("exceeded quota: devices" in words for words in stall.words)


def test_pod_security_refuses_the_pods(plane: ControlPlane, stack: Stack):
    stack.objects[stack.namespace].manifest["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    stack.serve("server", 1, hostNetwork=True)
    stall = only_stall(create(plane, stack.all))
    assert stall.waits_for.startswith("0 of 1 pod")
    assert any('violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)' in words for words in stall.words)


def test_a_job_comes_before_its_priority(plane: ControlPlane, stack: Stack):
    stack.run("compile", priorityClassName="first")
    stack.add("scheduling.k8s.io/v1/PriorityClass", "first", "compile", value=1000)
    stall = only_stall(create(plane, stack.all))
    assert stall.waits_for == "the Job is not complete (0 active, 0 succeeded, 0 failed)"
    assert any("no PriorityClass with name first was found" in words for words in stall.words)
    assert stall.behind == ("PriorityClass first",)


def test_a_job_waits_for_the_devices_of_a_server_that_stays(plane: ControlPlane, stack: Stack):
    stack.serve("server", DEVICES)
    devices = {"resources": {"limits": {DEVICE_RESOURCE: "1"}}}
    stack.run("compile", "server", container=devices)
    stall = only_stall(create(plane, stack.all))
    assert stall.title == f"Job {stack.namespace}/compile"
    assert f"2 Insufficient {DEVICE_RESOURCE}" in stall.words[0]


def test_a_volume_is_in_another_zone(plane: ControlPlane, stack: Stack):
    """A class that does not wait for the pod takes any zone."""
    stack.add("storage.k8s.io/v1/StorageClass", "at-once", provisioner=EBS_DRIVERS[0], volumeBindingMode="Immediate")
    resources = {"requests": {"storage": "1Gi"}}
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "at-once", "resources": resources}
    stack.add("v1/PersistentVolumeClaim", "cache", "at-once", spec=claim)
    volume = {"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}}
    stack.serve("server", 1, "cache", volumes=[volume])
    stall = only_stall(create(plane, stack.all))
    assert stall.title == f"Deployment {stack.namespace}/server"
    assert "didn't match PersistentVolume's node affinity" in stall.words[0]


def test_a_claim_has_no_class(plane: ControlPlane, stack: Stack):
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "none-such", "resources": {"requests": {"storage": "1Gi"}}}
    stack.add("v1/PersistentVolumeClaim", "cache", spec=claim)
    stall = only_stall(create(plane, stack.all))
    assert stall.waits_for == "the claim is Pending, not Bound, and there is no class none-such"
    assert stall.words == ('storageclass.storage.k8s.io "none-such" not found',)


def test_what_pulumi_does_not_wait_for_is_waited_for_in_the_end(plane: ControlPlane, stack: Stack):
    stack.serve("server", DEVICES + 1)
    stack.objects["server"].manifest["metadata"]["annotations"] = {SKIP_AWAIT: "true"}
    stack.add("v1/Service", "api", spec={"selector": {"app": "server"}, "ports": [{"port": 80}]})
    assert create(plane, stack.all).is_complete
    stalls = {stall.title: stall for stall in settle(plane, stack.all).stalls}
    assert stalls.keys() == {f"Deployment {stack.namespace}/server", f"Service {stack.namespace}/api"}
    assert stalls[f"Service {stack.namespace}/api"].waits_for == "no ready pod is behind it"


def test_a_second_ray_cluster_has_no_room(plane: ControlPlane, stack: Stack):
    """Pulumi goes on at once; in the end nothing has come of it."""
    stack.serve_with_ray("llm", DEVICES)
    for outcome in (create(plane, stack.all), settle(plane, stack.all)):
        assert outcome.is_complete, outcome
    other = stack.with_image("server:2")
    assert update(plane, stack.all, other).is_complete
    stall = only_stall(settle(plane, other))
    assert stall.title == f"RayService {stack.namespace}/llm"
    assert "its condition UpgradeInProgress is not False" in stall.waits_for
    assert f"Insufficient {DEVICE_RESOURCE}" in stall.words[0]


def test_a_volume_stays_behind(plane: ControlPlane, stack: Stack):
    stack.add("storage.k8s.io/v1/StorageClass", "kept", provisioner=EBS_DRIVERS[0], reclaimPolicy="Retain")
    resources = {"requests": {"storage": "1Gi"}}
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "kept", "resources": resources}
    stack.add("v1/PersistentVolumeClaim", "cache", "kept", spec=claim)
    assert create(plane, stack.all).is_complete
    (volume,) = plane.api.list("persistentvolumes")
    stall = only_stall(delete(plane, stack.all[1:]))
    assert stall.waits_for == f"still there: PersistentVolume {volume['metadata']['name']}"
    plane.api.delete("persistentvolumes", volume["metadata"]["name"])


# -- what is refused -------------------------------------------------------------------------------------------------------------


def test_what_is_there_already_is_not_made_again(plane: ControlPlane, stack: Stack):
    assert create(plane, stack.all).is_complete
    (refusal,) = create(plane, stack.all).refusals
    assert refusal.reason == "AlreadyExists"


def test_a_field_that_another_has_set_is_left_to_it(plane: ControlPlane, stack: Stack):
    """As a HorizontalPodAutoscaler does with the replicas."""
    stack.serve("server", 1)
    assert create(plane, stack.all).is_complete
    deployment = stack.objects["server"].manifest
    plane.api.apply({**deployment, "spec": {"replicas": 2}}, manager="autoscaler")
    (refusal,) = update(plane, stack.all, stack.with_image("server:2")).refusals
    assert refusal.reason == "Conflict"
    assert 'conflict with "autoscaler": .spec.replicas' in refusal.message


# -- the runbook -----------------------------------------------------------------------------------------------------------------


def test_a_pod_that_waits_for_devices_is_told_and_lands_when_they_are_free(plane: ControlPlane, stack: Stack):
    stack.serve("first", DEVICES)
    stack.serve("second", 1, "first")
    stall = only_stall(create(plane, stack.all))
    assert runbook(f"is Pending: {stall.words[0]}") == ("docs/runbook/pending.md",)
    (pod,) = [item["metadata"]["name"] for item in plane.api.list("pods") if labels_of(item).get("app") == "second"]
    assert f"Insufficient {DEVICE_RESOURCE}" in followed(plane, "pending", "describe pod POD", NAMESPACE=stack.namespace, POD=pod)
    plane.api.patch(stack.objects["first"].manifest, {"spec": {"replicas": 0}})
    assert settle(plane, [cluster_object for cluster_object in stack.all if "first" not in cluster_object.title]).is_complete


def test_a_missing_image_takes_the_old_pod_first_and_the_last_revision_brings_it_back(plane: ControlPlane, stack: Stack):
    """The kubelet's own words: kwok leaves pods that are held as they are."""
    stack.serve("server", DEVICES)
    assert create(plane, stack.all).is_complete
    wrong = stack.with_image("server:none")
    wrong[-1].manifest["spec"]["template"]["metadata"]["annotations"] = {HELD: "yes"}
    why = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "server:none": not found'}
    container = {"name": "main", "image": "server:none", "imageID": "", "ready": False, "restartCount": 0}
    status = {"containerStatuses": [{**container, "state": {"waiting": why}}]}

    def pull(seen: Seen) -> None:
        for pod in seen[PODS]:
            if HELD in (at(pod, "metadata", "annotations") or {}) and node_of(pod) and not at(pod, "status", "containerStatuses"):
                plane.api.patch(pod, {"status": status}, subresource="status")

    stall = only_stall(update(plane, stack.all, wrong, observe=pull))
    assert stall.waits_for == "0 of 1 pod of the newest revision is ready"
    (pod,) = [name_of(item) for item in plane.api.list(PODS, stack.namespace)]  # the old one is gone
    there = Observed("", {resource: plane.api.list(resource) for resource in (DEPLOYMENTS, PODS)})
    finding = workload(DEPLOYMENTS, wrong[-1].manifest, there.all(DEPLOYMENTS)[0], there)
    assert (finding.verdict, runbook(finding.found)) == ("failed", ("docs/runbook/image.md",))
    assert "ImagePullBackOff" in followed(plane, "image", "describe pod POD", NAMESPACE=stack.namespace, POD=pod)
    followed(plane, "image", "delete pod POD", NAMESPACE=stack.namespace, POD=pod)
    assert update(plane, wrong, stack.all).is_complete


def test_a_chart_that_was_being_installed_and_a_finalizer_without_its_controller(plane: ControlPlane, stack: Stack):
    for state in ("pending-install", "deployed"):
        stack.add("v1/Secret", f"release-{state}", metadata={"labels": {"owner": "helm", "status": state}})
    backend = {"service": {"name": "api", "port": {"number": 80}}}
    stack.add(
        "networking.k8s.io/v1/Ingress", "held", metadata={"finalizers": ["example.com/nobody"]}, spec={"defaultBackend": backend}
    )
    assert create(plane, stack.all).is_complete
    assert "held" in followed(plane, "certificate", "get ingress")
    followed(plane, "interrupted-up", "status=pending-install", NAMESPACE=stack.namespace)
    left = [item["metadata"]["name"] for item in plane.api.list("secrets") if item["metadata"]["namespace"] == stack.namespace]
    assert left == ["release-deployed"]
    plane.api.delete("ingresses.networking.k8s.io", "held", stack.namespace)
    followed(plane, "stuck-destroy", "patch ingress", NAMESPACE=stack.namespace, NAME="held")
    assert not [one for one in plane.api.list("ingresses.networking.k8s.io") if one["metadata"]["namespace"] == stack.namespace]


def test_a_bad_node_is_drained_and_its_pods_wait_for_the_next(plane: ControlPlane, stack: Stack):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "inf2"}}
    stack.serve("server", 1)
    assert create(plane, stack.all).is_complete
    before = at(plane.api.get("nodes", "inf2"), "spec", "taints") or []
    for page, taint in (("broken-device", "example.com/xid"), ("node-not-ready", "node.kubernetes.io/not-ready")):
        plane.api.patch(node, {"spec": {"taints": [*before, {"key": taint, "effect": "NoSchedule"}]}})
        assert "inf2" in followed(plane, page, "drain", NODE="inf2")
        assert not [item for item in plane.api.list("pods") if at(item, "spec", "nodeName") == "inf2"]
        plane.api.patch(node, {"spec": {"unschedulable": False, "taints": before}})
        assert settle(plane, stack.all).is_complete
    assert "inf2" in followed(plane, "node-not-ready", "describe node", NODE="inf2")


# -- a fault of the simulation itself --------------------------------------------------------------------------------------------


def test_a_component_that_crashes_is_told_at_once(toolchain: Toolchain):
    stack = Stack("crash")
    stack.serve("server", 1)
    with control_plane(toolchain) as plane:
        os.kill(plane.processes.pid("kube-controller-manager"), signal.SIGKILL)
        with pytest.raises(ComponentError, match="kube-controller-manager was ended by signal 9"):
            create(plane, stack.all)
