"""What ``doctor`` asks of image registries and of the Hugging Face Hub, over loopback."""

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler

import pytest

from conftest import recorded
from eks_inference_tools.doctor.examine import examine
from eks_inference_tools.doctor.questions import HubFile, Manifest, Unanswered
from eks_inference_tools.doctor.web import Web
from loopback import Handler, Request, Served, Server
from stub_account import well
from waiting import PATIENCE_S

TOKEN = "hf_exampleexampleexample"


class Answering(Served):
    """A registry and a Hub: ``replies`` has status and headers by path; every request is kept in ``requests``."""

    def __init__(self, handler: type[BaseHTTPRequestHandler] | None = None) -> None:
        self.replies: dict[str, tuple[int, Mapping[str, str]]] = {}
        self.token_body = json.dumps({"token": "anonymous"}).encode()
        self.requests: list[Request] = []
        self.servers = [Server(self, handler or _Handler)]

    @property
    def url(self) -> str:
        return f"http://{self.servers[0].address}"

    def web(self, token: str = "") -> Web:
        return Web(
            token, dict.fromkeys(("registry.example", "docker.io", "huggingface.co", "public.ecr.aws", "ghcr.io"), self.url)
        )


class _Handler(Handler):
    def do_HEAD(self) -> None:
        request = self.received()
        self.owner.requests.append(request)
        self.send(*self._reply(request))

    def do_GET(self) -> None:
        self.owner.requests.append(self.received())
        self.send(200, self.owner.token_body)

    def _reply(self, request: Request) -> tuple[int, bytes, Mapping[str, str]]:
        if request.path.startswith("/v2/private/") and "authorization" not in request.headers:
            challenge = f'Bearer realm="{self.owner.url}/token",service="registry.example",scope="repository:private/a:pull"'
            return 401, b"", {"WWW-Authenticate": challenge}
        status, headers = self.owner.replies.get(request.path, (404, {}))
        return status, b"", headers


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    monkeypatch.setattr("eks_inference_tools.doctor.web._SECONDS", PATIENCE_S)
    with Answering() as site:
        yield site


def manifest(name: str) -> Manifest:
    return Manifest("registry.example", name, "1.0")


def test_a_registry_that_asks_for_an_anonymous_token_gets_one(site):
    site.replies["/v2/private/a/manifests/1.0"] = (200, {"Docker-Content-Digest": "sha256:ab"})
    assert site.web(TOKEN).answer(manifest("private/a")) == {"digest": "sha256:ab"}
    first, token, second = site.requests
    assert (token.path, token.query) == ("/token", {"service": "registry.example", "scope": "repository:private/a:pull"})
    assert second.headers["authorization"] == "Bearer anonymous"
    assert "application/vnd.oci.image.index.v1+json" in first.headers["accept"]
    assert not any(TOKEN in str(request.headers) for request in site.requests)


def test_a_tag_that_does_not_exist_is_told_from_one_that_nobody_may_see(site):
    site.replies["/v2/secret/a/manifests/1.0"] = (401, {})
    site.replies["/v2/often/a/manifests/1.0"] = (429, {})
    site.replies["/v2/broken/a/manifests/1.0"] = (503, {})
    web = site.web()
    assert web.answer(manifest("absent/a")) is None
    for name, words in (("secret", "asks for a login"), ("often", "asked too often"), ("broken", "status 503")):
        answer = web.answer(manifest(f"{name}/a"))
        assert isinstance(answer, Unanswered)
        assert words in answer.reason


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"token": 3}', b'{"token": "a\\nb"}', b"x" * 1_000_000])
def test_a_token_that_is_none_is_not_sent(site, body):
    site.token_body = body
    answer = site.web().answer(manifest("private/a"))
    assert isinstance(answer, Unanswered)
    assert not any("authorization" in request.headers for request in site.requests)


def test_a_registry_that_sends_around_in_circles_is_not_followed_for_long(site):
    site.replies["/v2/round/a/manifests/1.0"] = (307, {"Location": "/v2/round/a/manifests/1.0"})
    assert site.web().answer(manifest("round/a")) == Unanswered("registry.example did not answer: TooManyRedirects")
    assert len(site.requests) < 6


def test_a_registry_that_is_not_there_is_not_known():
    assert Web(addresses={"registry.example": "http://127.0.0.1:9"}).answer(manifest("a")) == Unanswered(
        "registry.example did not answer: ConnectionError"
    )


def test_a_registry_that_never_answers_is_left(site, monkeypatch):
    monkeypatch.setattr("eks_inference_tools.doctor.web._SECONDS", (0.2, 0.2))
    over = threading.Event()
    monkeypatch.setattr(_Handler, "do_HEAD", lambda handler: over.wait(60))
    assert site.web().answer(manifest("a")) == Unanswered("registry.example did not answer: ReadTimeout")
    over.set()


def test_netrc_is_not_read(site, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login eva password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    site.web().answer(manifest("a"))
    assert "authorization" not in site.requests[0].headers


# -- the Hub ---------------------------------------------------------------------------------------------------------------------


def test_the_hub_gets_the_token_and_no_other_host_does(site):
    site.replies["/meta-llama/a/resolve/main/config.json"] = (302, {"Location": "http://127.0.0.1:9/elsewhere"})
    assert site.web(TOKEN).answer(HubFile("meta-llama/a")) == {"found": True}
    (request,) = site.requests
    assert request.headers["authorization"] == f"Bearer {TOKEN}"


def test_a_gated_repository_is_refused_and_an_absent_one_is_none(site):
    site.replies["/meta-llama/a/resolve/main/config.json"] = (403, {"X-Error-Code": "GatedRepo"})
    site.replies["/b/b/resolve/v2/config.json"] = (401, {})
    web = site.web()
    assert web.answer(HubFile("meta-llama/a")) == {"refused": "its licence was not accepted"}
    assert web.answer(HubFile("b/b", "v2")) == {"refused": "status 401"}
    assert web.answer(HubFile("c/c")) is None
    assert "authorization" not in site.requests[0].headers


def test_findings_name_images_charts_and_models_and_never_the_token(site):
    site.replies["/NousResearch/Meta-Llama-3-8B-Instruct/resolve/main/config.json"] = (403, {"X-Error-Code": "GatedRepo"})
    site.replies["/v2/karpenter/karpenter/manifests/1.14.1"] = (200, {})
    findings = examine(recorded("inf2-llama3"), well().account(), site.web(TOKEN))
    by_text = {finding.text: finding for finding in findings}
    assert by_text["public.ecr.aws/karpenter/karpenter:1.14.1: there"].verdict == "ok"
    absent = by_text["docker.io/moby/buildkit:v0.32.2-rootless: the registry has no such image or chart"]
    assert absent.verdict == "error"
    gated = by_text["NousResearch/Meta-Llama-3-8B-Instruct: the Hub refuses the token: its licence was not accepted"]
    assert gated.verdict == "error"
    assert gated.remedy == "accept the licence on huggingface.co/NousResearch/Meta-Llama-3-8B-Instruct, with the token's account"
    assert TOKEN not in str(findings)
    assert {request.path.split("/")[1] for request in site.requests if TOKEN in str(request.headers)} == {"NousResearch"}
