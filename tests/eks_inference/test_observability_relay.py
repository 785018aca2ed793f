"""How the engine's metrics get out of a Ray worker: the replica hands them on to Ray."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from eks_inference.serving import ray_serve
from ports import free_ports
from waiting import until

sys.path.insert(0, str(Path(ray_serve.__file__).parent / "assets"))

import vllm_metrics
from vllm_metrics import Relay, Sample, samples

# As vLLM's server answers; a model may be a path with a quotation mark in it.
ANSWER = r"""# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="NousResearch/Meta-Llama-3-8B-Instruct"} 3.0
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{engine="0",model_name="NousResearch/Meta-Llama-3-8B-Instruct"} 1.2e+06
vllm:prompt_tokens_created{engine="0",model_name="NousResearch/Meta-Llama-3-8B-Instruct"} 1.7898432023697093e+09
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.25",model_name="odd \"name\", {so} \\ far"} 2.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="odd \"name\", {so} \\ far"} 5.0
vllm:engine_without_labels 1
http_requests_total{handler="/metrics"} 7.0
process_open_fds 12.0
"""


class Gauges:
    """What Ray would hand to Prometheus, and what it was told about it."""

    def __init__(self) -> None:
        self.labels: dict[str, tuple[str, ...]] = {}
        self.values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def __call__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> "One":
        assert name not in self.labels, "Ray wants one object a metric"
        assert description
        self.labels[name] = tag_keys
        return One(self, name)


class One:
    def __init__(self, gauges: Gauges, name: str) -> None:
        self.gauges, self.name = gauges, name

    def set(self, value: float, tags: dict[str, str]) -> None:
        assert set(tags) == set(self.gauges.labels[self.name]), "Ray wants the labels it was told of"
        self.gauges.values[self.name, tuple(sorted(tags.items()))] = value


def test_every_sample_of_the_engine_is_read_and_nothing_else() -> None:
    assert [sample.name for sample in samples(ANSWER)] == [
        "vllm:num_requests_waiting",
        "vllm:prompt_tokens_total",
        "vllm:time_to_first_token_seconds_bucket",
        "vllm:time_to_first_token_seconds_bucket",
        "vllm:engine_without_labels",
    ]


def test_labels_are_read_as_they_were_meant() -> None:
    bucket = list(samples(ANSWER))[3]
    assert bucket == Sample(
        "vllm:time_to_first_token_seconds_bucket",
        {"engine": "0", "le": "+Inf", "model_name": 'odd "name", {so} \\ far'},
        5.0,
    )


@pytest.mark.parametrize("text", ["", "no metrics here", "vllm:x", "<html>vllm:x 1</html>"])
def test_an_answer_without_metrics_is_none(text: str) -> None:
    assert not list(samples(text))


def test_ray_gets_the_names_it_gives_an_engine_of_its_own() -> None:
    gauges = Gauges()
    Relay("http://127.0.0.1:1", gauges).publish(ANSWER)
    assert set(gauges.labels) == {
        "vllm_num_requests_waiting",
        "vllm_prompt_tokens_total",
        "vllm_time_to_first_token_seconds_bucket",
        "vllm_engine_without_labels",
    }


def test_each_bucket_is_a_series_and_the_last_value_counts() -> None:
    gauges = Gauges()
    relay = Relay("http://127.0.0.1:1", gauges)
    relay.publish(ANSWER)
    relay.publish(ANSWER.replace("} 5.0", "} 6.0"))
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in gauges.values.items()
        if name.endswith("first_token_seconds_bucket")
    }
    assert buckets == {"0.25": 2.0, "+Inf": 6.0}


class Engine(BaseHTTPRequestHandler):
    """Answers /metrics: first with what is no text of Prometheus, then as vLLM does."""

    asked = 0

    def do_GET(self) -> None:
        assert self.path == "/metrics"
        type(self).asked += 1
        body = b"vllm:x not-a-number" if self.asked == 1 else ANSWER.encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def engine_url() -> Iterator[str]:
    # A relay never ends: its port is never another server's.
    server = ThreadingHTTPServer(("127.0.0.1", free_ports(1)[0]), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_started_relay_hands_on_what_the_engine_answers(engine_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_metrics, "PERIOD_S", 0.05)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    gauges = Gauges()
    Relay(engine_url, gauges).start()
    until(lambda: gauges.values)  # one bad answer must not end it
    assert "vllm_num_requests_waiting" in gauges.labels


def test_it_keeps_ahead_of_ray() -> None:
    assert vllm_metrics.PERIOD_S < 10, "Ray passes values on every 10 seconds and forgets them"
