"""``my-scheduler`` of a shipped stack: a real kube-scheduler with the stack's own configuration and rights.

It asks the stand-in of the Neuron extension through the stack's own Service.
"""

import copy
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from conftest import recorded
from eks_inference.accelerators.neuron.plan import DEVICE_RESOURCE, EXTENSION_NAME, NAMESPACE, SCHEDULER_NAME
from eks_inference.place.placement import INSTANCE_TYPE_LABEL
from eks_inference_tools.reading.live_objects import identity_of
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane, control_plane
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api
from eks_inference_tools.simulate.control_plane.processes import free_port
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.schedulers import kube_schedulers
from eks_inference_tools.simulate.schedulers.extender import USAGE_ANNOTATION
from eks_inference_tools.simulate.schedulers.kube_schedulers import Schedulers
from eks_inference_tools.simulate.stand_ins.loop import StandIns
from eks_inference_tools.simulate.world.api_objects import ClusterObject, cluster_objects
from eks_inference_tools.simulate.world.scheduled_pods import DEVICES_ANNOTATION
from eks_inference_tools.simulate.world.unsimulated import Unsimulated
from stackgraph.graph.values import at, items, text

pytestmark = pytest.mark.cluster

STACK = "inf2-llama2"
SERVERS = ("llama2-a", "llama2-b", "llama2-c")
SECONDS = 120


@dataclass(frozen=True)
class Cluster:
    """A control plane with a core node, an inf2.48xlarge and the stack's scheduler."""

    plane: ControlPlane
    schedulers: Schedulers
    loop: StandIns
    objects: tuple[ClusterObject, ...]

    @property
    def api(self) -> Api:
        return self.plane.api

    def until(self, check: Callable[[], Any], what: str) -> Any:
        def found() -> Any:
            self.loop.ensure_alive()
            return check()

        return self.plane.processes.wait_until(found, seconds=SECONDS, what=what)

    def manifest(self, kind: str, name: str) -> dict[str, Any]:
        """An object of the stack."""
        (found,) = (one for one in self.objects if (one.kind, one.name) == (kind, name))
        return copy.deepcopy(found.manifest)

    def start(self, name: str, devices: int, scheduler: str = SCHEDULER_NAME) -> None:
        """A pod of the stack's pool with that many devices."""
        template = self.manifest("Deployment", SERVERS[0])["spec"]["template"]["spec"]
        spec = {
            **{key: template[key] for key in ("nodeSelector", "tolerations")},
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "none", "resources": {"limits": {DEVICE_RESOURCE: str(devices)}}}],
        }
        self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})

    def change_scheduler(self, template: dict[str, Any]) -> None:
        """Changes the pod template of ``my-scheduler``, so that another pod takes its place."""
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": SCHEDULER_NAME, "namespace": NAMESPACE}}
        self.api.patch(deployment, {"spec": {"template": template}})

    def pod(self, name: str) -> dict[str, Any]:
        found = self.api.get("pods", name, "default")
        assert found
        return found

    def devices(self, name: str) -> str:
        """The devices of a pod, once it runs."""
        self.until(lambda: at(self.pod(name), "status", "phase") == "Running", f"pod {name} runs")
        return at(self.pod(name), "metadata", "annotations", DEVICES_ANNOTATION) or ""

    def said(self, name: str, words: str) -> None:
        """Waits until an event about a pod says these words, maybe after others: the scheduler tries again and again."""
        about = ("default", name)

        def messages() -> list[str]:
            events = self.api.list("events", "default")
            return [text(event.get("message")) for event in events if identity_of({"metadata": event["involvedObject"]}) == about]

        self.until(lambda: any(words in message for message in messages()), f"an event says of {name}: {words!r}")


def node(name: str, labels: dict[str, str], **devices: str) -> dict[str, Any]:
    size = {"cpu": "192", "memory": "768Gi", "pods": "110", "ephemeral-storage": "1000Gi", **devices}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": size, "allocatable": size},
    }


@pytest.fixture(scope="module")
def started(toolchain: Toolchain) -> Iterator[Cluster]:
    objects = cluster_objects(recorded(STACK))
    with control_plane(toolchain) as plane, closing(Schedulers(plane)) as running, StandIns(plane.api, [running]) as loop:
        cluster = Cluster(plane, running, loop, objects)
        pools = [
            cluster.manifest("Deployment", name)["spec"]["template"]["spec"]["nodeSelector"]
            for name in (SCHEDULER_NAME, SERVERS[0])
        ]
        plane.api.create(node("core-1", pools[0]))
        plane.api.create(
            node("inf2-1", {**pools[1], INSTANCE_TYPE_LABEL: "inf2.48xlarge"}, **{DEVICE_RESOURCE: "12"}),
        )
        for cluster_object in objects:
            if cluster_object.name.startswith((SCHEDULER_NAME, EXTENSION_NAME)):
                plane.api.apply(cluster_object.manifest)
        yield cluster


@pytest.fixture
def cluster(started: Cluster) -> Iterator[Cluster]:
    """Without a pod of another test, before and after: it would hold devices."""
    yield started
    for pod in started.api.list("pods", "default"):
        started.api.delete("pods", pod["metadata"]["name"], "default")
    places = ("default", *SERVERS)
    started.until(lambda: not any(started.api.list("pods", place) for place in places), "the pods are gone")


def test_three_servers_fill_the_node_and_a_fourth_waits(cluster: Cluster):
    for cluster_object in cluster.objects:
        where = cluster_object.name if cluster_object.kind == "Namespace" else cluster_object.namespace
        if where in SERVERS and cluster_object.kind in ("Namespace", "ServiceAccount", "Deployment"):
            cluster.api.apply(cluster_object.manifest)
    cluster.until(
        lambda: all(at(cluster.api.get("deployments.apps", name, name), "status", "readyReplicas") for name in SERVERS),
        "the servers are ready",
    )
    pods = [pod for name in SERVERS for pod in cluster.api.list("pods", name)]
    given = sorted(pod["metadata"]["annotations"][DEVICES_ANNOTATION] for pod in pods)
    assert given == ["0,1,2,3", "4,5,6,7", "8,9,10,11"]
    assert {pod["spec"]["schedulerName"] for pod in pods} == {SCHEDULER_NAME}
    assert at(cluster.api.get("nodes", "inf2-1"), "metadata", "annotations", USAGE_ANNOTATION) == ",".join(["true"] * 12)

    cluster.start("fourth", 4)
    cluster.said("fourth", f"Insufficient {DEVICE_RESOURCE}")
    assert "nodeName" not in cluster.pod("fourth")["spec"]
    # A server that goes makes room: the pod that waited gets its devices.
    cluster.api.delete("deployments.apps", SERVERS[1], SERVERS[1])
    (freed,) = (pod["metadata"]["annotations"][DEVICES_ANNOTATION] for pod in pods if pod["metadata"]["namespace"] == SERVERS[1])
    assert cluster.devices("fourth") == freed
    for name in SERVERS:
        cluster.api.delete("deployments.apps", name, name)


def test_free_devices_that_are_no_neighbours_leave_a_pod_waiting_with_the_extension_s_words(cluster: Cluster):
    for number, devices in enumerate((2, 4, 2, 4)):
        cluster.start(f"part-{number}", devices)
        cluster.devices(f"part-{number}")
    for name in ("part-0", "part-2"):
        cluster.api.delete("pods", name, "default")
    cluster.start("four", 4)
    cluster.said("four", "1 no 4 contiguous free Neuron devices of 12: free 0-1, 6-7")
    cluster.start("two", 2)
    assert cluster.devices("two") == "0,1"
    assert "nodeName" not in cluster.pod("four")["spec"]
    cluster.api.delete("pods", "part-1", "default")
    assert cluster.devices("four") == "2,3,4,5"


def test_pods_of_the_default_scheduler_are_left_alone(cluster: Cluster):
    cluster.start("plain", 1, scheduler="default-scheduler")
    assert cluster.devices("plain") == ""

    def placed_by() -> list[str]:
        events = cluster.api.list("events", "default")
        return [event["reportingComponent"] for event in events if event["reason"] == "Scheduled" and "plain" in event["message"]]

    assert cluster.until(placed_by, "an event says who placed the pod") == ["default-scheduler"]


def test_pods_wait_while_the_extension_is_away(cluster: Cluster):
    extension = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": EXTENSION_NAME, "namespace": NAMESPACE}}
    cluster.api.patch(extension, {"spec": {"replicas": 0}})
    cluster.until(
        lambda: not any(EXTENSION_NAME in pod["metadata"]["name"] for pod in cluster.api.list("pods", NAMESPACE)),
        "the extension is away",
    )
    cluster.start("waits", 4)
    cluster.said("waits", f"no ready pod is behind Service {NAMESPACE}/{EXTENSION_NAME} port 12345")
    cluster.api.patch(extension, {"spec": {"replicas": 1}})
    assert cluster.devices("waits") == "0,1,2,3"


def test_a_new_scheduler_takes_over_at_once(cluster: Cluster):
    """The one that goes gives up its lease, with the rights of the stack's role. A lease that is not given up runs out."""

    def lease() -> dict[str, Any]:
        return cluster.api.get("leases.coordination.k8s.io", SCHEDULER_NAME, NAMESPACE) or {}

    first = cluster.until(lambda: at(found := lease(), "spec", "holderIdentity") and found, "a scheduler leads")
    since = {"resourceVersion": first["metadata"]["resourceVersion"], "watch": "true", "timeoutSeconds": "1"}
    cluster.change_scheduler({"metadata": {"annotations": {"changed": "yes"}}})

    def holders() -> list[str]:
        """Who has had the lease since, one after another, once it has another holder."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        told = cluster.api.raw("GET", path, query={**since, "fieldSelector": f"metadata.name={SCHEDULER_NAME}"})
        events = [told] if isinstance(told, dict) else map(json.loads, told.splitlines())
        found = [event["object"]["spec"].get("holderIdentity", "") for event in events]
        return found if found and found[-1] not in ("", first["spec"]["holderIdentity"]) else []

    assert "" in cluster.until(holders, "another scheduler leads")
    cluster.start("late", 4)
    assert cluster.devices("late") == "0,1,2,3"


def test_a_port_that_is_taken_meanwhile_is_tried_again_with_another(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = [taken.getsockname()[1]]
        monkeypatch.setattr(kube_schedulers, "free_port", lambda: ports.pop() if ports else free_port())
        cluster.change_scheduler({"metadata": {"annotations": {"changed": "again"}}})
        cluster.until(lambda: not ports, "the scheduler was started on the port")
        cluster.start("later", 4)
        assert cluster.devices("later") == "0,1,2,3"
    assert cluster.schedulers.complaints() == ()


def test_the_stack_s_roles_suffice(cluster: Cluster):
    cluster.start("one", 4)
    cluster.devices("one")
    assert cluster.schedulers.complaints() == ()
    assert cluster.schedulers.unsimulated() == ()


# -- what goes wrong is told: last, since what was forbidden stays in the logs ---------------------------------------------------


def test_an_extender_of_another_maker_is_left_out_and_told(cluster: Cluster):
    config = cluster.manifest("ConfigMap", f"{SCHEDULER_NAME}-config")
    (key,) = config["data"]
    text = config["data"][key].replace(SCHEDULER_NAME, "other-scheduler").replace(EXTENSION_NAME, "other")
    text = text.replace("aws.amazon.com/", "example.com/")
    cluster.api.create({**config, "metadata": {"name": "other", "namespace": NAMESPACE}, "data": {key: text}})
    pod = cluster.manifest("Deployment", SCHEDULER_NAME)["spec"]["template"]
    pod["spec"]["volumes"][0]["configMap"]["name"] = "other"
    cluster.api.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "namespace": NAMESPACE}, "spec": pod["spec"]}
    )
    cluster.until(cluster.schedulers.unsimulated, "the extender is told")
    url = f"http://other.{NAMESPACE}.svc.cluster.local:12345"
    why = "only the Neuron extension has a stand-in: pods are placed without asking this extender"
    assert cluster.schedulers.unsimulated() == (Unsimulated(f"extender {url} of other-scheduler", why),)
    # Its lease has a name that the role does not know.
    cluster.until(lambda: any("other-scheduler" in one for one in cluster.schedulers.complaints()), "the lease is forbidden")
    cluster.api.delete("pods", "other", NAMESPACE)


def test_rights_the_extension_lacks_are_told(cluster: Cluster):
    role = cluster.manifest("ClusterRole", EXTENSION_NAME)
    lacking = copy.deepcopy(role)
    lacking["rules"] = [rule for rule in items(lacking["rules"]) if "pods/binding" not in rule["resources"]]
    cluster.api.apply(lacking)
    binding = {"verb": "create", "group": "", "resource": "pods", "subresource": "binding"}
    asked = {"user": f"system:serviceaccount:{NAMESPACE}:{EXTENSION_NAME}", "resourceAttributes": binding}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": asked}
    cluster.until(lambda: not cluster.api.create(review)["status"]["allowed"], "the API server knows the role")
    cluster.start("unbound", 4)
    cluster.said("unbound", 'cannot create resource "pods/binding"')
    assert any("pods/binding" in complaint and EXTENSION_NAME in complaint for complaint in cluster.schedulers.complaints())
    cluster.api.apply(role)
    assert cluster.devices("unbound") == "0,1,2,3"


def test_a_scheduler_that_ends_is_started_again_and_told(cluster: Cluster):
    template = cluster.manifest("Deployment", SCHEDULER_NAME)["spec"]["template"]["spec"]
    container = {**template["containers"][0], "args": [*template["containers"][0]["args"], "--no-such-flag"]}
    cluster.change_scheduler({"spec": {"containers": [container]}})
    told = f"Deployment {NAMESPACE}/{SCHEDULER_NAME}: the scheduler ended with exit code 1: "
    cluster.until(
        lambda: any(one.startswith(told) and "unknown flag: --no-such-flag" in one for one in cluster.schedulers.complaints()),
        "the end is told, and why",
    )
    cluster.plane.processes.ensure_alive()
