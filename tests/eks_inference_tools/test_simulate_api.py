"""The client of the simulation's API server, and the loop that runs stand-ins on it, against a stand-in on loopback."""

import datetime
import ipaddress
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from eks_inference_tools.simulate.control_plane import kubernetes_api as module
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal, Object, UnknownKind
from eks_inference_tools.simulate.control_plane.processes import ComponentError
from eks_inference_tools.simulate.stand_ins import loop
from eks_inference_tools.simulate.stand_ins.loop import Seen, StandIns
from fake_automation import FakeClock
from kubernetes_api import KubernetesApi, status
from waiting import until

NO_FILE = Path("no certificate is looked at")

POD: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": "demo"}}
NODE: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n-1"}}
DEPLOYMENT: Object = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "server", "namespace": "demo"}}
PODS = "/api/v1/namespaces/demo/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/demo/deployments"


@pytest.fixture
def server() -> Iterator[KubernetesApi]:
    with KubernetesApi() as running:
        running.serves("", "v1", Pod="pods", ConfigMap="configmaps", ServiceAccount="serviceaccounts")
        running.serves("", "v1", cluster=True, Node="nodes", Namespace="namespaces")
        running.serves("apps", "v1", Deployment="deployments")
        running.serves("autoscaling", "v2", HorizontalPodAutoscaler="horizontalpodautoscalers")
        running.serves("autoscaling", "v1", HorizontalPodAutoscaler="horizontalpodautoscalers", Scale="scales")
        yield running


@pytest.fixture
def api(server: KubernetesApi, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.01)
    client = Api(server.url, "its-token", NO_FILE)
    yield client
    client.close()


def refusal(call: Callable[[], Any]) -> ApiRefusal:
    with pytest.raises(ApiRefusal) as error:
        call()
    return error.value


# -- what is asked ---------------------------------------------------------------------------------------------------------------


def test_apply_is_the_strict_server_side_one(server: KubernetesApi, api: Api):
    server.answers("PATCH", f"{DEPLOYMENTS}/server", (200, {"kind": "Deployment", "applied": True}))
    assert api.apply(DEPLOYMENT)["applied"]
    (request,) = server.requests
    assert request.query == {"fieldManager": "eks-inference", "force": "true", "fieldValidation": "Strict"}
    assert request.headers["content-type"] == "application/apply-patch+yaml"
    assert request.body == DEPLOYMENT
    api.apply(DEPLOYMENT, dry_run=True, manager="someone")
    assert server.requests[1].query == {**request.query, "fieldManager": "someone", "dryRun": "All"}


def test_create_posts_to_the_collection(server: KubernetesApi, api: Api):
    server.answers("POST", PODS, (201, POD))
    pod = {**POD, "metadata": {"generateName": "one-", "namespace": "demo"}}
    assert api.create(pod) == POD
    api.create(pod, dry_run=True)
    first, second = server.requests
    assert first.query == {"fieldManager": "eks-inference", "fieldValidation": "Strict"}
    assert second.query == {**first.query, "dryRun": "All"}
    assert first.body == pod
    assert first.headers["content-type"] == "application/json"


def test_subresources_are_posted_beside_their_object(server: KubernetesApi, api: Api):
    server.answers("POST", f"{PODS}/one/binding", (201, {}))
    api.create_sub(POD, "binding", {"target": {"name": "n-1"}})
    assert server.requests[0].body == {"target": {"name": "n-1"}}


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("merge", "application/merge-patch+json"),
        ("strategic", "application/strategic-merge-patch+json"),
        ("json", "application/json-patch+json"),
    ],
)
def test_patches_say_of_what_kind_they_are(server: KubernetesApi, api: Api, kind: str, content: str):
    server.answers("PATCH", "/api/v1/nodes/n-1/status", (200, NODE))
    api.patch(NODE, {"status": {}}, subresource="status", kind=kind)
    (request,) = server.requests
    assert request.headers["content-type"] == content
    assert request.query == {"fieldManager": "eks-inference"}


def test_deletion_says_what_becomes_of_dependents(server: KubernetesApi, api: Api):
    server.answers("DELETE", f"{DEPLOYMENTS}/server", (200, {}))
    api.delete("deployments.apps", "server", "demo")
    api.delete("deployments.apps", "server", "demo", propagation="Foreground")
    assert [request.body["propagationPolicy"] for request in server.requests] == ["Background", "Foreground"]


def test_objects_are_asked_for_where_they_are(server: KubernetesApi, api: Api):
    for call in (
        lambda: api.get("pods", "one", "demo"),
        lambda: api.get("nodes", "n-1"),
        lambda: api.get("deployments.apps", "server", "demo"),
        lambda: api.get("horizontalpodautoscalers.autoscaling", "one", "demo"),
        lambda: api.get("nodes", "n-1", "ignored"),
        lambda: api.get("configmaps", "a/b?c", "demo"),
    ):
        call()
    assert server.asked() == [
        f"GET {PODS}/one",
        "GET /api/v1/nodes/n-1",
        f"GET {DEPLOYMENTS}/server",
        "GET /apis/autoscaling/v2/namespaces/demo/horizontalpodautoscalers/one",  # the version that the server prefers
        "GET /api/v1/nodes/n-1",
        "GET /api/v1/namespaces/demo/configmaps/a%2Fb%3Fc",
    ]


def test_an_object_without_a_namespace_is_in_the_default_one(server: KubernetesApi, api: Api):
    server.answers("POST", "/api/v1/namespaces/default/pods", (201, POD))
    server.answers("POST", "/api/v1/nodes", (201, NODE))
    api.create({**POD, "metadata": {"name": "one"}})
    api.create(NODE)


def test_an_older_version_of_a_kind_is_asked_as_such(server: KubernetesApi, api: Api):
    path = "/apis/autoscaling/v1/namespaces/demo/horizontalpodautoscalers"
    server.answers("POST", path, (201, {}))
    api.create(
        {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"namespace": "demo", "name": "a"}}
    )
    assert server.asked() == [f"POST {path}"]


def test_every_request_carries_the_token_and_nothing_of_the_environment(
    server: KubernetesApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Neither proxies nor passwords for other hosts; not everybody excepts loopback."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    client = Api(server.url, "its-token", NO_FILE)
    client.get("pods", "one", "demo")
    assert server.requests[0].headers["authorization"] == "Bearer its-token"


# -- what is answered ------------------------------------------------------------------------------------------------------------


def test_what_is_not_there_is_none(server: KubernetesApi, api: Api):
    assert api.get("pods", "one", "demo") is None
    server.answers("GET", f"{PODS}/one", (200, POD))
    assert api.get("pods", "one", "demo") == POD


def test_lists_say_what_their_objects_are(server: KubernetesApi, api: Api):
    items = [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]
    for path in ("/apis/apps/v1/deployments", DEPLOYMENTS):
        server.answers("GET", path, (200, {"apiVersion": "apps/v1", "kind": "DeploymentList", "items": items}))
    expected = [{"apiVersion": "apps/v1", "kind": "Deployment", **item} for item in items]
    assert api.list("deployments.apps", labelSelector="app=a,part!=b") == expected
    assert api.list("deployments.apps", "demo") == expected
    assert server.asked() == ["GET /apis/apps/v1/deployments", f"GET {DEPLOYMENTS}"]
    assert server.requests[0].query == {"labelSelector": "app=a,part!=b"}


def test_an_empty_list_is_empty(server: KubernetesApi, api: Api):
    server.answers("GET", "/api/v1/pods", (200, {"apiVersion": "v1", "kind": "PodList", "items": None}))
    assert api.list("pods") == []


def test_a_list_that_is_refused_is_no_empty_one(server: KubernetesApi, api: Api):
    server.answers("GET", "/api/v1/pods", (403, status(403, "Forbidden", "pods is forbidden")))
    assert refusal(lambda: api.list("pods")).status == 403


def test_deleting_what_is_gone_is_no_error(server: KubernetesApi, api: Api):
    api.delete("pods", "one", "demo")
    server.answers("DELETE", f"{PODS}/one", (409, status(409, "Conflict", "changed meanwhile")))
    assert refusal(lambda: api.delete("pods", "one", "demo")).reason == "Conflict"


def test_a_refusal_has_the_servers_words(server: KubernetesApi, api: Api):
    message = 'Deployment.apps "server" is invalid: spec.replicas: Invalid value: -1'
    server.answers("PATCH", f"{DEPLOYMENTS}/server", (422, status(422, "Invalid", message)))
    said = refusal(lambda: api.apply(DEPLOYMENT))
    assert (said.status, said.reason, said.message) == (422, "Invalid", message)
    assert str(said) == f"422 Invalid: {message}"


@pytest.mark.parametrize("body", [b"  upstream is gone\n", ["a list"], "a text"])
def test_a_refusal_that_is_no_status_is_one_too(server: KubernetesApi, api: Api, body: Any):
    server.answers("GET", f"{PODS}/one", (503, body))
    said = refusal(lambda: api.get("pods", "one", "demo"))
    assert (said.status, said.reason) == (503, "Service Unavailable")
    assert said.message in ("upstream is gone", '["a list"]', '"a text"')


def test_raw_answers_are_json_or_text(server: KubernetesApi, api: Api):
    server.answers("GET", "/readyz", (200, b"ok"))
    server.answers("POST", "/apis/x", (200, {"some": "thing"}))
    assert api.raw("GET", "/readyz") == "ok"
    assert api.raw("POST", "/apis/x", {"a": 1}) == {"some": "thing"}
    assert server.requests[1].body == {"a": 1}
    assert server.discoveries == 0


def test_a_busy_server_is_asked_again(server: KubernetesApi, api: Api):
    busy = (429, status(429, "TooManyRequests", "storage is (re)initializing"))
    server.answers("GET", f"{PODS}/one", busy, busy, (200, POD))
    assert api.get("pods", "one", "demo") == POD
    assert len(server.requests) == 3


def test_a_server_that_stays_busy_is_told(server: KubernetesApi, api: Api, monkeypatch: pytest.MonkeyPatch):
    api.knows("pods")
    clock = FakeClock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.now, sleep=clock.sleep))
    monkeypatch.setattr(module, "_RETRY_SECONDS", module._TIMEOUT_SECONDS / 4)
    later = (429, status(429, "TooManyRequests", "later"))
    server.answers("GET", f"{PODS}/one", *[later] * 6, (200, POD))
    assert refusal(lambda: api.get("pods", "one", "demo")).message == "later"
    assert len(server.requests) == 6, "until its time is over"


@pytest.mark.parametrize("code", [409, 500, 503])
def test_other_refusals_are_not_tried_again(server: KubernetesApi, api: Api, code: int):
    server.answers("GET", f"{PODS}/one", (code, status(code, "No", "no")), (200, POD))
    assert refusal(lambda: api.get("pods", "one", "demo")).status == code


# -- discovery -------------------------------------------------------------------------------------------------------------------


def test_kinds_are_known_by_discovery(api: Api):
    assert api.resource_of(POD) == "pods"
    assert api.resource_of(DEPLOYMENT) == "deployments.apps"
    assert [api.is_namespaced(item) for item in (POD, NODE, DEPLOYMENT)] == [True, False, True]
    assert [
        api.knows(name) for name in ("pods", "deployments.apps", "scales.autoscaling", "deployments", "rayservices.ray.io")
    ] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_discovery_is_asked_once_for_what_is_known(server: KubernetesApi, api: Api):
    for _ in range(3):
        api.get("pods", "one", "demo")
        api.get("nodes", "n-1")
        assert api.resource_of(DEPLOYMENT) == "deployments.apps"
    assert server.discoveries == 1


def test_unknown_kinds_are_told_and_lists_of_them_are_empty(server: KubernetesApi, api: Api):
    with pytest.raises(UnknownKind, match=r"RayService of ray\.io/v1"):
        api.apply({"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "a"}})
    with pytest.raises(UnknownKind, match="Pod of v9"):
        api.resource_of({**POD, "apiVersion": "v9"})
    with pytest.raises(UnknownKind):
        api.resource_of({})
    with pytest.raises(UnknownKind, match=r"rayservices\.ray\.io"):
        api.get("rayservices.ray.io", "a", "demo")
    assert api.list("rayservices.ray.io") == []
    assert server.requests == []


def test_a_kind_that_is_new_is_found_soon(server: KubernetesApi, api: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_REDISCOVERY_SECONDS", 0.2)
    assert not api.knows("rayservices.ray.io")
    server.serves("ray.io", "v1", RayService="rayservices")
    until(lambda: api.knows("rayservices.ray.io"))
    assert server.discoveries == 2  # not with every question
    assert api.resource_of({"apiVersion": "ray.io/v1", "kind": "RayService"}) == "rayservices.ray.io"


def test_what_is_not_served_is_not_asked_about_all_the_time(server: KubernetesApi, api: Api, monkeypatch: pytest.MonkeyPatch):
    """The loop of stand-ins asks for every kind of theirs four times a second."""
    monkeypatch.setattr(module, "_REDISCOVERY_SECONDS", 60)
    for _ in range(5):
        assert api.list("rayservices.ray.io") == []
    assert server.discoveries == 1


def test_several_threads_share_a_client(server: KubernetesApi, api: Api):
    names = [f"pod-{number}" for number in range(24)]
    for name in names:
        server.answers("GET", f"{PODS}/{name}", (200, {**POD, "metadata": {"name": name}}))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: api.get("pods", name, "demo"), names))
    assert [pod and pod["metadata"]["name"] for pod in found] == names


# -- whom it trusts --------------------------------------------------------------------------------------------------------------


def certificate(folder: Path, name: str) -> Path:
    """One that signs itself, for loopback."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.crt"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.with_suffix(".key").write_bytes(pem)
    return path


def test_the_token_goes_to_the_server_of_this_certificate_only(tmp_path: Path):
    own, other = certificate(tmp_path, "own"), certificate(tmp_path, "other")
    with KubernetesApi(certificate=own) as server:
        server.serves("", "v1", Pod="pods")
        server.answers("GET", f"{PODS}/one", (200, POD))
        assert Api(server.url, "token", own).get("pods", "one", "demo") == POD
        with pytest.raises(requests.exceptions.SSLError):
            Api(server.url, "token", other).get("pods", "one", "demo")
        assert len(server.requests) == 1


# -- the loop of stand-ins -------------------------------------------------------------------------------------------------------


class Noting:
    """A stand-in that notes what it saw; ``does`` is what it does then."""

    def __init__(self, title: str, *reads: str, does: Callable[[Seen, Api], object] = lambda seen, api: None) -> None:
        self.title, self.reads, self._does = title, reads, does
        self.rounds: list[Seen] = []

    def reconcile(self, seen: Seen, api: Api) -> None:
        self.rounds.append(seen)
        self._does(seen, api)


def raising(error: Exception) -> Callable[[Seen, Api], object]:
    def does(seen: Seen, api: Api) -> object:
        raise error

    return does


@pytest.fixture(autouse=True)
def fast_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "ROUND_SECONDS", 0.01)


@pytest.fixture
def listed(server: KubernetesApi) -> KubernetesApi:
    server.answers(
        "GET", "/api/v1/pods", (200, {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": POD["metadata"]}]})
    )
    server.answers("GET", "/api/v1/nodes", (200, {"apiVersion": "v1", "kind": "NodeList", "items": []}))
    return server


def failure(running: StandIns) -> str:
    """What is said once a stand-in has failed."""
    said: list[str] = []

    def failed() -> bool:
        try:
            running.ensure_alive()
        except ComponentError as error:
            said.append(str(error))
        return bool(said)

    until(failed)
    return said[0]


def test_stand_ins_see_what_they_read_and_the_cluster_is_read_once_a_round(listed: KubernetesApi, api: Api):
    one, two = Noting("one", "pods", "nodes"), Noting("two", "pods", "rayservices.ray.io")
    with StandIns(api, [one, two]) as running:
        until(lambda: len(two.rounds) > 2)
        running.ensure_alive()
    rounds = len(one.rounds)
    assert one.rounds[0]["pods"] == [POD]
    assert one.rounds[0]["nodes"] == []
    assert two.rounds[0]["rayservices.ray.io"] == []  # not served (yet)
    assert one.rounds[0] is two.rounds[0]
    assert listed.asked().count("GET /api/v1/pods") in (rounds, rounds + 1)


def test_they_end_with_the_context(listed: KubernetesApi, api: Api):
    one = Noting("one", "pods")
    with StandIns(api, [one]):
        until(lambda: one.rounds)
        assert any(thread.name == "stand-ins" for thread in threading.enumerate())
    until(lambda: not any(thread.name == "stand-ins" for thread in threading.enumerate()))
    rounds = len(one.rounds)
    time.sleep(0.1)
    assert len(one.rounds) == rounds


def test_no_stand_in_asks_nothing(listed: KubernetesApi, api: Api):
    with StandIns(api, []) as running:
        time.sleep(0.05)
        running.ensure_alive()
    assert listed.requests == []


@pytest.mark.parametrize("code", [404, 409])
def test_somebody_was_faster_is_tried_again(listed: KubernetesApi, api: Api, code: int):
    """And the others have their turn all the same."""
    one = Noting("one", "pods", does=raising(ApiRefusal(code, "Conflict", "changed meanwhile")))
    two = Noting("two")
    with StandIns(api, [one, two]) as running:
        until(lambda: len(one.rounds) > 2 and len(two.rounds) > 2)
        running.ensure_alive()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ApiRefusal(403, "Forbidden", "nodes is forbidden"), "the one that fails failed: 403 Forbidden: nodes is forbidden"),
        (ApiRefusal(422, "Invalid", "bad"), "the one that fails failed: 422 Invalid: bad"),
        (KeyError("spec"), "the one that fails failed: 'spec'"),
    ],
)
def test_a_stand_in_that_fails_is_told_and_none_goes_on(listed: KubernetesApi, api: Api, error: Exception, words: str):
    """Half of the controllers would be worse than none."""
    well, fails = Noting("well", "pods"), Noting("the one that fails", does=raising(error))
    with StandIns(api, [well, fails]) as running:
        assert failure(running) == words
        rounds = len(well.rounds)
        time.sleep(0.1)
        assert (len(well.rounds), len(fails.rounds)) == (rounds, 1)
        with pytest.raises(ComponentError) as raised:
            running.ensure_alive()
        assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    ("refused", "answer", "raised"),
    [
        (422, 201, None),
        (422, 409, None),  # it was told before
        (422, 403, None),  # its namespace is terminating
        (422, 400, 400),
        (409, 201, 409),  # the next round tries again
    ],
)
def test_what_is_refused_for_an_object_becomes_an_event(api: Api, server: KubernetesApi, refused: int, answer: int, raised: Any):
    server.serves("", "v1", Event="events")
    server.answers("POST", "/api/v1/namespaces/demo/events", (answer, status(answer, "", "of the event")))
    with pytest.raises(ApiRefusal) if raised else nullcontext() as error, loop.telling(api, POD, "FailedCreate"):
        raise ApiRefusal(refused, "Invalid", "no such field")
    assert raised is None or (error is not None and error.value.status == raised)
    told = [request.body["message"] for request in server.requests]
    assert told == ([] if raised == refused else ["no such field"])


def test_a_cluster_that_cannot_be_read_is_told(listed: KubernetesApi, api: Api):
    listed.answers("GET", "/api/v1/pods", (403, status(403, "Forbidden", "pods is forbidden")))
    with StandIns(api, [Noting("one", "pods")]) as running:
        assert failure(running) == "reading the cluster for the stand-ins failed: 403 Forbidden: pods is forbidden"


def test_an_api_server_that_is_gone_is_told(listed: KubernetesApi, api: Api):
    one = Noting("one", "pods")
    with StandIns(api, [one]) as running:
        until(lambda: one.rounds)
        running.ensure_alive()
        listed.stop()
        assert failure(running).startswith("the connection to the API server failed: ")


def test_a_stand_in_that_meets_a_dead_api_server_is_not_to_blame(listed: KubernetesApi, api: Api):
    one = Noting("one", does=raising(requests.ConnectionError("refused")))
    with StandIns(api, [one]) as running:
        assert failure(running) == "the connection to the API server failed: refused"
