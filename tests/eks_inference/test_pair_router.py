"""The router of a static pair never loses a slot of either server, bounds what is in flight, and tells what it did."""

import http.client
import itertools
import json
import os
import random
import threading
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import alive
import pytest
import router as script
from exchange import Asked, placeholder

from conftest import ROOT
from openai_server import OpenAIServer
from pair_engine import PairEngine
from waiting import PATIENCE_S, until

REQUESTS = int(os.environ.get("PAIR_REQUESTS", "300"))
CLIENTS = 16
PATIENT = str(PATIENCE_S)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe here waits longer for servers to say that they are well."""
    monkeypatch.setattr(alive, "_HEALTH_SECONDS", PATIENCE_S)


@contextmanager
def routed(prefill: str, decode: str, sequences: int = 4) -> Iterator[script.Router]:
    router = script.Router(prefill, decode, 0, "127.0.0.1", sequences)
    serving = threading.Thread(target=router.serve_forever, kwargs={"poll_interval": 0.02})
    serving.start()
    try:
        yield router
    finally:
        router.shutdown()
        serving.join()
        router.server_close()


def metrics(router: script.Router) -> dict[str, int]:
    lines = (line.split() for line in router.metrics().splitlines() if not line.startswith("#"))
    return {name.removeprefix("pair_router_"): int(value) for name, value in lines}


class Client:
    """One kept connection, as clients have."""

    def __init__(self, router: script.Router) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", router.server_address[1], timeout=PATIENCE_S)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: Any) -> None:
        self._connection.close()

    def ask(self, path: str = "/v1/completions", **body: Any) -> tuple[int, str]:
        self._connection.request("POST", path, json.dumps(body))
        response = self._connection.getresponse()
        return response.status, response.read().decode()

    def leave(self, **body: Any) -> None:
        self._connection.request("POST", "/v1/completions", json.dumps(body))
        self._connection.close()


def freed(router: script.Router, engine: PairEngine | None = None) -> None:
    """Waits until nothing keeps a slot."""
    until(lambda: (router.slots.taken, engine and engine.kept), lambda kept: not any(kept))


# What decode refuses and prefill, which is asked for one token, does not.
REFUSED = (
    {"prompt": "a b c", "max_tokens": 62},
    {"prompt": "a", "max_tokens": 2, "stream_options": {"include_usage": True}},
    {"prompt": "a", "max_tokens": 2, "min_tokens": 3},
    {"prompt": ["a b", "a"], "max_tokens": 63},
    {"prompt": "a b c", "max_tokens": 62, "stream": True},
)
ANSWERED = (
    {"prompt": "a", "max_tokens": 2},
    {"prompt": "a", "max_tokens": 3, "stream": True},
    {"prompt": ["a", "b"], "max_tokens": 1},
    {"prompt": "a", "max_tokens": 1, "n": 3},
)


@pytest.mark.thorough
def test_of_many_requests_of_which_decode_refuses_some_none_keeps_a_slot() -> None:
    """PAIR_REQUESTS says how many. One in twenty is refused."""
    draw = random.Random(7)
    bodies = [draw.choice(REFUSED if number % 20 == 0 else ANSWERED) for number in range(REQUESTS)]
    with PairEngine() as engine, routed(*engine.urls) as router:

        def ask(part: list[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
            with Client(router) as client:
                return [(body, client.ask(**body)[0]) for body in part]

        with ThreadPoolExecutor(CLIENTS) as clients:
            got = list(itertools.chain(*clients.map(ask, (bodies[start::CLIENTS] for start in range(CLIENTS)))))
        assert len(got) == REQUESTS
        assert all(status == (400 if body in REFUSED else 200) for body, status in got)
        freed(router, engine)
        assert engine.most <= engine.room
        counted = metrics(router)
        refused = [body for body in bodies if body in REFUSED]
        assert (counted["answered_total"], counted["refused_total"]) == (REQUESTS - len(refused), len(refused))
        assert counted["released_total"] == sum(
            len(body["prompt"]) if isinstance(body["prompt"], list) else 1 for body in refused
        )
        assert (counted["lost_total"], counted["failed_total"], counted["sequences"], counted["waiting"]) == (0, 0, 0, 0)


def test_decode_may_refuse_what_releases_a_slot_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "_RELEASE_PAUSES", (0, 0))
    with PairEngine(refusals=[503, 400]) as engine, routed(*engine.urls) as router, Client(router) as client:
        assert client.ask(prompt="a", max_tokens=2)[0] == 400
        freed(router, engine)
        assert metrics(router)["released_total"] == 1


def test_what_prefill_refuses_never_reaches_decode() -> None:
    with PairEngine() as engine, routed(*engine.urls) as router, Client(router) as client:
        assert client.ask(prompt="a " * 64, max_tokens=1)[0] == 400
        assert client.ask(prompt="a " * 64, max_tokens=1, stream=True)[0] == 400
        assert not engine.kept
        assert metrics(router)["lost_total"] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_clients_that_leave_keep_no_slot(stream: bool) -> None:
    with PairEngine(room=2, seconds=0.05) as engine, routed(*engine.urls, sequences=2) as router:
        for _ in range(8):
            with Client(router) as client:
                client.leave(prompt="a", max_tokens=3, stream=stream)
        with Client(router) as client:
            assert client.ask(prompt="a", max_tokens=2)[0] == 200
        freed(router, engine)


def test_no_more_sequences_are_in_flight_than_the_pair_has_room_for() -> None:
    with PairEngine(room=8, seconds=0.02) as engine, routed(*engine.urls, sequences=3) as router:

        def ask(number: int) -> int:
            with Client(router) as client:
                return client.ask(prompt=["a"] * (1 + number % 3), max_tokens=1)[0]

        with ThreadPoolExecutor(CLIENTS) as clients:
            assert set(clients.map(ask, range(24))) == {200}
        assert engine.most <= 3
        with Client(router) as client:
            status, body = client.ask(prompt="a", max_tokens=1, n=4)
        assert (status, "at most 3 have room" in body) == (400, True)


def test_a_decode_that_breaks_off_is_counted_and_costs_nobody_else_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "_RELEASE_PAUSES", (0, 0))
    with (
        OpenAIServer() as prefill,
        OpenAIServer(fault="broken_stream") as decode,
        routed(f"http://127.0.0.1:{prefill.port}", "http://127.0.0.1:9") as router,
        Client(router) as client,
    ):
        assert client.ask(model="m", prompt="a")[0] == 502
        freed(router)
        router.decode = f"http://127.0.0.1:{decode.port}"
        assert "broke off" in client.ask(model="m", prompt="a", stream=True)[1]
        freed(router)
        counted = metrics(router)
        # Of the first, prefill has computed what decode was not there to fetch.
        assert (counted["lost_total"], counted["failed_total"], counted["refused_total"]) == (1, 1, 1)


def test_too_many_waiting_requests_are_refused_and_the_rest_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    import slots

    monkeypatch.setattr(slots, "_WAITING", 1)
    with PairEngine(room=1) as engine, routed(*engine.urls, sequences=1) as router:

        def ask() -> int:
            with Client(router) as client:
                return client.ask(prompt="a", max_tokens=1)[0]

        engine.decoding.add("another's")
        with ThreadPoolExecutor(2) as clients:
            try:
                runs = clients.submit(ask)
                until(lambda: (router.slots.taken, router.slots.waiting), lambda held: held == (1, 0))
                waits = clients.submit(ask)
                until(lambda: router.slots.waiting)
                assert ask() == 503
            finally:
                engine.decoding.clear()
            assert (runs.result(), waits.result()) == (200, 200)
        assert metrics(router)["waiting"] == 0


@pytest.mark.parametrize("length", ["-1", "x", str(2**40)])
def test_a_length_that_is_none_is_refused(length: str) -> None:
    with PairEngine() as engine, routed(*engine.urls) as router:
        connection = http.client.HTTPConnection("127.0.0.1", router.server_address[1], timeout=PATIENCE_S)
        connection.putrequest("POST", "/v1/completions")
        connection.putheader("Content-Length", length)
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()


@pytest.mark.parametrize(
    ("body", "sequences"),
    [
        ({"prompt": "a"}, 1),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1, 2], [3]]}, 2),
        ({"prompt": ["a", "b"], "n": 2}, 4),
        ({"prompt": "a", "n": 2, "best_of": 3}, 3),
        ({"messages": [], "n": 2}, 2),
        ({"prompt": [], "n": None}, 1),
    ],
)
def test_a_request_takes_as_many_slots_as_it_has_sequences(body: dict[str, Any], sequences: int) -> None:
    asked = Asked("/v1/completions" if "prompt" in body else "/v1/chat/completions", body, {})
    assert asked.sequences == sequences
    assert Asked(asked.path, placeholder(asked), {}).sequences == sequences


def test_the_metrics_are_prometheus_text_at_the_routers_port() -> None:
    with PairEngine() as engine, routed(*engine.urls) as router:
        connection = http.client.HTTPConnection("127.0.0.1", router.server_address[1], timeout=PATIENCE_S)
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        lines = response.read().decode().splitlines()
        assert response.headers["Content-Type"].startswith("text/plain")
        connection.close()
    samples = [line.split()[0] for line in lines if not line.startswith("#")]
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == {*samples}
    recorded = tomllib.loads((ROOT / "tests" / "exported_metrics.toml").read_text())["pair_router"]["-"]
    assert sorted(samples) == sorted([*recorded["gauges"], *recorded["counters"]])


# -- liveness --------------------------------------------------------------------------------------------------------------------


def test_a_pair_that_answers_is_alive_and_keeps_no_slot() -> None:
    with PairEngine() as engine:
        assert alive.main("m", PATIENT, *engine.urls) == 0
        assert not engine.kept


def test_a_wedged_pair_is_healthy_and_not_alive(capsys: pytest.CaptureFixture[str]) -> None:
    with PairEngine() as engine:
        engine.prefilling |= {"lost-1", "lost-2", "lost-3", "lost-4"}
        assert alive.healthy(engine.urls[0])
        assert alive.main("m", "0.2", *engine.urls) == 1
    assert "does not answer" in capsys.readouterr().err


def test_a_decode_that_waits_for_ever_is_not_alive() -> None:
    with PairEngine() as engine:
        engine.decoding |= {"lost-1", "lost-2", "lost-3", "lost-4"}
        assert alive.main("m", "0.2", *engine.urls) == 1


def test_a_prefill_that_is_not_there_is_not_alive_and_decode_is_judged_by_its_own_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alive, "_HEALTH_PAUSES", (0, 0))
    with PairEngine() as engine:
        prefill, decode = engine.urls
        assert alive.main("m", PATIENT, "http://127.0.0.1:9", decode) == 1
        assert alive.main("m", PATIENT, prefill, "http://127.0.0.1:9") == 1, "in the same pod there is one probe"
        assert alive.main("m", PATIENT, prefill, "http://localhost:9") == 0


@pytest.mark.parametrize(("fault", "key", "code"), [("http_500", None, 1), (None, "k", 0)])
def test_an_engine_that_fails_is_not_alive_and_one_that_wants_a_key_is(fault: Any, key: str | None, code: int) -> None:
    with OpenAIServer(fault=fault, key=key) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert alive.main("m", PATIENT, url, url) == code
