"""The stand-in of the Neuron scheduler extension: what it answers a kube-scheduler over HTTP, and what it writes."""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference.place.placement import INSTANCE_TYPE_LABEL
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal
from eks_inference_tools.simulate.control_plane.processes import serving
from eks_inference_tools.simulate.schedulers.extender import (
    USAGE_ANNOTATION,
    NeuronExtension,
    Refused,
    ServicePort,
    pod_behind,
    service_of,
)
from eks_inference_tools.simulate.world.scheduled_pods import DEVICES_ANNOTATION
from waiting import PATIENCE_S

NODE = "inf2-1"
SERVICE = ServicePort("kube-system", "k8s-neuron-scheduler", 12345)


class Cluster(Api):
    """What the stand-in needs of an API server, in memory. ``refuses`` are verbs it forbids."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.objects: dict[str, dict[tuple[str, str], dict[str, Any]]] = {"pods": {}, "nodes": {}}
        self.refuses: set[str] = set()
        self.written: list[str] = []
        for one in nodes:
            self.add("nodes", one)

    def add(self, resource: str, item: dict[str, Any]) -> dict[str, Any]:
        metadata = item["metadata"]
        self.objects.setdefault(resource, {})[metadata.get("namespace", ""), metadata["name"]] = item
        return item

    def get(self, resource: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        return self.objects.get(resource, {}).get((namespace, name))

    def list(self, resource: str, namespace: str = "", **query: str) -> list[dict[str, Any]]:
        self._allow("list")
        found = [item for (where, _), item in self.objects.get(resource, {}).items() if namespace in ("", where)]
        if selector := query.get("fieldSelector"):
            key, node = selector.split("=")
            assert key == "spec.nodeName"
            found = [item for item in found if item["spec"].get("nodeName") == node]
        if selector := query.get("labelSelector"):
            key, value = selector.split("=")
            found = [item for item in found if item["metadata"].get("labels", {}).get(key) == value]
        return found

    def patch(self, item: Mapping[str, Any], body: Any, *, subresource: str = "", kind: str = "merge") -> dict[str, Any]:
        self._allow("patch")
        self.written.append(f"patch {item['metadata']['name']}{subresource and '/' + subresource}")
        item["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
        return dict(item)

    def create_sub(self, item: Mapping[str, Any], subresource: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._allow("bind")
        self.written.append(f"{body['kind']} {item['metadata']['name']}/{subresource}")
        if item["metadata"]["uid"] != body["metadata"]["uid"] or "nodeName" in item["spec"]:
            raise ApiRefusal(409, "Conflict", "the pod is another one, or bound")
        item["spec"]["nodeName"] = body["target"]["name"]
        return dict(body)

    def _allow(self, verb: str) -> None:
        if verb in self.refuses:
            raise ApiRefusal(403, "Forbidden", f"pods is forbidden: User cannot {verb}")


def node(name: str = NODE, type_name: str = "inf2.48xlarge") -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {INSTANCE_TYPE_LABEL: type_name}}}


def pod(name: str, devices: int | str, resource: str = DEVICE_RESOURCE, **more: Any) -> dict[str, Any]:
    containers = [{"name": "server", "resources": {"limits": {resource: str(devices)}}}]
    return {
        "metadata": {"name": name, "namespace": "demo", "uid": f"uid-{name}"},
        "spec": {"containers": containers, **more},
        "status": {"phase": "Pending"},
    }


def binding(name: str, node: str = NODE) -> dict[str, str]:
    return {"PodName": name, "PodNamespace": "demo", "PodUID": f"uid-{name}", "Node": node}


def devices_of(cluster: Cluster, name: str) -> str:
    found = cluster.get("pods", name, "demo")
    assert found
    return found["metadata"].get("annotations", {}).get(DEVICES_ANNOTATION, "")


def bound(cluster: Cluster, name: str, devices: int, node: str = NODE) -> dict[str, Any]:
    """Binds a new pod; the answer."""
    cluster.add("pods", pod(name, devices))
    return NeuronExtension(lambda: cluster).bind(binding(name, node))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(node())


@pytest.fixture
def call(cluster: Cluster) -> Iterator[Callable[..., requests.Response]]:
    """Posts to the stand-in over loopback."""
    with serving(NeuronExtension(lambda: cluster).answer) as port:
        yield lambda verb, body: requests.post(f"http://127.0.0.1:{port}/{verb}", json=body, timeout=PATIENCE_S)


# -- filter ----------------------------------------------------------------------------------------------------------------------


def test_nodes_come_back_whole_when_the_scheduler_sends_them_whole(cluster, call):
    other = {**node("inf2-2"), "status": {"capacity": {"cpu": "192"}}}
    answer = call("filter", {"Pod": pod("a", 4), "Nodes": {"metadata": {}, "items": [node(), other]}, "NodeNames": None})
    assert answer.status_code == 200
    assert answer.json() == {"Nodes": {"items": [node(), other]}, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}}


def test_names_come_back_when_the_scheduler_sends_names(cluster, call):
    cluster.add("nodes", node("other"))
    answer = call("filter", {"Pod": pod("a", 4), "Nodes": None, "NodeNames": [NODE]}).json()
    assert answer == {"NodeNames": [NODE], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}}


def test_a_node_without_neighbours_is_told_with_what_is_free(cluster, call):
    for number, devices in enumerate((2, 4, 2, 4)):  # 0-1, 2-5, 6-7, 8-11
        assert bound(cluster, f"p{number}", devices) == {}
    del cluster.objects["pods"]["demo", "p0"], cluster.objects["pods"]["demo", "p2"]
    answer = call("filter", {"Pod": pod("a", 4), "Nodes": {"items": [node()]}}).json()
    assert answer["Nodes"] == {"items": []}
    assert answer["FailedNodes"] == {NODE: "no 4 contiguous free Neuron devices of 12: free 0-1, 6-7"}
    assert call("filter", {"Pod": pod("a", 2), "Nodes": {"items": [node()]}}).json()["FailedNodes"] == {}


@pytest.mark.parametrize(
    ("type_name", "devices", "words"),
    [
        ("trn1.32xlarge", 7, "trn1.32xlarge gives a pod 1, 4, 8, 16 Neuron devices, not 7"),
        ("m5.large", 1, "m5.large gives a pod no Neuron devices, not 1"),
        ("x9.huge", 1, "instance type x9.huge is not in the catalog"),
        ("", 1, "instance type unknown is not in the catalog"),
    ],
)
def test_what_no_pod_can_ever_have_is_not_worth_a_preemption(cluster, call, type_name, devices, words):
    answer = call("filter", {"Pod": pod("a", devices), "Nodes": {"items": [node("n", type_name)]}}).json()
    assert answer == {"Nodes": {"items": []}, "FailedNodes": {}, "FailedAndUnresolvableNodes": {"n": words}}


def test_pods_that_ask_for_no_device_fit_everywhere(cluster, call):
    assert call("filter", {"Pod": pod("a", 0), "Nodes": {"items": [node()]}}).json()["Nodes"]["items"]


def test_single_cores_are_refused_as_what_the_stand_in_cannot_do(cluster, call):
    answer = call("filter", {"Pod": pod("a", 2, CORE_RESOURCE), "Nodes": {"items": [node()]}}).json()
    assert (
        answer["Error"]
        == "the stand-in of the Neuron extension allocates aws.amazon.com/neuron only, not aws.amazon.com/neuroncore"
    )


def test_containers_count_together_and_init_containers_by_the_largest(cluster, call):
    asked = pod("a", 3)
    asked["spec"]["containers"].append({"name": "b", "resources": {"requests": {DEVICE_RESOURCE: 4}}})
    asked["spec"]["initContainers"] = [{"name": "c", "resources": {"limits": {DEVICE_RESOURCE: "8"}}}]
    cluster.add("pods", asked)
    assert call("bind", binding("a")).json() == {}
    assert devices_of(cluster, "a") == "0,1,2,3,4,5,6,7"


# -- bind ------------------------------------------------------------------------------------------------------------------------


def test_a_pod_is_bound_with_its_devices_written_first(cluster, call):
    cluster.add("pods", pod("a", 4))
    cluster.add("pods", pod("b", 8))
    assert call("bind", binding("a")).json() == {}
    assert cluster.written == ["patch a", f"patch {NODE}/status", "Binding a/binding"]
    assert (devices_of(cluster, "a"), cluster.objects["pods"]["demo", "a"]["spec"]["nodeName"]) == ("0,1,2,3", NODE)
    assert cluster.objects["nodes"]["", NODE]["metadata"]["annotations"] == {
        USAGE_ANNOTATION: ",".join(["true"] * 4 + ["false"] * 8)
    }
    assert call("bind", binding("b")).json() == {}
    assert devices_of(cluster, "b") == "4,5,6,7,8,9,10,11"
    assert cluster.objects["nodes"]["", NODE]["metadata"]["annotations"] == {USAGE_ANNOTATION: ",".join(["true"] * 12)}


def test_pods_bound_at_once_get_disjoint_sets(cluster, call):
    names = [f"p{number}" for number in range(8)]
    for name in names:
        cluster.add("pods", pod(name, 2))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda name: call("bind", binding(name)).json(), names))
    given = [devices_of(cluster, name) for name in names if devices_of(cluster, name)]
    assert sorted(given) == sorted(f"{first},{first + 1}" for first in range(0, 12, 2))
    assert sorted(answer.get("Error", "") for answer in answers) == 6 * [""] + 2 * [
        "no 2 contiguous free Neuron devices of 12: free none"
    ]


def test_it_remembers_nothing_that_the_cluster_does_not(cluster):
    assert bound(cluster, "a", 4) == {}
    assert bound(cluster, "b", 4) == {}
    cluster.objects["pods"]["demo", "a"]["status"]["phase"] = "Succeeded"
    assert bound(cluster, "c", 2) == {}
    assert devices_of(cluster, "c") == "0,1"
    del cluster.objects["pods"]["demo", "b"]
    assert bound(cluster, "d", 8) == {}
    assert devices_of(cluster, "d") == "2,3,4,5,6,7,8,9"


def test_pods_that_came_past_it_hold_the_first_devices_left(cluster):
    assert bound(cluster, "a", 4) == {}
    cluster.add("pods", pod("stranger", 2, nodeName=NODE))
    assert bound(cluster, "b", 4) == {}
    assert devices_of(cluster, "b") == "6,7,8,9"


def test_other_nodes_have_devices_of_their_own(cluster):
    cluster.add("nodes", node("inf2-2"))
    assert bound(cluster, "a", 12) == {}
    assert bound(cluster, "b", 12, "inf2-2") == {}
    assert devices_of(cluster, "b") == devices_of(cluster, "a")


def test_what_is_gone_is_told(cluster, call):
    assert call("bind", binding("a")).json() == {"Error": "pod demo/a no longer exists"}
    cluster.add("pods", pod("a", 4))
    assert call("bind", binding("a", "gone")).json() == {"Error": "node gone no longer exists"}
    assert call("bind", {**binding("a"), "PodUID": "another"}).json() == {
        "Error": "409 Conflict: the pod is another one, or bound"
    }


@pytest.mark.parametrize("verb", ["list", "patch", "bind"])
def test_rights_it_lacks_are_told_to_the_scheduler_and_kept_for_the_report(cluster, verb):
    cluster.refuses = {verb}
    extension = NeuronExtension(lambda: cluster)
    cluster.add("pods", pod("a", 4))
    for _ in range(2):
        assert extension.bind(binding("a")) == {"Error": f"403 Forbidden: pods is forbidden: User cannot {verb}"}
    assert list(extension.forbidden) == [f"pods is forbidden: User cannot {verb}"]
    assert "nodeName" not in cluster.objects["pods"]["demo", "a"]["spec"]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=30))
def test_whatever_comes_and_goes_sets_stay_disjoint_and_contiguous(steps):
    cluster = Cluster(node())
    for number, (leaves, size) in enumerate(steps):
        if leaves and cluster.objects["pods"]:
            name = sorted(cluster.objects["pods"])[size % len(cluster.objects["pods"])]
            del cluster.objects["pods"][name]
            continue
        answer = bound(cluster, f"p{number}", size)
        if answer:
            assert answer["Error"].startswith(f"no {size} contiguous free Neuron devices of 12: free ")
            del cluster.objects["pods"]["demo", f"p{number}"]
    held = [[int(one) for one in devices_of(cluster, name).split(",")] for _, name in cluster.objects["pods"]]
    assert all(one == list(range(one[0], one[0] + len(one))) for one in held)
    every = [device for one in held for device in one]
    assert len(every) == len(set(every))
    assert set(every) <= set(range(12))


# -- over HTTP -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["prioritize", "preempt", "filters", "", "scheduler/filter"])
def test_it_answers_the_verbs_of_aws_only(call, verb):
    answer = call(verb, {})
    assert answer.status_code == 404
    assert answer.json() == {"Error": f"the Neuron extension knows filter and bind, not /{verb}"}


def test_it_answers_no_other_method(call):
    answer = requests.get(call("filter", {}).url, timeout=PATIENCE_S)
    assert (answer.status_code, answer.json()) == (405, {"Error": "the Neuron extension knows POST, not GET"})


def test_bad_requests_are_refused(cluster, call):
    url = call("filter", {}).url
    answer = requests.post(url, data="{", timeout=PATIENCE_S)
    assert (answer.status_code, answer.json()) == (400, {"Error": "the request is not JSON"})
    assert json.loads(requests.post(url, data="[]", timeout=PATIENCE_S).text)["Nodes"] == {"items": []}


def test_an_api_server_that_is_gone_is_no_traceback(capsys):
    def gone() -> Cluster:
        raise requests.ConnectionError("connection refused")

    with serving(NeuronExtension(gone).answer) as port:
        answer = requests.post(f"http://127.0.0.1:{port}/bind", json=binding("a"), timeout=PATIENCE_S)
    assert (answer.status_code, answer.json()) == (503, {"Error": "connection refused"})
    assert capsys.readouterr() == ("", "")


# -- its Service -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://k8s-neuron-scheduler.kube-system.svc.cluster.local:12345", SERVICE),
        ("http://k8s-neuron-scheduler.kube-system.svc:12345/scheduler", SERVICE),
        ("http://k8s-neuron-scheduler.kube-system:12345/", SERVICE),
        ("https://a.b.svc", ServicePort("b", "a", 443)),
        ("http://a.b", ServicePort("b", "a", 80)),
        ("http://localhost:12345", None),
        ("http://10.0.0.1:12345", None),
        ("http://extender.example.com:12345", None),
        ("http://a.b:nonsense", None),
        ("", None),
    ],
)
def test_services_are_found_by_their_dns_names(url, found):
    assert service_of(url) == found


def served(*, ready: bool = True, port: int = 12345, listens: str = "12345") -> Cluster:
    """A cluster with the extension behind its Service."""
    cluster = Cluster()
    where = {"namespace": SERVICE.namespace}
    cluster.add(
        "services", {"metadata": {**where, "name": SERVICE.name}, "spec": {"ports": [{"name": "http", "port": SERVICE.port}]}}
    )
    cluster.add(
        "endpointslices.discovery.k8s.io",
        {
            "metadata": {**where, "name": "slice", "labels": {"kubernetes.io/service-name": SERVICE.name}},
            "ports": [{"name": "http", "port": port}],
            "endpoints": [{"conditions": {"ready": ready}, "targetRef": {"kind": "Pod", "name": "extension-1"}}],
        },
    )
    containers = [{"name": "extension", "env": [{"name": "PORT", "value": listens}]}]
    cluster.add("pods", {"metadata": {**where, "name": "extension-1"}, "spec": {"containers": containers}})
    return cluster


def test_a_service_leads_to_its_ready_pod():
    assert pod_behind(SERVICE, served())["metadata"]["name"] == "extension-1"


@pytest.mark.parametrize(
    ("service", "cluster"),
    [
        (ServicePort("kube-system", "k8s-neuron-scheduler", 80), served()),
        (ServicePort("kube-system", "k8s-neuron", 12345), served()),
        (ServicePort("default", "k8s-neuron-scheduler", 12345), served()),
    ],
)
def test_a_service_that_is_not_there_is_told(service, cluster):
    with pytest.raises(Refused, match=rf"^there is no Service {service.namespace}/{service.name} port {service.port}$"):
        pod_behind(service, cluster)


@pytest.mark.parametrize("cluster", [served(ready=False), served(port=80), served(listens="8080")])
def test_a_service_without_a_pod_that_listens_is_told(cluster):
    with pytest.raises(Refused, match=r"^no ready pod is behind Service kube-system/k8s-neuron-scheduler port 12345$"):
        pod_behind(SERVICE, cluster)

    def connect() -> Cluster:
        pod_behind(SERVICE, cluster)
        return cluster

    extension = NeuronExtension(connect)
    assert extension.filter({"Pod": pod("a", 4), "Nodes": {"items": [node()]}}) == {
        "Error": "no ready pod is behind Service kube-system/k8s-neuron-scheduler port 12345"
    }
