"""The proxy of an endpoint: the real Envoy, configured as its pods are, between clients and slow servers."""

import asyncio
import json
import re
import resource
import socket
import subprocess
import time
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

import grpc
import grpc.aio
import pytest

from asking import Answer, Connection, Exchange, Site, in_loop
from conftest import ROOT
from eks_inference.catalog import versions
from eks_inference.catalog.models import Task
from eks_inference.endpoints import plan
from eks_inference.endpoints.proxy import CLIENT_HEADER, CONNECT_SECONDS, SESSION_HEADER, Proxy, Spread, Upstream
from eks_inference.endpoints.routing import REST_SECONDS
from eks_inference.endpoints.spec import ModelEndpointSpec
from eks_inference.serving.paths import ASKING_PATHS, FORM_PATHS, PATHS
from envoy import COMMAND, MINUTE_S, Envoy
from ports import free_ports, own_addresses
from streaming_servers import CachingServer, ClusterDns, StreamingServer, known_part, talk
from waiting import eventually, until_in_loop

if not COMMAND:
    pytest.skip("Envoy is not installed: make envoy", allow_module_level=True)

ANY = Proxy(())
CHAT = "/v1/chat/completions"
KEYS = {"team-a": "key-of-team-a-0001", "team-b": "key-of-team-b-0001"}


@dataclass
class Endpoint:
    """The proxy, and the pods of the servers of models ``a`` and ``b``, each with an address of its own."""

    envoy: Envoy
    dns: ClusterDns
    pods: dict[str, list[StreamingServer]]

    def ready(self, model: str) -> list[StreamingServer]:
        """The pods that DNS tells of."""
        return self.dns.ready[f"server-{model}.test"]

    def seen(self, model: str) -> list[Any]:
        return [asked for pod in self.pods[model] for asked in pod.seen]

    async def ask(
        self, model: str | None = "a", key: str = KEYS["team-a"], path: str = CHAT, session: str = "", **body: Any
    ) -> Answer:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with Connection(self.envoy.port, 100, headers | ({SESSION_HEADER: session} if session else {})) as client:
            return await client.post(path, {"model": model, **body})

    async def streams(self, count: int, tokens: int, model: str = "a") -> list[Answer | BaseException]:
        asked = [self.ask(model, stream=True, max_tokens=tokens) for _ in range(count)]
        return await asyncio.gather(*asked, return_exceptions=True)

    async def begin(self, count: int, tokens: int = 4) -> "asyncio.Task[list[Answer | BaseException]]":
        """Streams of model ``a`` that have all reached their pods and do not end before ``release``."""
        for pod in self.pods["a"]:
            pod.lets_end.clear()
        before = len(self.seen("a"))
        begun = asyncio.create_task(self.streams(count, tokens))
        await until_in_loop(lambda: len(self.seen("a")), lambda now: now == before + count)
        return begun

    def release(self) -> None:
        for pod in self.pods["a"]:
            pod.lets_end.set()

    async def leads_to(self, *pods: StreamingServer) -> None:
        """Waits until the proxy has heard from DNS that these are the pods of model ``a``."""
        addresses = {f"{pod.host}:{pod.port}" for pod in pods}
        await eventually(lambda: self.envoy.addresses("server-a"), lambda found: found == addresses)


ADDRESSES = own_addresses()


@asynccontextmanager
async def endpoint(
    proxy: Proxy = ANY, *, pods: int = 1, keys: dict[str, str] = KEYS, server_key: str = "", token_s: float = 0.02
) -> AsyncIterator[Endpoint]:
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(ClusterDns())
        made: dict[str, list[StreamingServer]] = {}
        upstreams: list[Upstream] = []
        for model, port in zip(("a", "b"), free_ports(2), strict=True):
            made[model] = [
                await stack.enter_async_context(StreamingServer(f"{model}{number}", token_s, host=next(ADDRESSES), port=port))
                for number in range(pods)
            ]
            dns.ready[f"server-{model}.test"] = list(made[model])
            upstreams.append(Upstream(f"server-{model}", f"server-{model}.test", port, model))
        envoy = await stack.enter_async_context(Envoy(upstreams, proxy, keys, server_key, dns.port))
        yield Endpoint(envoy, dns, made)


def whole(answer: Answer | BaseException, tokens: int) -> bool:
    return isinstance(answer, Answer) and answer.whole and answer.events[-1:] == ["[DONE]"] and len(answer.events) == tokens + 1


def test_this_is_the_version_that_pods_run() -> None:
    told = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"/{versions.image('envoy').rpartition(':v')[2]}/" in told


# -- who may ask -----------------------------------------------------------------------------------------------------------------


@in_loop
async def test_nobody_asks_without_a_key() -> None:
    async with endpoint() as there:
        for key in ("", "wrong", KEYS["team-a"][:-1], f"{KEYS['team-a']}x"):
            for path in (*ASKING_PATHS, "/v1/models", "/", "/v2/models", "/metrics"):
                assert (await there.ask(key=key, path=path)).status == 401, (key, path)
        assert not there.seen("a") + there.seen("b")
        assert (await there.ask()).status == 200


FORMS: tuple[tuple[str, dict[str, str], int], ...] = (
    (CHAT, {"authorization": "Bearer KEY"}, 200),
    (CHAT, {"authorization": "bearer KEY"}, 200),
    (CHAT, {"authorization": "BEARER  KEY"}, 200),
    (CHAT, {"authorization": "KEY"}, 401),
    (CHAT, {"authorization": "Bearer"}, 401),
    (CHAT, {"authorization": "BearerKEY"}, 401),
    (CHAT, {"authorization": "Basic KEY"}, 401),
    (CHAT, {"authorization": "Bearer Bearer KEY"}, 401),
    (CHAT, {"authorization": "Bearer KEY, Bearer KEY"}, 401),
    (CHAT, {"x-api-key": "KEY"}, 401),
    ("/v1/messages", {"x-api-key": "KEY"}, 200),
    ("/v1/messages/count_tokens", {"x-api-key": "KEY"}, 200),
    ("/v1/messages", {"x-api-key": "none-of-them-all"}, 401),
    ("/v1/messages", {"x-api-key": "Bearer KEY"}, 401),
    ("/v1/messages", {"x-api-key": "KEY", "authorization": "Bearer none-of-them-all"}, 401),
    ("/v1/messages", {"x-api-key": "none-of-them-all", "authorization": "Bearer KEY"}, 200),
)


@in_loop
async def test_a_key_comes_in_the_forms_that_clients_send_and_no_server_sees_it() -> None:
    async with endpoint() as there:
        for path, headers, status in FORMS:
            sent = {name: value.replace("KEY", KEYS["team-a"]) for name, value in headers.items()}
            async with Connection(there.envoy.port, headers=sent) as client:
                answer = await client.post(path, {"model": "a"})
            assert answer.status == status, headers
            if status == 401:
                assert answer.headers["content-type"] == "application/json"
                assert answer.body["error"]["type"] == "authentication_error"
        for asked in there.seen("a"):
            assert not [value for value in asked.headers.values() if KEYS["team-a"] in value]
        async with Connection(there.envoy.port) as client:
            assert (await client.get("/v1/models")).body["error"]["type"] == "authentication_error"


@in_loop
async def test_errors_are_of_the_api_that_is_asked() -> None:
    asked = {
        "/v1/messages": ("a", 429, "rate_limit_error"),
        "/v1/messages/count_tokens": ("c", 404, "not_found_error"),
        "/v1/messages?beta=true": (None, 400, "invalid_request_error"),
        "/v1/messages/batches": ("a", 404, "not_found_error"),
    }
    async with endpoint(Proxy((), requests_per_model={"a": 1}), token_s=0) as there:
        assert (await there.ask(path="/v1/messages")).status == 200
        assert (await there.ask(path=CHAT)).body["error"].keys() == {"message", "type", "param", "code"}
        for path, (model, status, type_) in asked.items():
            for key, wanted in ((KEYS["team-a"], (status, type_)), ("", (401, "authentication_error"))):
                answer = await there.ask(model, path=path, key=key)
                assert (answer.status, answer.body["error"]["type"]) == wanted, path
                assert (answer.body["type"], answer.body["error"].keys()) == ("error", {"type", "message"})


@in_loop
async def test_requests_that_their_client_resets_at_once_cost_nothing() -> None:
    """HTTP/2 by hand: as many requests in one packet, each with a key and taken back (CVE-2023-44487)."""

    def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
        return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload

    told = {":method": "POST", ":path": CHAT, ":scheme": "http", ":authority": "x", "authorization": f"Bearer {KEYS['team-a']}"}
    literal = b"".join(b"\0%c%b%c%b" % (len(name), name.encode(), len(value), value.encode()) for name, value in told.items())
    streams = range(1, 401, 2)
    resets = (frame(1, 4, stream, literal) + frame(3, 0, stream, (8).to_bytes(4)) for stream in streams)
    async with endpoint() as there:
        _, writer = await asyncio.open_connection("127.0.0.1", there.envoy.port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + b"".join(resets))
        reset = "envoy_http_downstream_rq_rx_reset{"
        await eventually(lambda: there.envoy.values(reset), lambda found: max(found) == len(streams))
        (begun,) = await there.envoy.values("envoy_http_api_key_auth_allowed{")
        assert begun < 10
        writer.close()


@in_loop
async def test_no_client_orders_what_pickers_engines_and_envoy_obey() -> None:
    orders = (
        "x-llm-d-model-name-rewrite",
        "x-gateway-model-name-rewrite",
        "X-LLM-D-Inference-Objective",
        "x-gateway-inference-fairness-id",
        "x-llm-d-slo-ttft-ms",
        "x-slo-tpot-ms",
        "x-gateway-destination-endpoint-subset",
        "x-prefiller-host-port",
        "x-vllm-priority",
        "x-data-parallel-rank",
        "x-envoy-upstream-alt-stat-name",
    )
    async with (
        endpoint(keys={}) as there,
        Connection(there.envoy.port, headers={**dict.fromkeys(orders, "1"), "x-mine": "1"}) as client,
    ):
        assert (await client.post(CHAT, {"model": "a"})).status == 200
        (asked,) = there.seen("a")
        assert [name for name, value in asked.headers.items() if value == "1"] == ["x-mine"]


@in_loop
async def test_the_server_learns_the_client_and_never_its_key() -> None:
    async with endpoint() as there, Connection(there.envoy.port) as client:
        client.headers = {"authorization": f"Bearer {KEYS['team-b']}", CLIENT_HEADER: "team-a"}
        assert (await client.post(CHAT, {"model": "a"})).status == 200
        (asked,) = there.seen("a")
        assert asked.headers[CLIENT_HEADER] == "team-b"
        assert not [value for value in asked.headers.values() if KEYS["team-b"] in value]


@in_loop
async def test_the_server_gets_its_own_key_which_rotates() -> None:
    async with endpoint(server_key="server-key-1") as there:
        await there.ask()
        there.envoy.rotate(KEYS, "server-key-2")

        async def told() -> list[str]:
            await there.ask()
            return [asked.headers["authorization"] for asked in there.seen("a")]

        keys = await eventually(told, lambda keys: keys[-1] != keys[0])
        assert {*keys} == {"Bearer server-key-1", "Bearer server-key-2"}


@in_loop
async def test_keys_rotate_under_load_and_two_are_valid_at_once() -> None:
    old, new = KEYS["team-a"], "key-of-team-a-0002"
    async with endpoint(pods=2) as there:
        long = await there.begin(20)

        async def statuses() -> list[int]:
            return [(await there.ask("b", key=key)).status for key in (old, new)]

        there.envoy.rotate({**KEYS, "team-a/next": new})
        await eventually(statuses, lambda found: found == [200, 200])
        assert {asked.headers[CLIENT_HEADER] for asked in there.seen("a") + there.seen("b")} == {"team-a"}
        there.envoy.rotate({"team-a": new, "team-b": KEYS["team-b"]})
        await eventually(statuses, lambda found: found == [401, 200])
        there.release()
        assert all(whole(answer, 4) for answer in await long), "streams that the old key began"


@in_loop
async def test_keys_that_cannot_be_read_leave_the_last_ones_in_force() -> None:
    async with endpoint() as there:
        there.envoy.secret.write({"clients.json": "{"})
        await eventually(lambda: there.envoy.values("api_key_auth_update_failure{"), any)
        assert [(await there.ask(key=key)).status for key in (KEYS["team-a"], "none-of-them-all")] == [200, 401]


@in_loop
async def test_without_keys_whoever_reaches_it_asks() -> None:
    async with endpoint(keys={}) as there:
        assert (await there.ask(key="")).status == 200


@in_loop
async def test_each_client_has_a_limit_of_its_own() -> None:
    async with endpoint(Proxy((), requests_per_minute=5), token_s=0) as there:
        statuses = [(await there.ask(key=KEYS["team-a"])).status for _ in range(8)]
        assert statuses == [200] * 5 + [429] * 3
        refused = await there.ask()
        assert refused.body["error"]["code"] == "rate_limit_exceeded"
        assert 0 < int(refused.headers["retry-after"]) <= MINUTE_S / 5
        assert [(await there.ask(key=KEYS["team-b"])).status for _ in range(5)] == [200] * 5
        assert len(there.seen("a")) == 10


@in_loop
async def test_each_client_has_a_limit_of_its_own_for_a_model() -> None:
    async with endpoint(Proxy((), requests_per_model={"a": 2, "b": 3}, requests_per_minute=9), token_s=0) as there:
        for client in KEYS.values():
            assert [(await there.ask("a", client)).status for _ in range(3)] == [200] * 2 + [429]
            assert [(await there.ask("b", client)).status for _ in range(4)] == [200] * 3 + [429]
            assert [(await there.ask("c", client)).status for _ in range(3)] == [404] * 2 + [429], "which all count"


@in_loop
async def test_the_path_of_a_form_leads_to_the_one_model_that_hears() -> None:
    seen: list[str] = []

    async def serve(exchange: Exchange) -> None:
        seen.append(exchange.path)
        exchange.answer(200, {"text": "", "usage": {"type": "duration", "seconds": 1}})

    port = await (site := Site(serve)).start()
    upstreams = [Upstream(task, "127.0.0.1", port, task, paths=PATHS[task]) for task in ("chat", "transcribe")]
    proxy = Proxy((), requests_per_model={"transcribe": 2}, largest_request_bytes=1 << 16, spread="prefixes")
    form = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nchat\r\n--x--\r\n'
    for client, sent, wanted in (("team-a", form, [200, 200, 429]), ("team-b", bytes(1 << 17), [413] * 3)):
        headers = {"authorization": f"Bearer {KEYS[client]}", "content-type": "multipart/form-data; boundary=x"}
        async with Envoy(upstreams, proxy, KEYS) as envoy, Connection(envoy.port, headers=headers) as asks:
            assert [(await asks.ask("POST", path, sent)).status for path in (*FORM_PATHS, FORM_PATHS[0])] == wanted
            assert (await asks.ask("POST", CHAT, form)).status == 400
    async with Envoy(upstreams[:1], proxy, KEYS) as envoy, Connection(envoy.port, headers=headers) as asks:
        assert (await asks.ask("POST", FORM_PATHS[0], form)).status == 404
    assert seen == [*FORM_PATHS]
    site.abort()


@in_loop
async def test_more_clients_than_envoy_counts_by_itself_have_limits_of_their_own() -> None:
    keys = {f"team-{number}": f"key-of-team-{number:08}" for number in range(40)}
    async with endpoint(Proxy((), requests_per_minute=2), keys=keys, token_s=0) as there:
        for status in (200, 200, 429):
            assert {answer.status for answer in await asyncio.gather(*(there.ask(key=key) for key in keys.values()))} == {status}


@in_loop
async def test_a_client_may_give_one_key_twice_and_no_log_tells_it() -> None:
    key = KEYS["team-a"]
    async with endpoint(keys={"team-a": key, "team-a/next": key}) as there:
        assert (await there.ask()).status == 200
        assert key not in there.envoy.log()


@in_loop
async def test_without_keys_no_client_names_itself() -> None:
    async with endpoint(keys={}) as there, Connection(there.envoy.port, headers={CLIENT_HEADER: "team-a"}) as client:
        assert (await client.post(CHAT, {"model": "a"})).status == 200
        (asked,) = there.seen("a")
        assert CLIENT_HEADER not in asked.headers


@in_loop
async def test_two_hundred_models_are_listed() -> None:
    models = [f"organisation/a-model-with-a-name-{number}+%D" for number in range(200)]
    async with StreamingServer() as pod:
        upstreams = [Upstream(f"server-{number}", "127.0.0.1", pod.port, model) for number, model in enumerate(models)]
        async with Envoy(upstreams) as envoy, Connection(envoy.port) as client:
            assert [one["id"] for one in (await client.get("/v1/models")).body["data"]] == models
            assert (await client.post(CHAT, {"model": models[-1]})).status == 200
            assert (await client.post(CHAT, {"model": "none"})).status == 404


@in_loop
async def test_a_server_may_have_a_name_of_envoys() -> None:
    async with StreamingServer() as pod:
        upstreams = [
            Upstream("admin", "127.0.0.1", pod.port, "a"),
            Upstream("x-grpc", "127.0.0.1", pod.port, "b"),
            Upstream("x", "127.0.0.1", pod.port, grpc_port=pod.port),
        ]
        async with Envoy(upstreams) as envoy, Connection(envoy.port) as client:
            for model in ("a", "b"):
                assert (await client.post(CHAT, {"model": model})).status == 200
            assert "envoy_cluster_name" in await envoy.metrics()


@in_loop
async def test_paths_of_triton_that_change_it_are_closed() -> None:
    async with (
        StreamingServer() as pod,
        Envoy([Upstream("triton", "127.0.0.1", pod.port)]) as envoy,
        Connection(envoy.port) as client,
    ):
        for path in ("/v2/models/m", "/v2/models/m/versions/1/infer", "/v2/models/m/generate_stream"):
            assert (await client.post(path, {})).status == 200, path
        for path in ("/v2", "/v2/health/ready"):
            assert (await client.get(path)).status == 200, path
        closed = (
            "/v2/repository/models/m/unload",
            "/v2/systemsharedmemory/region/r/register",
            "/v2/trace/setting",
            "/v2/models/m/trace/setting",
            "/v2/logging",
        )
        for path in closed:
            assert (await client.post(path, {})).status == 404, path


@in_loop
async def test_clients_that_take_every_connection_leave_kubernetes_and_the_drain_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eks_inference.endpoints.envoy._MOST_CONNECTIONS", 10)
    async with endpoint() as there:
        taken = [await asyncio.open_connection("127.0.0.1", there.envoy.port) for _ in range(20)]
        await eventually(lambda: there.envoy.values("downstream_global_cx_overflow{"), any)
        assert await there.envoy.is_ready()
        for _, writer in taken:
            writer.close()


@in_loop
async def test_a_server_gets_no_more_requests_at_once_than_it_may() -> None:
    async with endpoint(Proxy((), concurrent_requests=4)) as there:
        begun = await there.begin(4)
        # Before the next: Envoy's threads count together, but two at the same moment may both be the last one that fits.
        assert [(await there.ask()).status for _ in range(6)] == [503] * 6
        assert (await there.ask("b")).status == 200
        there.release()
        assert all(whole(answer, 4) for answer in await begun)


@in_loop
async def test_more_than_envoys_own_limits_wait_at_the_server() -> None:
    # Each request takes four files, two of them here: more than the soft limit of many shells.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    async with endpoint(keys={}) as there:
        answers = await asyncio.gather(*(there.ask(key="", max_tokens=100) for _ in range(1100)))
        assert {answer.status for answer in answers} == {200}


# -- which server answers --------------------------------------------------------------------------------------------------------


@in_loop
async def test_adapters_and_other_names_lead_to_the_servers_of_their_model() -> None:
    async with StreamingServer() as pod:
        upstreams = [Upstream("s", "127.0.0.1", pod.port, "m", ("short", "team/sql"))]
        async with Envoy(upstreams) as envoy, Connection(envoy.port) as client:
            assert [one["id"] for one in (await client.get("/v1/models")).body["data"]] == ["m", "short", "team/sql"]
            for name in ("m", "short", "team/sql"):
                assert (await client.post(CHAT, {"model": name})).status == 200
            assert (await client.post(CHAT, {"model": "sql"})).status == 404
        assert [(asked.body or {})["model"] for asked in pod.seen] == ["m", "short", "team/sql"]


@in_loop
async def test_a_model_is_asked_for_what_it_does_and_for_nothing_else() -> None:
    async with AsyncExitStack() as stack:
        tasks: tuple[Task, ...] = ("chat", "embed", "rerank")
        pods: dict[Task, StreamingServer] = {}
        for task in tasks:
            pods[task] = await stack.enter_async_context(StreamingServer(task, 0))
        upstreams = [Upstream(task, "127.0.0.1", pod.port, task, paths=PATHS[task]) for task, pod in pods.items()]
        envoy = await stack.enter_async_context(Envoy(upstreams))
        client = await stack.enter_async_context(Connection(envoy.port))
        assert [one["id"] for one in (await client.get("/v1/models")).body["data"]] == [*pods]
        for task, path in product(pods, ASKING_PATHS):
            answer = await client.post(path, {"model": task})
            if path in PATHS[task]:
                assert answer.body["choices"][0]["text"] == task
            else:
                assert answer.status == 404
                assert f"asked at {path}; those that are: " in answer.body["error"]["message"]
        assert {task: len(pod.seen) for task, pod in pods.items()} == {task: len(PATHS[task]) for task in pods}


@in_loop
async def test_the_model_of_the_request_chooses_the_server() -> None:
    async with endpoint() as there:
        for model in ("a", "b"):
            for path in (one for one in ASKING_PATHS if one not in FORM_PATHS):
                assert (await there.ask(model, path=path)).body["choices"][0]["text"] == f"{model}0"
        answer = await there.ask("c")
        assert (answer.status, answer.body["error"]["code"]) == (404, "model_not_found")
        assert "a, b" in answer.body["error"]["message"]
        async with Connection(there.envoy.port, headers={"authorization": f"Bearer {KEYS['team-a']}"}) as client:
            listed = await client.get("/v1/models")
            assert [one["id"] for one in listed.body["data"]] == ["a", "b"]
            assert listed.headers["content-type"] == "application/json"
            assert {type(one["created"]) for one in listed.body["data"]} == {int}


@in_loop
async def test_odd_bodies_are_answered_and_reach_nobody() -> None:
    async with endpoint() as there:
        for body in ({}, {"model": None}, {"model": 3}, {"model": ["a"]}, {"model": {"a": 1}}, [], "a", None, {"Model": "a"}):
            async with Connection(there.envoy.port, headers={"authorization": f"Bearer {KEYS['team-a']}"}) as client:
                answer = await client.post(CHAT, body)
                assert (answer.status, answer.body["error"]["code"]) == (400, "invalid_request"), body
        assert not there.seen("a") + there.seen("b")


@in_loop
async def test_paths_that_change_a_server_are_closed() -> None:
    closed = (
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/metrics",
        "/health",
        "/sleep",
        "/collective_rpc",
        "/v1/../sleep",
    )
    odd = ("/v1/chat/completions/", "//v1/chat/completions/../../../metrics", "/v1/chat%2fcompletions", "/v1/chat/completions%00")
    async with endpoint() as there:
        for path in (*closed, *odd):
            assert (await there.ask(path=path)).status in (400, 404), path
        assert not there.seen("a")


BODY = b'{"model": "m", "messages": []}'
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
TRICKS: dict[str, tuple[list[str], bytes]] = {
    "another name": ([f"{CLIENT_HEADER}: root", "X-Endpoint-Client: root"], BODY),
    "underscores": (["x_endpoint_client: root", "x-endpoint_client: root"], BODY),
    "a nominated header": ([f"connection: {CLIENT_HEADER}, keep-alive", f"{CLIENT_HEADER}: root"], BODY),
    "a nominated key": (["connection: authorization"], BODY),
    "a folded header": (["x-a: b", f" {CLIENT_HEADER}: root"], BODY),
    "a bare line feed": ([f"x-a: b\n{CLIENT_HEADER}: root"], BODY),
    "a blank before the colon": ([f"{CLIENT_HEADER} : root"], BODY),
    "two keys": (["authorization: Bearer another-key-of-nobody"], BODY),
    "two lengths": (["content-length: 5"], BODY),
    "length and chunks": (["transfer-encoding: chunked"], CHUNKED + b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n"),
    "an unknown encoding": (["transfer-encoding: xchunked"], CHUNKED),
    "a second request without a key": ([], BODY + b"POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"),
    "answers again and again": (
        ["x-envoy-retry-on: retriable-status-codes", "x-envoy-retriable-status-codes: 200", "x-envoy-max-retries: 50"],
        BODY,
    ),
    "an address inside": (["x-forwarded-for: 10.0.0.1", "x-envoy-internal: true", "x-envoy-upstream-rq-timeout-ms: 1"], BODY),
    "another path": (["x-envoy-original-path: /metrics", "x-original-url: /metrics", "x-rewrite-url: /metrics"], BODY),
    "another protocol": (["upgrade: websocket", "connection: upgrade"], BODY),
}


@pytest.mark.parametrize("trick", TRICKS)
@in_loop
async def test_no_trick_with_headers_reaches_a_server_as_anybody_else(trick: str) -> None:
    """As bytes on the wire, because clients refuse to send most of this."""
    headers, body = TRICKS[trick]
    received: list[bytes] = []

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(server, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        for key in (KEYS["team-a"], ""):
            async with Envoy([Upstream("s", "127.0.0.1", port, "m")], keys=KEYS) as envoy:
                lines = [f"POST {CHAT} HTTP/1.1", "host: x", "content-type: application/json", f"content-length: {len(BODY)}"]
                lines += [f"authorization: Bearer {key}"] * bool(key) + headers
                reader, writer = await asyncio.open_connection("127.0.0.1", envoy.port)
                writer.write("\r\n".join([*lines, "", ""]).encode() + body)
                status = int((await reader.readuntil(b"\r\n")).split()[1])
                await asyncio.sleep(0.2)  # for whatever else might come of it
                writer.close()
                assert status in ((200, 400, 401, 403, 501) if key else (400, 401, 403, 501))
            if not key:
                assert not received
            assert len(received) == (status == 200), "once, or never"
            for head in received:
                assert head.startswith(f"POST {CHAT} HTTP/1.1\r\n".encode())
                named = [line for line in head.split(b"\r\n") if re.match(rb"x[-_]endpoint[-_]client", line, re.IGNORECASE)]
                assert named == [f"{CLIENT_HEADER}: team-a".encode()]
                assert not any(each.encode() in head for each in KEYS.values())
            received.clear()


@pytest.mark.parametrize("key", ['a"quoted\\key,with;all=~{}%HOST%', "Bearer-Bearer-Bearer", "%%%%%%%%%%%%%%%%%%%"])
@in_loop
async def test_a_key_may_have_any_visible_character(key: str) -> None:
    async with endpoint(keys={"team-a": key}) as there:
        assert [(await there.ask(key=given)).status for given in (key, key[:-1], key.swapcase())] == [
            200,
            401,
            401 if key.swapcase() != key else 200,
        ]


def numbers(mib: int) -> bytes:
    """The request that takes most to parse: a value for every two bytes. Of 3 MiB, one took 343 MiB, eight 620, 95 903."""
    return b'{"model": "b", "prompt": [' + b"1," * ((mib << 19) - 100) + b"1]}"


def text(mib: int) -> bytes:
    return b'{"model": "b", "prompt": "' + b"x" * ((mib << 20) - 1000) + b'"}'


@pytest.mark.parametrize(
    ("memory", "count", "body"),
    [("1Gi", 1, numbers), ("1Gi", 12, numbers), ("512Mi", 60, numbers), ("512Mi", 300, text)],
)
@in_loop
async def test_the_largest_requests_of_one_client_keep_the_proxy_in_its_memory_and_cut_nobodys_answer(
    memory: str, count: int, body: Callable[[int], bytes]
) -> None:
    spec = ModelEndpointSpec(memory=memory)
    proxy, sent = plan.proxy(spec, (), server_key=False), body(spec.largest_request_mib)
    assert 0.9 * proxy.largest_request_bytes < len(sent) <= proxy.largest_request_bytes
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEYS['team-b']}\r\ncontent-type: application/json"

    async with endpoint(proxy, token_s=0.1) as there, AsyncExitStack() as closing:
        there.ready("b").clear()
        running = await there.begin(10, 80)
        clients: list[socket.socket] = []

        def begin() -> None:
            with suppress(OSError):  # refused
                client = socket.create_connection(("127.0.0.1", there.envoy.port), 90)
                clients.append(client)
                client.sendall(f"{head}\r\ncontent-length: {len(sent)}\r\n\r\n".encode() + sent[:-1])

        def end(client: socket.socket) -> None:
            with client, suppress(OSError):
                client.sendall(sent[-1:])
                client.recv(1)

        # All of them wait for their last byte, and get it at once.
        loop, threads = asyncio.get_running_loop(), closing.enter_context(ThreadPoolExecutor(40))
        await asyncio.gather(*(loop.run_in_executor(threads, begin) for _ in range(count)))
        await asyncio.gather(*(loop.run_in_executor(threads, end, client) for client in clients))
        assert there.envoy.process.returncode is None
        assert there.envoy.peak_mib() < proxy.memory_bytes >> 20
        there.release()
        assert all(whole(answer, 80) for answer in await running)
        if body is text:  # together they have more than may wait
            # Envoy writes its lines together, every ten seconds or so.
            await until_in_loop(
                lambda: [one for one in there.envoy.answered() if one["client"] == "team-b"],
                lambda lines: any(line["reason"] == "overload" for line in lines),
            )
        assert (await there.ask()).status == 200, "and it takes requests again"


@in_loop
async def test_large_requests_pass_and_larger_ones_are_refused() -> None:
    async with endpoint(Proxy((), largest_request_bytes=4 << 20)) as there:
        assert (await there.ask("b", prompt="x" * (3 << 20))).status == 200
        assert (await there.ask("b", prompt="x" * (5 << 20))).status == 413
        (asked,) = there.seen("b")
        assert len(asked.body["prompt"]) == 3 << 20


@in_loop
async def test_the_kserve_api_passes_over_http_and_grpc() -> None:
    asked: list[tuple[str, dict[str, str], bytes]] = []

    class Tensors(grpc.GenericRpcHandler):
        def service(self, handler_call_details: Any) -> Any:
            def answer(request: bytes, context: Any) -> bytes:
                asked.append((handler_call_details.method, dict(context.invocation_metadata()), request))
                return b"tensors"

            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Tensors()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    async with StreamingServer("triton") as http:
        upstream = Upstream("triton", "127.0.0.1", http.port, grpc_port=port)
        async with Envoy([upstream], keys=KEYS) as envoy, grpc.aio.insecure_channel(f"127.0.0.1:{envoy.port}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(b"x")
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            key = (("authorization", f"Bearer {KEYS['team-a']}"),)
            assert await call(b"x" * 100, metadata=key) == b"tensors"
            ((method, metadata, data),) = asked
            assert (method, metadata[CLIENT_HEADER], len(data)) == ("/inference.GRPCInferenceService/ModelInfer", "team-a", 100)
            async with Connection(envoy.port, headers={"authorization": f"Bearer {KEYS['team-a']}"}) as client:
                assert (await client.post("/v2/models/m/infer", {})).status == 200
                assert (await client.post("/v2x", {})).status == 404
                assert (await client.post(CHAT, {"model": "m"})).status == 404
    server.stop(None)


# -- nothing is lost -------------------------------------------------------------------------------------------------------------


@in_loop
async def test_the_pods_of_a_server_are_replaced_one_after_the_other() -> None:
    """As a roll-out, the drain of a node and a scale-in do: a pod leaves the Service, ends its answers, and is gone."""
    async with endpoint(pods=3) as there, AsyncExitStack() as later:
        begun = []
        for old in list(there.pods["a"]):
            before = len(there.seen("a"))
            begun.append(asyncio.create_task(there.streams(20, 40)))
            await until_in_loop(lambda: len(there.seen("a")), lambda now, all=before + 20: now == all)
            new = StreamingServer(f"new-{old.name}", host=next(ADDRESSES), port=old.port)
            there.pods["a"].append(await later.enter_async_context(new))
            there.ready("a").append(new)
            there.ready("a").remove(old)
            await there.leads_to(*there.ready("a"))  # as long as preStop waits
            await until_in_loop(lambda old=old: (old.answered, len(old.seen)), lambda counts: counts[0] == counts[1])
            old.die()
        begun.append(asyncio.create_task(there.streams(20, 40)))
        answers = [answer for group in await asyncio.gather(*begun) for answer in group]
        assert len(answers) == 80
        assert all(whole(answer, 40) for answer in answers)
        assert all(pod.seen for pod in there.pods["a"])


@in_loop
async def test_a_pod_that_dies_takes_only_its_own_streams_and_their_clients_can_tell() -> None:
    async with endpoint(pods=2) as there:
        running = await there.begin(30)
        died, other = there.pods["a"]
        lost, kept = len(died.seen), len(other.seen)
        there.ready("a").remove(died)
        died.die()
        there.release()
        answers = await running
        assert [whole(answer, 4) for answer in answers].count(True) == kept
        cut = [answer for answer in answers if not whole(answer, 4)]
        assert len(cut) == lost
        # A client sees the end of the connection in the midst of the answer, never an end that looks like one; or an error of the
        # proxy, where the pod died before its first bytes came through.
        assert all(
            isinstance(one, OSError) or (isinstance(one, Answer) and (not one.whole or one.status >= 500)) for one in cut
        ), cut


@in_loop
async def test_a_pod_that_refuses_connections_costs_no_request() -> None:
    """It has just gone, and names still lead there."""
    async with endpoint(pods=3) as there:
        dead, *alive = there.pods["a"]
        dead.die()
        small, large = (there.ask() for _ in range(60)), (there.ask(prompt="x" * (1 << 20)) for _ in range(10))
        assert {answer.status for answer in await asyncio.gather(*small, *large)} == {200}
        assert not dead.seen
        assert all(pod.seen for pod in alive)


@in_loop
async def test_a_pod_that_is_cut_off_costs_the_time_of_a_connection_and_no_request() -> None:
    """Its node is lost, and the Service leads there until Kubernetes notices. Days of rehearsals play it so."""

    async def timed() -> tuple[int, float]:
        began = time.monotonic()
        return (await there.ask()).status, time.monotonic() - began

    async with endpoint(pods=3) as there:
        with cut_off(there.pods["a"][0]):
            first = await asyncio.gather(*(timed() for _ in range(30)))
            (late,) = await there.envoy.values('envoy_cluster_upstream_cx_connect_timeout{envoy_cluster_name="server-a"}')
            rests = time.monotonic()
            later = await asyncio.gather(*(timed() for _ in range(30)))
            rested = time.monotonic() - rests < REST_SECONDS - CONNECT_SECONDS
        assert {status for status, _ in first + later} == {200}
        assert 0 < late < len(first), "the proxy's count, because whatever stands still is slow"
        assert len([seconds for _, seconds in first if seconds >= CONNECT_SECONDS]) >= late
        assert not rested or max(seconds for _, seconds in later) < CONNECT_SECONDS


@contextmanager
def cut_off(pod: StreamingServer) -> Iterator[None]:
    """In its place, an address that answers nothing: Linux drops what asks for a connection while its queue is full."""
    pod.die()
    with ExitStack() as stack:
        silent = stack.enter_context(socket.socket())
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        silent.bind((pod.host, pod.port))
        silent.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((pod.host, pod.port))
        yield


@in_loop
async def test_a_pod_of_triton_that_refuses_connections_costs_no_request_of_three_mib() -> None:
    """Nothing waits for its whole body there: a copy is kept as it passes."""
    async with AsyncExitStack() as stack:
        dns, (port,) = await stack.enter_async_context(ClusterDns()), free_ports(1)
        pods = [await stack.enter_async_context(StreamingServer(host=next(ADDRESSES), port=port)) for _ in range(2)]
        dns.ready["triton.test"] = pods
        envoy = await stack.enter_async_context(Envoy([Upstream("triton", "triton.test", port)], resolver=dns.port))
        pods[0].die()

        async def ask() -> int:
            async with Connection(envoy.port) as client:
                return (await client.post("/v2/models/m/infer", {"x": "x" * (3 << 20)})).status

        assert set(await asyncio.gather(*(ask() for _ in range(8)))) == {200}
        assert not pods[0].seen


@pytest.mark.parametrize("spread", get_args(Spread))
@in_loop
async def test_pods_that_refuse_connections_cost_nothing_while_the_other_is_busy(spread: Spread) -> None:
    """They have no requests, so they are the pods with the fewest."""
    async with endpoint(Proxy((), spread=spread), pods=3) as there:
        alive, *dead = there.pods["a"]
        for pod in dead:
            there.ready("a").remove(pod)
            pod.die()
        await there.leads_to(alive)
        running = await there.begin(12)
        there.ready("a").extend(dead)
        await there.leads_to(alive, *dead)
        asked = asyncio.gather(*(there.ask(session=str(number)) for number in range(40)))
        await until_in_loop(lambda: len(alive.seen), lambda now: now == 52)
        there.release()
        assert {answer.status for answer in await asked} == {200}
        assert all(whole(answer, 4) for answer in await running)
        # A pod rests from its first refusal on: no request meets the same one twice.
        refused = re.search(r'cx_connect_fail\{envoy_cluster_name="server-a"\} (\d+)', await there.envoy.metrics())
        assert refused
        assert 0 < int(refused[1]) <= 40 * len(dead)


@in_loop
async def test_without_a_pod_the_answer_is_503() -> None:
    async with endpoint() as there:
        there.ready("a").clear()
        there.pods["a"][0].die()
        assert (await there.ask()).status == 503
        assert (await there.ask("b")).status == 200


# -- which pod answers -----------------------------------------------------------------------------------------------------------


@in_loop
async def test_the_pod_with_the_fewest_requests_answers() -> None:
    async with endpoint(pods=2) as there:
        stuck = await there.begin(1)
        busy, idle = sorted(there.pods["a"], key=lambda pod: not pod.seen)
        idle.lets_end.set()
        assert {(await there.ask()).status for _ in range(30)} == {200}
        assert len(busy.seen) == 1
        there.release()
        assert all(whole(answer, 4) for answer in await stuck)


@in_loop
async def test_a_session_stays_with_its_pod() -> None:
    async with endpoint(Proxy((), spread="sessions"), pods=4) as there:
        answered: dict[str, set[str]] = {}
        for turn in range(5):
            for number in range(12):
                answer = await there.ask(session=f"s{number}")
                answered.setdefault(f"s{number}", set()).add(answer.body["choices"][0]["text"])
                assert answer.status == 200, turn
        assert all(len(pods) == 1 for pods in answered.values())
        assert len(set.union(*answered.values())) > 1


@in_loop
async def test_sessions_of_one_pod_do_not_overload_it() -> None:
    async with endpoint(Proxy((), spread="sessions"), pods=4) as there:
        for pod in there.pods["a"]:
            pod.lets_end.clear()
        asked: list[asyncio.Task[Answer]] = []
        for number in range(1, 81):  # one after the other: what is not yet connected does not count
            asked.append(asyncio.create_task(there.ask(session="the same")))
            await until_in_loop(lambda: len(there.seen("a")), lambda now, number=number: now == number)
        there.release()
        assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
        assert max(len(pod.seen) for pod in there.pods["a"]) < 40


async def known_by(spread: Spread, pods: int) -> float:
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(CachingServer()) for _ in range(pods)]
        upstreams = [Upstream(f"s{number}", "127.0.0.1", pod.port, "m") for number, pod in enumerate(made)]
        envoy = await stack.enter_async_context(Envoy(upstreams, Proxy((), spread=spread)))
        await talk(envoy.port)
        assert max(len(pod.seen) for pod in made) <= 96 / pods * 2, "one pod has most of the work"
        return known_part(made)


@in_loop
async def test_a_conversation_stays_where_its_beginning_is_known() -> None:
    """Of what sixteen conversations say in six turns, one pod would know three quarters, and four pods not much less."""
    most = await known_by("prefixes", 1)
    assert await known_by("prefixes", 4) > 0.8 * most
    assert await known_by("least_requests", 4) < 0.85 * most


BEGINNINGS: dict[str, tuple[str, Callable[[int, int], dict[str, Any]]]] = {
    "messages": (CHAT, lambda talk, turn: {"messages": [{"role": "user", "content": f"talk {talk}"}, *[{"role": "x"}] * turn]}),
    "parts": (
        CHAT,
        lambda talk, turn: {
            "messages": [{"content": [{"type": "text", "text": f"talk {talk}"}], "role": "user"}, *[{"role": "x"}] * turn]
        },
    ),
    "a prompt": ("/v1/completions", lambda talk, turn: {"prompt": f"talk {talk}: {'word ' * 60}{turn}"}),
    "token ids": ("/v1/completions", lambda talk, turn: {"prompt": [talk, *range(100), turn]}),
    "a system prompt": (
        "/v1/messages",
        lambda talk, turn: {
            "system": "x" * 5000,
            "messages": [
                {"role": "system", "content": "y" * 5000},
                # Clients mark the last message.
                {
                    "content": [{"text": f"talk {talk}", **({} if turn else {"cache_control": {"type": "ephemeral"}})}],
                    "role": "user",
                },
                *[{"role": "assistant", "content": f"{turn}"}] * turn,
            ],
        },
    ),
    "items": ("/v1/responses", lambda talk, turn: {"input": [{"role": "user", "content": f"talk {talk}"}, *[{}] * turn]}),
    "embeddings": ("/v1/embeddings", lambda talk, turn: {"input": [f"talk {talk}: {'word ' * 60}", f"{turn}"]}),
    "an input": ("/v1/responses", lambda talk, turn: {"input": f"talk {talk}: {'word ' * 60}{turn}"}),
    "behind much": (CHAT, lambda talk, turn: {"tools": ["x" * 50_000], **BEGINNINGS["messages"][1](talk, turn)}),
}


@pytest.mark.parametrize("shape", BEGINNINGS)
@in_loop
async def test_what_begins_alike_goes_to_one_pod(shape: str) -> None:
    path, body = BEGINNINGS[shape]
    async with endpoint(Proxy((), spread="prefixes"), pods=4) as there:
        answered: dict[int, set[str]] = {}
        for turn in range(3):
            for talk in range(12):
                answer = await there.ask(path=path, **body(talk, turn))
                answered.setdefault(talk, set()).add(answer.body["choices"][0]["text"])
        assert all(len(pods) == 1 for pods in answered.values())
        assert len(set.union(*answered.values())) > 1


@in_loop
async def test_a_session_that_a_client_names_counts_before_what_it_says() -> None:
    async with endpoint(Proxy((), spread="prefixes"), pods=4) as there:
        for number in range(12):
            await there.ask(session="one", messages=[{"role": "user", "content": f"talk {number}"}])
        assert [len(pod.seen) for pod in there.pods["a"]].count(0) == 3


@in_loop
async def test_whatever_a_request_begins_with_it_is_answered() -> None:
    odd: tuple[Any, ...] = (
        "",
        "user",
        ["user"],
        {"role": "user"},
        [{"role": "user"}],
        [{"role": 3}],
        None,
        5,
        "\x00\U0001f600",
        "x" * 200_000,
    )
    async with endpoint(Proxy((), spread="prefixes"), pods=2) as there:
        for messages in odd:
            for key in ("messages", "prompt", "input", "nothing"):
                assert (await there.ask(**{key: messages})).status == 200, (key, messages)
        assert len(there.seen("a")) == 4 * len(odd)
        assert "script log" not in there.envoy.log()


@in_loop
async def test_servers_of_one_model_share_its_requests() -> None:
    async with StreamingServer("one") as one, StreamingServer("two") as two:
        upstreams = [Upstream(pod.name, "127.0.0.1", pod.port, "m") for pod in (one, two)]
        async with Envoy(upstreams) as envoy, Connection(envoy.port) as client:
            for _ in range(40):
                assert (await client.post(CHAT, {"model": "m"})).status == 200
            assert [model["id"] for model in (await client.get("/v1/models")).body["data"]] == ["m"]
        assert min(len(one.seen), len(two.seen)) > 4, "less than one time in a million by chance"


# -- one name, several servers ---------------------------------------------------------------------------------------------------


def parted(pods: Sequence[StreamingServer]) -> list[Upstream]:
    """Servers of models of their own that all answer to ``chat``."""
    return [Upstream(pod.name, "127.0.0.1", pod.port, f"m-{pod.name}", ("chat",), group=f"/{pod.name}") for pod in pods]


@in_loop
@pytest.mark.parametrize("spread", ["least_requests", "prefixes", "sessions"])
async def test_a_name_gives_servers_their_parts(spread: Spread) -> None:
    async with StreamingServer("blue", 0) as blue, StreamingServer("green", 0) as green:
        proxy = Proxy((), models={"chat": {"blue": 80, "green": 20}}, spread=spread)
        async with Envoy(parted((blue, green)), proxy) as envoy, Connection(envoy.port, 50) as client:
            for number in range(400):
                client.headers = {SESSION_HEADER: f"s{number}"} if spread == "sessions" else {}
                messages = [{"role": "user", "content": f"this is conversation {number}"}]
                assert (await client.post(CHAT, {"model": "chat", "messages": messages})).status == 200
            # Less than one time in a million it is more or less by chance.
            assert 42 <= len(green.seen) <= 120
            assert len(blue.seen) + len(green.seen) == 400
            assert (await client.post(CHAT, {"model": "m-green"})).body["choices"][0]["text"] == "green"
            lines = await until_in_loop(envoy.answered, lambda lines: len(lines) == 401)
            assert len([line for line in lines if line["server"] == "green"]) == len(green.seen)


@in_loop
@pytest.mark.parametrize("spread", ["prefixes", "sessions"])
async def test_a_conversation_keeps_its_side_and_more_of_them_change_over(spread: Spread) -> None:
    sides: dict[int, list[dict[int, str]]] = {}
    async with StreamingServer("blue", 0) as blue, StreamingServer("green", 0) as green:
        for part in (10, 50, 100):
            proxy = Proxy((), models={"chat": {"blue": 100 - part, "green": part}}, spread=spread)
            async with Envoy(parted((blue, green)), proxy) as envoy, Connection(envoy.port, 50) as client:
                for _ in range(2):
                    answered: dict[int, str] = {}
                    for number in range(60):
                        client.headers = {SESSION_HEADER: f"s{number}"} if spread == "sessions" else {}
                        messages = [{"role": "user", "content": f"this is conversation {number}"}]
                        answer = await client.post(CHAT, {"model": "chat", "messages": messages})
                        answered[number] = answer.body["choices"][0]["text"]
                    sides.setdefault(part, []).append(answered)
    assert all(first == second for first, second in sides.values())
    before, between, after = ({number for number, side in first.items() if side == "green"} for first, _ in sides.values())
    assert 0 < len(before) < len(between) < len(after) == 60
    assert before < between < after, "nobody goes back"


@in_loop
async def test_parts_change_under_load_and_no_request_fails() -> None:
    """As a rollout does: a proxy of the new parts is ready before one of the old ones goes, which ends what it began."""
    async with StreamingServer("blue") as blue, StreamingServer("green") as green, AsyncExitStack() as stack:

        async def proxy_of(part: int) -> Envoy:
            proxy = Proxy((), models={"chat": {"blue": 100 - part, "green": part}}, spread="least_requests")
            return await stack.enter_async_context(Envoy(parted((blue, green)), proxy))

        answers: list[Answer] = []
        led, over = await proxy_of(0), asyncio.Event()

        async def client() -> None:
            while not over.is_set():
                async with Connection(led.port, 50) as one:
                    answers.append(await one.post(CHAT, {"model": "chat", "stream": True, "max_tokens": 8}))

        clients = [asyncio.create_task(client()) for _ in range(8)]
        for part in (10, 100):
            old, led = led, await proxy_of(part)
            await old.go(leaves_s=1, within_s=60)
            begun = len(answers)
            await until_in_loop(lambda: len(answers), lambda now, begun=begun: now > begun + 60)
        begun = len(blue.seen)
        over.set()
        await asyncio.gather(*clients)
    assert all(whole(answer, 8) for answer in answers)
    assert len(answers) == len(blue.seen) + len(green.seen) > 150
    assert len(blue.seen) == begun, "at the end all go to the successor"


@in_loop
async def test_a_pod_of_the_proxy_goes_when_its_streams_have_ended() -> None:
    async with endpoint(pods=2) as there:
        running = await there.begin(20)
        going = asyncio.create_task(there.envoy.go(leaves_s=1, within_s=100))
        await eventually(there.envoy.is_ready, lambda ready: not ready)
        assert (await there.ask("b")).status == 200, "who does not know yet that it goes"
        there.release()
        assert all(whole(answer, 4) for answer in await running)
        assert 1 < await going < 50


@in_loop
async def test_a_pod_of_the_proxy_does_not_wait_for_ever() -> None:
    async with endpoint() as there:
        running = await there.begin(1)
        assert await there.envoy.go(leaves_s=0, within_s=2) < 50
        (answer,) = await running
        assert not whole(answer, 4)


@in_loop
async def test_no_timeout_cuts_an_answer_that_flows_and_silence_ends_one() -> None:
    async with endpoint(Proxy((), silence_seconds=4)) as there:
        (pod,) = there.pods["a"]
        pod.token_s = 0.5
        (flows,) = await there.streams(1, 12)
        # A machine that stands still so long is silent, too.
        assert whole(flows, 12) or pod.longest_s > 3, "six seconds, and never four without a token"
        pod.lets_end.clear()
        (silent,) = await there.streams(1, 2)
        assert isinstance(silent, Answer)
        assert not silent.whole
        whole_answer = await there.ask(max_tokens=2)
        assert whole_answer.status == 504


@in_loop
async def test_a_client_that_leaves_ends_the_work_of_the_server() -> None:
    async with endpoint() as there:
        async with Connection(there.envoy.port, headers={"authorization": f"Bearer {KEYS['team-a']}"}) as client:
            (pod,) = there.pods["a"]
            pod.lets_end.clear()
            asking = asyncio.create_task(client.post(CHAT, {"model": "a", "stream": True}))
            await until_in_loop(lambda: len(pod.seen))
            client.leave()
            await asyncio.wait([asking])
            assert asking.exception() or not asking.result().whole
        await until_in_loop(lambda: pod.connections, lambda open: not open)
        assert (len(pod.seen), pod.answered) == (1, 0)


# -- what is told ----------------------------------------------------------------------------------------------------------------


@in_loop
async def test_the_log_tells_who_asked_and_nothing_of_prompts() -> None:
    async with endpoint() as there:
        await there.ask(prompt="a secret prompt")
        await there.ask("c" * 1000)
        await there.ask(key="wrong")
        # Envoy writes them together, every ten seconds, and those of two threads in any order.
        lines = await until_in_loop(there.envoy.answered, lambda lines: len(lines) == 3)
        told = {(line["client"], line["model"], line["path"], int(line["status"])) for line in lines}
        assert told == {("team-a", "a", CHAT, 200), ("team-a", "c" * 200, CHAT, 404), (None, None, CHAT, 401)}
        assert "secret" not in there.envoy.log()
        assert KEYS["team-a"] not in there.envoy.log()


def _said(**usage: Any) -> str:
    return json.dumps({"usage": usage, "prompt_logprobs": None})


_FAKE = json.dumps({"tools": [{"usage": {"prompt_tokens": 7, "completion_tokens": 7}}], "text": '"usage":{"prompt_tokens":9}'})
ANSWERS: dict[str, tuple[list[str], tuple[int, int]]] = {
    "chat": ([_FAKE[:-1] + ", " + _said(prompt_tokens=18, total_tokens=22, completion_tokens=4)[1:]], (18, 4)),
    "embeddings": ([_said(prompt_tokens=5, completion_tokens=0)], (5, 0)),
    "rerank": ([_said(prompt_tokens=5)], (5, 0)),
    "responses": ([_said(input_tokens=3, input_tokens_details={"cached_tokens": 1}, output_tokens=2)], (3, 2)),
    "stream": ([f"data: {_said(prompt_tokens=6, completion_tokens=count)}\n\n" for count in range(9)], (6, 8)),
    "halves": ([*_said(input_tokens=11, output_tokens=12)], (11, 12)),
    "no usage": (["data: {}\n\n", "data: [DONE]\n\n"], (0, 0)),
    "null": (['{"usage":null}'], (0, 0)),
    "only texts": ([json.dumps({"text": _said(prompt_tokens=9, completion_tokens=9)})], (0, 0)),
}


@in_loop
async def test_tokens_are_counted_by_client_and_model() -> None:
    async def serve(exchange: Exchange) -> None:
        exchange.begin()
        for part in ANSWERS[exchange.body["prompt"]][0]:
            exchange.chunk(part)
            await asyncio.sleep(0.005)
        exchange.end()

    port = await Site(serve).start()
    async with Envoy([Upstream("s", "127.0.0.1", port, "m")], keys=KEYS) as envoy:
        for answer, (client, key) in product(ANSWERS, KEYS.items()):
            async with Connection(envoy.port, headers={"authorization": f"Bearer {key}"}) as asking:
                for _ in range(1 + (client == "team-b")):
                    assert (await asking.post(CHAT, {"model": "m", "prompt": answer})).status == 200
        lines = await until_in_loop(envoy.answered, lambda lines: len(lines) == 3 * len(ANSWERS))
        told = [(int(line["prompt_tokens"] or 0), int(line["generation_tokens"] or 0)) for line in lines]
        assert sorted(told) == sorted(3 * [counts for _, counts in ANSWERS.values()])
        for kind, name in enumerate(("prompt", "generation")):
            once = sum(counts[kind] for _, counts in ANSWERS.values())
            for client, times in (("team-a", 1), ("team-b", 2)):
                assert await envoy.values(f'envoy_endpoint_{name}_tokens{{client="{client}",model="m"}}') == [times * once]
        assert not [line for line in envoy.log().splitlines() if "script log" in line or "access logger" in line]


@in_loop
async def test_the_metrics_that_alerts_name_are_exported_with_these_labels() -> None:
    (row,) = tomllib.loads((ROOT / "tests" / "exported_metrics.toml").read_text())["envoy"].values()
    async with endpoint(Proxy((), requests_per_minute=3)) as there:
        for _ in range(4):
            await there.ask()
        await there.ask(key="wrong")
        # Threads hand their counts over every five seconds.
        await eventually(lambda: there.envoy.values("envoy_http_api_key_auth_unauthorized{"), lambda found: found == [1])
        text = await there.envoy.metrics()
    wanted = [*row["gauges"], *row["counters"], *(f"{name}_bucket" for name in row["histograms"])]
    labels: set[str] = set()
    for name in wanted:
        if "ext_proc" in name or "tokens" in name:
            continue  # only with a picker: tests/test_endpoint_picker.py; of answers that tell them: above
        found = re.findall(rf"^{name}\{{([^}}]*)\}}", text, re.MULTILINE)
        assert found, name
        labels.update(*(re.findall(r'(\w+)="', one) for one in found))
    # Our PodMonitor adds one label, and counts of tokens have two.
    assert labels - {"le"} | {"endpoint_name", "client", "model"} == set(row["labels"])
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    assert {kinds[name] for name in row["counters"] if name in kinds} == {"counter"}
    assert {kinds[name] for name in row["gauges"]} == {"gauge"}
