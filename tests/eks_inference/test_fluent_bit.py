"""Fluent Bit: what is sent where, what its role may do, its objects; and, where ``fluent-bit`` is on PATH, the real thing."""

import json
import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eks_inference.aws import iam
from eks_inference.faults import SpecError
from eks_inference.observability import cloudwatch_plan as plan
from eks_inference.observability.cloudwatch import FluentBit
from eks_inference.observability.spec import FluentBitSpec
from handles import existing_cluster
from stackgraph.graph.document import Graph
from stackgraph.recorder.recording import record

FLUENT_BIT = shutil.which("fluent-bit")
needs_fluent_bit = pytest.mark.skipif(
    FLUENT_BIT is None or shutil.which("openssl") is None, reason="fluent-bit is not on PATH, or openssl"
)


def fluent_bit(spec: dict[str, Any] | None = None, **settings: Any) -> Graph:
    """Fluent Bit alone, on a cluster that is already there."""
    wish = FluentBitSpec.model_validate(spec or {})
    return record(lambda: FluentBit("fb", wish, cluster=existing_cluster("eks-llm", **settings)) and None)


def configuration(spec: FluentBitSpec | None = None) -> str:
    return plan.fluent_bit_configuration(spec or FluentBitSpec(), cluster="eks-llm", region="us-west-2")


def section(name: str, text: str) -> dict[str, str]:
    """Keys of a section of the configuration; of a key that stands there twice, the last."""
    lines = text.split(f"[{name}]\n")[1].split("\n\n")[0].splitlines()
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}


# -- what a user may write ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"), [("retention_days", 2), ("retention_days", 0), ("log_group", "a b"), ("log_group", "")]
)
def test_values_that_cloudwatch_refuses_are_refused(key: str, value: Any) -> None:
    with pytest.raises(SpecError, match=key):
        FluentBitSpec.model_validate({key: value})


# -- what is sent where ---------------------------------------------------------------------------------------------------------


DNS_LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
POD_NAME = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?)?", fullmatch=True)


@given(namespace=DNS_LABEL, pod=POD_NAME, container=DNS_LABEL, run=st.from_regex(r"[0-9a-f]{64}", fullmatch=True))
def test_a_stream_is_named_after_namespace_pod_and_container(namespace: str, pod: str, container: str, run: str) -> None:
    """As the kubelet names log files (KEP of CRI log paths: names of pods and namespaces have no underscore)."""
    tail, output = section("INPUT", configuration()), section("OUTPUT", configuration())
    pattern = tail["Tag_Regex"].replace("(?<", "(?P<")
    found = re.search(pattern, f"/var/log/containers/{pod}_{namespace}_{container}-{run}.log")
    assert found
    assert re.sub("<([a-z]+)>", lambda name: found[name[1]], tail["Tag"]) == f"{namespace}.{pod}.{container}"
    assert output["log_stream_template"] == "$TAG"


def test_the_group_is_the_source_systems_unless_named() -> None:
    assert section("OUTPUT", configuration())["log_group_name"] == "/aws/eks/eks-llm/workload"
    assert section("OUTPUT", configuration(FluentBitSpec(log_group="/mine")))["log_group_name"] == "/mine"
    group = fluent_bit({"log_group": "/mine", "retention_days": 1}).named("fb-log-group").inputs
    assert (group["name"], group["retentionInDays"]) == ("/mine", 1)


def test_its_own_lines_are_not_sent() -> None:
    excluded = section("INPUT", configuration(FluentBitSpec(namespace="logging")))["Exclude_Path"]
    assert excluded == "/var/log/containers/*_logging_*.log"


def test_another_configuration_is_another_pod() -> None:
    def annotations(spec: dict[str, Any]) -> dict[str, str]:
        return fluent_bit(spec).named("fb-daemonset").inputs["spec"]["template"]["metadata"]["annotations"]

    assert annotations({}) == annotations({"retention_days": 30})
    assert annotations({}) != annotations({"log_group": "/mine"})


# -- what it may do -------------------------------------------------------------------------------------------------------------


# -- the real thing -------------------------------------------------------------------------------------------------------------

Call = tuple[str, dict[str, Any]]


@needs_fluent_bit
def test_fluent_bit_does_what_the_configuration_is_meant_to(tmp_path: Path) -> None:
    """Against a stand-in for CloudWatch and for the Pod Identity agent: names, lines, credentials; refused lines come again."""
    write_log(tmp_path, "client-abc12", "triton-client", "perf", ["stdout F one", "stderr P two ", "stderr F halves"])
    write_log(tmp_path, "with.dots-0", "ns-1", "c-with-dash", ["stdout F dots"])
    write_log(tmp_path, "fluent-bit-x", "fluent-bit", "fluent-bit", ["stdout F own"])
    wanted = {
        "triton-client.client-abc12.perf": [("stdout", "one"), ("stderr", "two halves")],
        "ns-1.with.dots-0.c-with-dash": [("stdout", "dots")],
    }
    got: dict[str, list[tuple[str, str]]] = {}
    actions: set[str] = set()
    with cloudwatch(tmp_path) as (calls, port, agent), running(tmp_path, port, agent):
        while set(got) != set(wanted):
            action, body = calls.get(timeout=30)
            actions.add(action)
            if action == "PutLogEvents":
                assert body["logGroupName"] == "/aws/eks/eks-llm/workload"
                events = [json.loads(event["message"]) for event in body["logEvents"]]
                assert {event["node"] for event in events} == {"node-1"}
                got[body["logStreamName"]] = [(event["stream"], event["log"]) for event in events]
    assert got == wanted
    policy = iam.writer("arn")["Statement"][0]["Action"]
    assert actions == {action.removeprefix("logs:") for action in policy}, "what it calls is what its role allows"


def write_log(root: Path, pod: str, namespace: str, container: str, lines: list[str]) -> None:
    folder = root / "log" / "containers"
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"2026-11-21T10:00:0{second}.5Z {line}\n" for second, line in enumerate(lines))
    (folder / f"{pod}_{namespace}_{container}-{'a' * 64}.log").write_text(text)


@contextmanager
def running(root: Path, port: int, agent: str) -> Iterator[None]:
    """Fluent Bit with our configuration, but for places and times; credentials as a pod gets them."""
    assert FLUENT_BIT
    text = configuration().replace("/var/log", str(root / "log")).replace("/var/lib/fluent-bit", str(root))
    text = re.sub(r"(Flush +)5\n", r"\g<1>1\n", text).replace("HTTP_Server          On", "HTTP_Server          Off")
    (root / "fluent-bit.conf").write_text(f"{text}    endpoint 127.0.0.1\n    port {port}\n    tls.verify Off\n")
    (root / "token").write_text("pod-token")
    credentials = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": agent, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(root / "token")}
    process = subprocess.Popen(
        [FLUENT_BIT, "--config", str(root / "fluent-bit.conf")],
        env={"PATH": os.defpath, "NODE_NAME": "node-1", **credentials},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def cloudwatch(root: Path) -> Iterator[tuple["Queue[Call]", int, str]]:
    """Calls that were let pass, the port, and where credentials are handed out. The first lines of a stream are refused."""
    calls: Queue[Call] = Queue()
    refused: set[str] = set()

    class Logs(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            action, stream = self.headers["x-amz-target"].partition(".")[2], body.get("logStreamName", "")
            signed = "Credential=KEY/" in self.headers["authorization"] and self.headers["x-amz-security-token"] == "session"
            again = action == "PutLogEvents" and stream not in refused
            refused.update([stream] if again else [])
            if signed and not again:
                calls.put((action, body))
            answer(self, 200 if signed and not again else 503, {})

        def log_message(self, format: str, *args: Any) -> None: ...

    class Agent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys = {"AccessKeyId": "KEY", "SecretAccessKey": "secret", "Token": "session", "Expiration": "2099-01-01T00:00:00Z"}
            answer(self, 200 if self.headers["authorization"] == "pod-token" else 403, keys)

        def log_message(self, format: str, *args: Any) -> None: ...

    command = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {root}/key -out {root}/cert -days 1 -subj /CN=127.0.0.1"
    subprocess.run(command.split(), check=True, capture_output=True, timeout=60)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(root / "cert", root / "key")
    logs, agent = ThreadingHTTPServer(("127.0.0.1", 0), Logs), ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    logs.socket = tls.wrap_socket(logs.socket, server_side=True)
    for server in (logs, agent):
        Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield calls, logs.server_port, f"http://127.0.0.1:{agent.server_port}/v1/credentials"
    finally:
        for server in (logs, agent):
            server.shutdown()
            server.server_close()


def answer(request: BaseHTTPRequestHandler, status: int, body: dict[str, str]) -> None:
    text = json.dumps(body).encode()
    request.send_response(status)
    request.send_header("content-length", str(len(text)))
    request.end_headers()
    request.wfile.write(text)
