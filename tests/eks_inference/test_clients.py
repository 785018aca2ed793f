"""Clients of model servers: the chat command against a server with known latencies, the web UI, the smoke test."""

import argparse
import ast
import dataclasses
import http.client
import io
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlsplit

import pulumi
import pulumi_kubernetes as k8s
import pytest

from eks_inference.clients import chat, plan
from eks_inference.clients.chat import EXAMPLES, Answer, Chat, GivenError, Question, ServerError, main
from eks_inference.clients.component import OpenWebUI, SmokeTest
from eks_inference.clients.spec import ClientsSpec, OpenWebUISpec, SmokeTestSpec
from eks_inference.faults import SpecError
from eks_inference.kubernetes.secrets import SecretRef
from eks_inference.place.placement import Placement, Taint
from handles import existing_cluster, placement
from json_schemas import unlike
from openai_server import Fault, OpenAIServer
from stackgraph.graph.document import Graph, Resource
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record

SCRIPT = Path(chat.__file__)
ASKED = Question("", "How are you?", parameters={"max_tokens": 8})
STREAMED = ASKED._replace(stream=True)


@pytest.fixture
def nowhere() -> Iterator[str]:
    """The URL of a port that is taken, so that nobody else gets it, and refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


ODD = "\x1b]52;c;aGk=\x07\x9b2J\u202e"


@pytest.mark.parametrize("options", [[], ["--no-stream"], ["--model", "absent"]])
def test_nothing_of_a_server_controls_a_terminal(options, capsys):
    with OpenAIServer(model=f"m{ODD}", word=f"word{ODD}\n\tnext") as server:
        code = main(["--url", server.url, "--prompt", "How are you?", *options])
    said = capsys.readouterr()
    shown = said.out + said.err
    assert shown.replace("\n", "").replace("\t", "").isprintable()
    assert "m ]52;c;aGk=  2J" in shown
    assert code == 2 or "word ]52;c;aGk=  2J \n\tnext" in shown


# -- what comes, and how fast --------------------------------------------------------------------------------------------------

TTFT_S = 0.3
ITL_S = 0.05
LAST_S = TTFT_S + 7 * ITL_S


def timed(question: Question, *moments: float) -> Answer:
    """An answer by a clock that is looked at in these moments: a busy machine adds to what another one tells."""
    with OpenAIServer() as server:
        return Chat(server.url, clock=iter(moments).__next__).ask(question, model="m")


def test_a_streamed_answer_is_measured_by_its_first_and_its_last_token() -> None:
    answer = timed(STREAMED, 9, *(9 + TTFT_S + token * ITL_S for token in range(8)))
    assert answer.text == "word word1 word2 word3 word4 word5 word6 word7"
    assert answer.tokens == 8
    assert (answer.first_token_s, answer.seconds) == pytest.approx((TTFT_S, LAST_S))
    assert answer.tokens_per_second == pytest.approx(1 / ITL_S)


def test_a_whole_answer_takes_as_long_as_its_last_token() -> None:
    answer = timed(ASKED, 9, 9 + LAST_S)
    assert (answer.first_token_s, answer.tokens, answer.seconds) == (None, 8, pytest.approx(LAST_S))


def test_no_answer_takes_less_than_its_server_needs() -> None:
    with OpenAIServer(ttft_s=TTFT_S, itl_s=ITL_S) as server:
        streamed, whole = (Chat(server.url).ask(question, model="m") for question in (STREAMED, ASKED))
    assert (streamed.first_token_s or 0) >= TTFT_S
    assert min(streamed.seconds, whole.seconds) >= LAST_S


def test_the_text_of_a_stream_is_shown_while_it_comes() -> None:
    shown: list[str] = []
    with OpenAIServer() as server:
        Chat(server.url).ask(STREAMED, model="m", show=shown.append)
    assert len(shown) == 8


def test_the_pace_of_a_stream_leaves_out_the_first_token() -> None:
    assert Answer("…", tokens=11, seconds=1.5, first_token_s=0.5).tokens_per_second == 10
    assert Answer("…", tokens=1, seconds=0.5, first_token_s=0.5).tokens_per_second is None


def test_the_pace_of_a_whole_answer_is_over_all_its_time() -> None:
    assert Answer("…", tokens=10, seconds=2.5).tokens_per_second == 4
    assert Answer("…", tokens=None, seconds=2.5).tokens_per_second is None


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (Answer("…", 11, 1.5, 0.5), "11 tokens in 1.50 s; time to first token 0.500 s, then 10.0 tokens/s"),
        (Answer("…", 1, 0.5, 0.5), "1 token in 0.50 s; time to first token 0.500 s"),
        (Answer("…", 10, 2.5), "10 tokens in 2.50 s, 4.0 tokens/s"),
        (Answer("…", None, 2.5), "in 2.50 s"),
    ],
)
def test_figures_are_one_line(answer: Answer, line: str) -> None:
    assert answer.figures() == line


def test_tokens_are_the_servers_own_count_or_else_the_events() -> None:
    with OpenAIServer(include_usage=False) as server:
        assert Chat(server.url).ask(STREAMED, model="m").tokens == 8
        assert Chat(server.url).ask(ASKED, model="m").tokens is None


# -- what can go wrong ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", [ASKED, STREAMED], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("http_500", r"status 500 from .*/v1/chat/completions: the engine is dead$"),
        ("error_body", r"^status 200, but no (answer|stream): the engine is dead$"),
        ("no_content", r"^the answer has no text$"),
        ("not_json", r"^this is not JSON: <html>welcome</html>$"),
    ],
)
def test_an_answer_that_is_none_is_an_error(fault: Fault, told: str, question: Question) -> None:
    with OpenAIServer(fault=fault) as server, pytest.raises(ServerError, match=told):
        Chat(server.url).ask(question, model="m")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("error_event", "an error in the stream after 0 tokens: the engine is dead"),
        ("broken_stream", "the stream broke off after 5 events"),  # the role and four words
    ],
)
def test_a_stream_that_does_not_end_as_it_should_is_an_error(fault: Fault, told: str) -> None:
    with OpenAIServer(fault=fault) as server, pytest.raises(ServerError, match=told):
        Chat(server.url).ask(STREAMED, model="m")


@pytest.mark.parametrize("question", [ASKED, STREAMED], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "choices", [1, [1], [{"message": 1, "delta": 1}], [{"message": {"content": 1}, "delta": {"content": 1}}]]
)
def test_an_answer_of_another_shape_is_an_error(monkeypatch: pytest.MonkeyPatch, choices: Any, question: Question) -> None:
    body = json.dumps({"choices": choices})
    listing(monkeypatch, f"data: {body}\ndata: [DONE]".encode() if question.stream else body.encode())
    with pytest.raises(ServerError, match=re.escape(f"status 200, but no answer: {body}")):
        Chat("http://s/v1").ask(question, model="m")


@pytest.mark.parametrize("usage", [1, {"completion_tokens": "two"}])
def test_a_count_of_tokens_that_is_none_is_left_out(monkeypatch: pytest.MonkeyPatch, usage: Any) -> None:
    listing(monkeypatch, json.dumps({"choices": [{"message": {"content": "Yes"}}], "usage": usage}).encode())
    assert Chat("http://s/v1").ask(ASKED, model="m").figures().startswith("in ")


def test_a_server_that_falls_silent_is_given_up() -> None:
    with OpenAIServer(ttft_s=600) as server, pytest.raises(ServerError, match=r"sent nothing for 0\.1 s"):
        Chat(server.url, timeout_s=0.1).ask(STREAMED, model="m")


@pytest.mark.parametrize(
    "body", [{"object": "error", "message": "too long"}, {"error": "too long"}, {"error": {"message": "too long"}}]
)
def test_error_bodies_of_several_servers_are_understood(body: dict[str, Any]) -> None:
    assert chat._message(body) == "too long"


def test_long_error_pages_are_shortened() -> None:
    assert len(chat._message({"error": "x " * 1000})) < 310


def listing(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    """Lets every server answer with a body."""

    class Response(io.BytesIO):
        headers = MappingProxyType({"Content-Type": "text/event-stream"})

    monkeypatch.setattr(Chat, "_open", lambda *_: nullcontext(Response(body)))


@pytest.mark.parametrize(("body", "told"), [(b'{"error": "who?"}', "no models: who?"), (b"[]", "this is not an answer: []")])
def test_a_list_of_models_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch, body: bytes, told: str) -> None:
    listing(monkeypatch, body)
    with pytest.raises(ServerError, match=re.escape(told)):
        Chat("http://s/v1").models()


def test_a_server_without_a_model_is_waited_for_or_an_error(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    listing(monkeypatch, b'{"data": []}')
    time = Time()
    with pytest.raises(ServerError, match=r"^not ready after 7 s: http://s/v1 serves no model yet"):
        Chat("http://s/v1", clock=time.clock).wait(7, tell=chat._tell, sleep=time.sleep)
    assert (time.naps, capsys.readouterr().err) == ([5, 2], "waiting: http://s/v1 serves no model yet\n")
    assert failed(capsys, "--url", "http://s/v1", code=1) == "error: http://s/v1 serves no model\n"


@pytest.mark.parametrize(("error", "told"), [(ConnectionResetError("x"), "x"), (http.client.HTTPException(), "HTTPException")])
def test_a_connection_that_breaks_is_told(error: Exception, told: str) -> None:
    with pytest.raises(ServerError, match=f"^the connection to http://s/v1 broke: {told}$"), Chat("http://s/v1")._network():
        raise error
    assert Chat("http://s/v1")._forward_hint() == ""


@pytest.mark.parametrize(("status", "code"), [(401, 2), (403, 2), (402, 1), (404, 1)])
def test_a_page_in_the_place_of_an_error_is_shown(status: int, code: int) -> None:
    refusal = Chat("http://s/v1")._refusal(status, "/models", b"<h1>\n No</h1>\xff")
    assert isinstance(refusal, chat.ChatError)
    assert (refusal.code, str(refusal)) == (code, f"status {status} from http://s/v1/models: <h1> No</h1>\ufffd")
    assert ("OPENAI_API_KEY" in refusal.fields["hint"]) is (code == 2)


@pytest.mark.parametrize("given", ["0", "0.5", "999999", "1e6", "-1", "nan", "soon"])
def test_seconds_are_a_number_that_sockets_take(given: str) -> None:
    taken = given in ("0", "0.5", "999999")
    with nullcontext() if taken else pytest.raises(argparse.ArgumentTypeError, match=f"from 0 to 999999: {given}"):
        assert chat._seconds(given) == float(given)
    with nullcontext() if taken and given != "0" else pytest.raises(argparse.ArgumentTypeError):
        assert chat._above_0(given) == float(given)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [(OSError(28, "it is full"), 2, "error: cannot write the answer: it is full\n"), (KeyboardInterrupt(), 130, "\n")],
)
def test_whoever_cannot_write_or_ends_it_gets_a_code(error: Any, code: int, said: str, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(chat, "_converse", Mock(side_effect=error))
    assert (main([]), capsys.readouterr().err) == (code, said)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "localhost:8000/v1", "ftp://localhost/v1", "http://localhost:8o/v1", "http:///v1", ""]
)
def test_what_is_no_url_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(GivenError, match="is not a URL"):
        Chat(url)


def test_a_slash_behind_the_url_does_no_harm() -> None:
    with OpenAIServer(model="llama") as server:
        assert Chat(f"{server.url}/").models() == ["llama"]


def test_a_pipe_that_the_reader_closed_is_no_fault_of_the_server() -> None:
    def closed(text: str) -> None:
        raise BrokenPipeError

    with OpenAIServer() as server, pytest.raises(BrokenPipeError):
        Chat(server.url).ask(STREAMED, model="m", show=closed)


# -- waiting -------------------------------------------------------------------------------------------------------------------


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.naps: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        return self.now


def test_waiting_ends_with_the_budget_and_tells_each_reason_once(nowhere: str) -> None:
    time, told = Time(), []
    with pytest.raises(ServerError, match="not ready after 12 s: nothing listens"):
        Chat(nowhere, clock=time.clock).wait(12, tell=told.append, sleep=time.sleep)
    assert time.naps == [5, 5, 2]
    assert len(told) == 1


def test_waiting_ends_when_the_server_is_there(nowhere: str) -> None:
    time = Time()
    with OpenAIServer(model="llama") as server:
        late = Chat(nowhere, clock=time.clock)

        def start(seconds: float) -> None:
            time.sleep(seconds)
            if time.now >= 30:
                late._address = ("127.0.0.1", server.port)

        assert late.wait(3600, tell=lambda reason: None, sleep=start) == ["llama"]
    assert time.now == 30


# -- the command ---------------------------------------------------------------------------------------------------------------


def test_without_a_prompt_it_asks_the_three_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with OpenAIServer(model="llama") as server:
        assert main(["--url", server.url]) == 0
        plain, with_parameters, streamed = server.questions
    assert not plain.get("stream")
    assert not with_parameters.get("stream")
    assert streamed["stream"]
    assert with_parameters.keys() >= {"temperature", "top_p", "frequency_penalty", "max_tokens"}
    assert {question["model"] for question in (plain, with_parameters, streamed)} == {"llama"}
    shown = capsys.readouterr().out
    assert all(question.prompt in shown for question in EXAMPLES)
    assert len(re.findall(r"^\[\d+ tokens in ", shown, re.MULTILINE)) == 3
    assert len(re.findall(r"; time to first token \d", shown)) == 1


def test_a_prompt_of_ones_own_is_streamed_and_not_limited(capsys: pytest.CaptureFixture[str]) -> None:
    with OpenAIServer() as server:
        assert main(["--url", server.url, "--prompt", "Why?"]) == 0
        (question,) = server.questions
    assert question["stream"]
    assert "max_tokens" not in question
    assert question["messages"] == [{"role": "user", "content": "Why?"}]
    assert "word word1" in capsys.readouterr().out


def test_without_streaming_every_answer_comes_whole(capsys: pytest.CaptureFixture[str]) -> None:
    with OpenAIServer() as server:
        assert main(["--url", server.url, "--no-stream"]) == 0
        assert not any(question.get("stream") for question in server.questions)
    assert "time to first token" not in capsys.readouterr().out


def test_answers_are_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    with OpenAIServer() as server:
        assert main(["--url", server.url, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert not unlike("chat", document)
    assert (document["schema"], document["model"]) == (1, "m")
    assert [answer["prompt"] for answer in document["answers"]] == [question.prompt for question in EXAMPLES]
    assert all(answer["text"] and answer["seconds"] >= 0 for answer in document["answers"])


def failed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    """What a failing command prints to standard error: one line, and its fields."""
    assert main([*arguments]) == code
    told = capsys.readouterr().err
    assert re.fullmatch(r"error: .+\n( {4}(given|allowed|hint): .+\n)*", told)
    return told


def test_where_nothing_listens_the_port_forward_is_named(nowhere: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = failed(capsys, "--url", nowhere, code=1)
    assert f"kubectl -n NAMESPACE port-forward svc/SERVICE {urlsplit(nowhere).port}:8000" in told
    assert "pulumi stack output next" in told


@pytest.mark.parametrize("fault", ["http_500", "error_body", "error_event", "broken_stream", "no_content", "not_json"])
def test_a_failing_server_is_one_line_and_code_1(fault: Fault, capsys: pytest.CaptureFixture[str]) -> None:
    with OpenAIServer(fault=fault) as server:
        failed(capsys, "--url", server.url, "--prompt", "Why?", code=1)


def test_a_model_that_is_not_served_is_code_2_and_names_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    with OpenAIServer(model="llama") as server:
        assert "    allowed: llama\n" in failed(capsys, "--url", server.url, "--model", "lama", code=2)
        assert server.questions == []


def test_a_url_without_its_version_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with OpenAIServer() as server:
        assert f"hint: the base of the API ends in /v1: --url {server.url}\n" in failed(
            capsys, "--url", server.url.removesuffix("/v1"), code=1
        )


def test_what_is_no_url_is_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not a URL of a server\n    given: localhost:8000\n" in failed(capsys, "--url", "localhost:8000", code=2)


def test_the_key_comes_from_the_environment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer(key="k") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        assert main(["--url", server.url, "--prompt", "Why?"]) == 0
        monkeypatch.delenv("OPENAI_API_KEY")
        capsys.readouterr()
        assert "set the environment variable OPENAI_API_KEY" in failed(capsys, "--url", server.url, "--prompt", "Why?", code=2)


def test_proxies_of_the_environment_are_not_asked(
    nowhere: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, nowhere)
    with OpenAIServer() as server:
        assert main(["--url", server.url, "--prompt", "Why?"]) == 0


def test_the_script_imports_only_the_standard_library() -> None:
    tree = ast.parse(SCRIPT.read_text())
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in found} <= sys.stdlib_module_names


# -- where the pods run --------------------------------------------------------------------------------------------------------


CORE = placement("m5.2xlarge", pool="core")


@dataclasses.dataclass(frozen=True)
class Server:
    """A model server as its clients see it."""

    namespace: str = "vllm"
    model_id: str = "NousResearch/Meta-Llama-3-8B-Instruct"
    startup_seconds: int = 3600
    port: int = 8000
    ready: tuple[pulumi.Resource, ...] = ()

    @property
    def url(self) -> str:
        return f"http://llama3-serve-svc.{self.namespace}.svc.cluster.local:{self.port}/v1"


def pod_of(resource: Resource) -> dict[str, Any]:
    return resource.inputs["spec"]["template"]["spec"]


def container_of(resource: Resource) -> dict[str, Any]:
    (only,) = pod_of(resource)["containers"]
    return only


def environment_of(resource: Resource) -> dict[str, Any]:
    env = container_of(resource)["env"]
    assert len({entry["name"] for entry in env}) == len(env)
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in env}


def started_with(resource: Resource, secrets: dict[tuple[str, str], str]) -> dict[str, str]:
    """The environment the kubelet makes of a container's: ``$(NAME)`` is filled in from what stands before, and not otherwise."""
    found: dict[str, str] = {}
    for entry in container_of(resource)["env"]:
        reference = entry.get("valueFrom", {}).get("secretKeyRef")
        if reference:
            found[entry["name"]] = secrets[reference["name"], reference["key"]]
        else:
            found[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found.get(match[1], match[0]), entry["value"])
    return found


def egress_of(policy: Resource) -> dict[str, list[int]]:
    """Namespaces a policy lets its pods out to, with the TCP ports."""
    return {
        peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]: [
            port["port"] for port in rule["ports"] if port["protocol"] == "TCP"
        ]
        for rule in policy.inputs["spec"]["egress"]
        for peer in rule["to"]
    }


# -- the web UI ----------------------------------------------------------------------------------------------------------------


def web_ui(
    *,
    servers: dict[str, Server] | None = None,
    password: Callable[[], Any] = lambda: None,
    key: Callable[[], Any] = lambda: None,
    on: Placement = CORE,
    **spec: Any,
) -> Graph:
    def build() -> None:
        OpenWebUI(
            "chat",
            OpenWebUISpec.model_validate(spec),
            cluster=existing_cluster(),
            placement=on,
            servers={"llama3": Server()} if servers is None else servers,
            admin_password=password(),
            api_key=key(),
        )

    return record(build)


def test_the_web_ui_knows_every_server_and_may_reach_each_at_its_port() -> None:
    graph = web_ui(servers={"a": Server("vllm"), "b": Server("triton", port=9000)})
    urls = environment_of(graph.named("chat-deployment"))["OPENAI_API_BASE_URLS"].split(";")
    assert urls == [
        "http://llama3-serve-svc.vllm.svc.cluster.local:8000/v1",
        "http://llama3-serve-svc.triton.svc.cluster.local:9000/v1",
    ]
    assert len(environment_of(graph.named("chat-deployment"))["OPENAI_API_KEYS"].split(";")) == len(urls)
    assert egress_of(graph.named("chat-policy")) == {"kube-system": [53], "vllm": [8000], "triton": [9000]}


def test_the_port_forward_ends_at_the_web_uis_port() -> None:
    graph = web_ui(namespace="openai-webui")
    service = graph.named("chat-service").inputs
    (port,) = service["spec"]["ports"]
    (named,) = container_of(graph.named("chat-deployment"))["ports"]
    assert plan.port_forward_command("openai-webui") == "kubectl -n openai-webui port-forward svc/open-webui 8081:80"
    assert service["metadata"] == {"name": "open-webui", "namespace": "openai-webui"}
    assert (port["port"], port["targetPort"], named["containerPort"]) == (80, named["name"], 8080)
    labels = graph.named("chat-deployment").inputs["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_a_given_password_becomes_a_secret_and_is_seen_nowhere() -> None:
    graph = web_ui(password=lambda: "correct horse", admin_email="admin@corp.example")
    environment = environment_of(graph.named("chat-deployment"))
    assert environment["WEBUI_ADMIN_EMAIL"] == "admin@corp.example"
    assert environment["WEBUI_ADMIN_PASSWORD"] == {"secretKeyRef": {"name": "open-webui-admin", "key": "password"}}
    assert graph.named("chat-admin").inputs["metadata"]["name"] == "open-webui-admin"
    assert graph.named("chat-admin").urn in graph.named("chat-deployment").dependencies
    assert "correct horse" not in graph.to_json()


@pytest.mark.parametrize("extra_env", [{}, {"SERVING_API_KEY": "another"}], ids=["", "overruled"])
def test_every_server_is_sent_the_key(extra_env: dict[str, str]) -> None:
    graph = web_ui(servers={"a": Server("a"), "b": Server("b")}, key=lambda: "geheim", extra_env=extra_env)
    deployment = graph.named("chat-deployment")
    environment = started_with(deployment, {("open-webui-api-key", "key"): "geheim"})
    assert environment["OPENAI_API_KEYS"] == ";".join([extra_env.get("SERVING_API_KEY", "geheim")] * 2)
    assert "OPENAI_API_KEY" not in environment
    assert graph.named("chat-api-key").inputs["metadata"] == {"name": "open-webui-api-key", "namespace": "openwebui"}
    assert graph.named("chat-api-key").urn in deployment.dependencies
    assert "geheim" not in graph.to_json()


def test_without_a_key_the_web_ui_sends_a_word_that_is_none() -> None:
    assert started_with(web_ui().named("chat-deployment"), {})["OPENAI_API_KEYS"] == "none"


def test_what_has_to_stay_is_on_the_volume() -> None:
    graph = web_ui(volume_gib=20, storage_class="gp3-retained")
    deployment = graph.named("chat-deployment")
    (mount,) = container_of(deployment)["volumeMounts"]
    environment = environment_of(deployment)
    assert environment["DATA_DIR"] == mount["mountPath"]
    assert environment["WEBUI_SECRET_KEY_FILE"].startswith(f"{mount['mountPath']}/")
    claim = graph.named("chat-volume").inputs
    assert pod_of(deployment)["volumes"] == [
        {"name": mount["name"], "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
    ]
    assert claim["spec"]["resources"]["requests"]["storage"] == "20Gi"
    assert claim["spec"]["storageClassName"] == "gp3-retained"


def test_extra_variables_win() -> None:
    environment = environment_of(
        web_ui(
            password=lambda: "secret",
            extra_env={"ENABLE_SIGNUP": "true", "WEBUI_ADMIN_EMAIL": "root@corp.example", "ENABLE_TAGS_GENERATION": "false"},
        ).named("chat-deployment")
    )
    assert environment["ENABLE_SIGNUP"] == "true"
    assert environment["WEBUI_ADMIN_EMAIL"] == "root@corp.example"
    assert environment["ENABLE_TAGS_GENERATION"] == "false"


def test_the_web_ui_goes_where_its_placement_says() -> None:
    taint = Taint("core", "true", "NoSchedule")
    pod = pod_of(web_ui(on=placement("m5.large", pool="apps", taints=(taint,))).named("chat-deployment"))
    assert pod["nodeSelector"] == {"eks-inference/pool": "apps"}
    assert pod["tolerations"] == [taint.toleration()]


def test_a_web_ui_needs_a_server() -> None:
    with pytest.raises(ProgramError) as failure:
        web_ui(servers={})
    assert isinstance(failure.value.__cause__, SpecError)


# -- the smoke test ------------------------------------------------------------------------------------------------------------


def seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))


def smoke_test(
    *,
    server: Server | None = None,
    on: Placement = CORE,
    name: str = "t",
    key: Callable[[], Any] = lambda: None,
    settings: dict[str, Any] | None = None,
    **spec: Any,
) -> Graph:
    def build() -> None:
        SmokeTest(
            name,
            SmokeTestSpec.model_validate(spec),
            cluster=existing_cluster(**(settings or {})),
            placement=on,
            server=server or Server(),
            api_key=key(),
        )

    return record(build)


def test_the_smoke_test_may_reach_its_server_and_nothing_else() -> None:
    policy = smoke_test(server=Server("triton", port=9000)).named("t-policy")
    assert policy.inputs["spec"]["ingress"] == []
    assert egress_of(policy) == {"kube-system": [53], "triton": [9000]}


def run_in_the_pod(graph: Graph, server: OpenAIServer, folder: Path, **secrets: str) -> subprocess.CompletedProcess[str]:
    """Script, arguments and environment out of the recorded objects, in an interpreter that knows nothing of the library.

    ``secrets`` are the contents of the one Secret there may be.
    """
    job = graph.named("t-job")
    (mount,) = container_of(job)["volumeMounts"]
    for file, text in graph.named("t-script").inputs["data"].items():
        (folder / file).write_text(text)
    python, *arguments = (
        word.replace(mount["mountPath"], str(folder)).replace(Server().url, server.url) for word in container_of(job)["command"]
    )
    assert python == "python"
    environment = started_with(job, {("smoke-test-api-key", key): value for key, value in secrets.items()})
    return subprocess.run(
        [sys.executable, "-I", *arguments], capture_output=True, text=True, timeout=60, cwd=folder, env=environment
    )


def test_the_job_runs_the_command_the_user_runs(tmp_path: Path) -> None:
    with OpenAIServer(model="llama") as server:
        done = run_in_the_pod(smoke_test(server=Server(model_id="llama")), server, tmp_path)
        assert done.returncode == 0, done.stderr
        assert len(server.questions) == 3
    assert "tokens/s" in done.stdout


def test_the_smoke_test_sends_the_key_a_server_wants(tmp_path: Path) -> None:
    graph = smoke_test(server=Server(model_id="llama"), key=lambda: "geheim")
    with OpenAIServer(model="llama", key="geheim") as server:
        done = run_in_the_pod(graph, server, tmp_path, key="geheim")
        assert done.returncode == 0, done.stderr
        assert len(server.questions) == 3
    assert graph.named("t-api-key").inputs["metadata"] == {"name": "smoke-test-api-key", "namespace": "t"}
    assert graph.named("t-api-key").urn in graph.named("t-job").dependencies
    assert "geheim" not in graph.to_json()


def test_a_smoke_test_without_the_key_of_its_server_fails(tmp_path: Path) -> None:
    with OpenAIServer(model="llama", key="geheim") as server:
        assert run_in_the_pod(smoke_test(server=Server(model_id="llama")), server, tmp_path).returncode == 2


def test_the_job_waits_for_a_cold_start_and_is_waited_for_longer_still() -> None:
    job = smoke_test(server=Server(startup_seconds=5000), wait=True).named("t-job")
    command = container_of(job)["command"]
    assert command[command.index("--wait") + 1] == "5000"
    assert 5000 < job.inputs["spec"]["activeDeadlineSeconds"] < seconds(job.options["customTimeouts"]["create"])


def test_a_job_that_is_waited_for_runs_again_after_a_failure() -> None:
    assert smoke_test(wait=True).named("t-job").inputs["metadata"]["annotations"] == {"pulumi.com/replaceUnready": "true"}


def job_name(**given: Any) -> str:
    return smoke_test(**given).named("t-job").inputs["metadata"]["name"]


def test_the_job_has_another_name_when_anything_in_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    base = job_name()
    assert base == job_name()
    others = {
        job_name(server=Server("other")),
        job_name(server=Server(model_id="other")),
        job_name(image="python:3.14.1"),
        job_name(run="again"),
        job_name(key=lambda: SecretRef("keys", "vllm")),
    }
    with monkeypatch.context() as changed:
        changed.setattr(plan, "smoke_test_script", lambda: {"chat.py": "print()"})
        others.add(job_name())
    assert len(others - {base}) == 6
    assert all(len(name) <= 63 for name in others)


@pytest.mark.parametrize("name", ["T", "t_1", "t" * 64, "1t"])
def test_a_name_that_cannot_be_a_namespace_is_refused(name: str) -> None:
    with pytest.raises(ProgramError) as failure:
        smoke_test(name=name)
    assert isinstance(failure.value.__cause__, SpecError)


# -- both ----------------------------------------------------------------------------------------------------------------------


def after_a_server(client: str) -> Graph:
    """The client stands on a server and a placement that are of the same program."""

    def build() -> None:
        cluster = existing_cluster()
        there = pulumi.ResourceOptions(provider=cluster.provider)
        server = Server(ready=(k8s.core.v1.Service("server", opts=there),))
        on = dataclasses.replace(CORE, ready=(k8s.core.v1.ConfigMap("nodes", opts=there),))
        if client == "t":
            SmokeTest("t", SmokeTestSpec(), cluster=cluster, placement=on, server=server)
        else:
            OpenWebUI("chat", OpenWebUISpec(), cluster=cluster, placement=on, servers={"s": server}, admin_password="secret")

    return record(build)


@pytest.mark.parametrize(
    ("client", "workload", "needs"),
    [
        ("chat", "chat-deployment", {"chat-policy", "chat-volume", "chat-admin", "server", "nodes"}),
        ("t", "t-job", {"t-policy", "t-script", "server", "nodes"}),
    ],
)
def test_the_workload_comes_after_all_it_needs_on_the_clusters_provider(client: str, workload: str, needs: set[str]) -> None:
    graph = after_a_server(client)
    (provider,) = graph.of_type("pulumi:providers:kubernetes")
    children = [resource for resource in graph.resources if resource.parent == graph.named(client).urn]
    assert {child.provider for child in children} == {provider.urn}
    assert {graph.by_urn[urn].name for urn in graph.named(workload).dependencies} == needs
    for name in needs - {"server", "nodes"}:
        assert graph.named(f"{client}-namespace").urn in graph.named(name).dependencies


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"open_webui": {"admin_email": "nobody"}}, "admin_email"),
        ({"open_webui": {"image": "ghcr.io/open-webui/open-webui:latest"}}, "image"),
        ({"open_webui": {"volume_gib": 0}}, "volume_gib"),
        ({"smoke_test": {"image": "python"}}, "image"),
        ({"smoketest": {}}, "smoketest"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_key(section: dict[str, Any], key: str) -> None:
    with pytest.raises(SpecError, match=key):
        ClientsSpec.model_validate(section)


def test_absent_sections_make_nothing_and_empty_ones_are_enough() -> None:
    assert ClientsSpec() == ClientsSpec(open_webui=None, smoke_test=None)
    assert ClientsSpec.model_validate({"open_webui": {}, "smoke_test": {}}).open_webui == OpenWebUISpec()
    assert json.dumps(ClientsSpec.model_json_schema())
