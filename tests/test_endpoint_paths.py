"""Every path of vLLM's route tables, by the load balancer's rules and the real Envoy: what reaches the server, and for whom."""

import json
import os
import re
import tomllib
from itertools import product
from pathlib import Path

import grpc
import grpc.aio
import pytest

from asking import Connection, Exchange, Site, in_loop
from eks_inference.endpoints.plan import doors
from eks_inference.endpoints.proxy import HEALTH_PATH, Upstream
from eks_inference.endpoints.spec import ModelEndpointSpec
from eks_inference.gateway.plan import Route, ingress
from eks_inference.serving.paths import ASKING_PATHS
from envoy import COMMAND, Envoy
from refresh.vllm_paths import FILE

if not COMMAND:
    pytest.skip("Envoy is not installed: make envoy", allow_module_level=True)

KEY = "key-of-team-a-0001"
SERVER_KEY = "server-key-12345678"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY")
PATHS = sorted({path for one in tomllib.loads(FILE.read_text("utf-8"))["releases"].values() for path in one["paths"]})
SPELLINGS = (
    *("{0}", "/{0}", "/.{0}", "{0}/", "{0}?x=1", "/v1/..{0}", "/v1/../{0}", "/v1/..;{0}", "/v1;x/..{0}", "/v1/%2e%2e{0}"),
    *("/v1%2f..{0}", "/v1/models/../..{0}", "/v1/chat/completions/%2E%2E/../..{0}", "/v1/..\\{0}", "/ready/..{0}"),
)


def through(path_of_route: str, asked: str) -> str | None:
    """What the load balancer sends to the proxy, by the rules of our Ingress; None: it answers with 404 itself."""
    (door,) = doors("chat", ModelEndpointSpec(), [Upstream("s", "s.test", 8000, "m")])
    route = Route("chat", "models.example.com", path_of_route)
    made = ingress("g", route, door, namespace="chat", shared={}, ingress_class="alb", login={})
    ((only,),) = [rule["http"]["paths"] for rule in made["spec"]["rules"]]
    path, _, query = asked.partition("?")
    if only["path"] != "/" and path != only["path"] and not path.startswith(f"{only['path']}/"):
        return None
    moved = made["metadata"]["annotations"].get("alb.ingress.kubernetes.io/transforms.chat")
    if moved:
        (rewrite,) = json.loads(moved)[0]["urlRewriteConfig"]["rewrites"]
        path = re.sub(rewrite["regex"], rewrite["replace"].replace("$1", r"\1"), path)
    return f"{path}?{query}" if query else path


@pytest.mark.parametrize("route", ["/", "/llama3"])
@in_loop
async def test_only_the_list_reaches_the_server_and_only_with_a_key(route) -> None:
    seen: list[tuple[str, str]] = []

    async def serve(exchange: Exchange) -> None:
        seen.append((exchange.method, exchange.path))
        exchange.answer(200, {})

    server = Site(serve)
    port = await server.start()
    before = route.rstrip("/")
    assert len(PATHS) > 80
    async with Envoy([Upstream("s", "127.0.0.1", port, "m")], keys={"team-a": KEY}) as envoy:
        for path, spelling in product(PATHS, SPELLINGS):
            asked = through(route, before + spelling.format(path.replace("{response_id}", "x").replace("{adapter_name}", "x")))
            assert asked, "the load balancer has this path"
            for key, method in product((KEY, "", "wrong"), ("GET", "POST")):
                async with Connection(envoy.port, headers={"authorization": f"Bearer {key}"} if key else {}) as client:
                    client_asks = client.get(asked) if method == "GET" else client.post(asked, {"model": "m"})
                    status = (await client_asks).status
                if key != KEY and path != HEALTH_PATH:  # which the proxy answers itself
                    assert status in (400, 401), (method, asked, status)
    assert {(method, path.rstrip("/")) for method, path in seen} == {("POST", path) for path in ASKING_PATHS}
    assert through("/llama3", "/pause") is None


@pytest.mark.skipif("VLLM_LOG" not in os.environ, reason="VLLM_LOG names no log of a vLLM that listens at VLLM_PORT (by hand)")
@in_loop
async def test_of_a_real_server_answers_only_the_list() -> None:
    """Every route of vLLM's own table, which it writes into its log, by every method.

    It serves a model as ``tiny``, with SERVER_KEY: `vllm serve … --served-model-name tiny --api-key …`, of the wheel for CPUs,
    with VLLM_SERVER_DEV_MODE=1.
    """
    own = set(re.findall(r"Route: (/\S*),", Path(os.environ["VLLM_LOG"]).read_text("utf-8")))
    assert len(own) > 40
    answered: set[tuple[str, str, str]] = set()
    upstream = Upstream("s", "127.0.0.1", int(os.environ["VLLM_PORT"]), "tiny")
    async with Envoy([upstream], keys={"team-a": KEY}, server_key=SERVER_KEY) as envoy:
        for path, key, method in product(sorted({*own, *PATHS}), (KEY, SERVER_KEY, ""), METHODS):
            asked = through("/", re.sub(r"\{\w+\}", "x", path))
            body = {
                "model": "tiny",
                "max_tokens": 1,
                "prompt": "hi",
                "input": "hi",
                "messages": [{"role": "user", "content": "hi"}],
            }
            async with Connection(envoy.port, 100, {"authorization": f"Bearer {key}"} if key else {}) as client:
                answer = await client.ask(method, asked or "/", json.dumps(body).encode())
            if "x-envoy-upstream-service-time" in answer.headers:
                answered.add((method, path, key))
            elif key != KEY and path != HEALTH_PATH:
                assert answer.status in (400, 401), (method, path)
    assert answered == {("POST", path, KEY) for path in ASKING_PATHS}


@in_loop
async def test_a_load_balancer_finds_the_proxy_healthy_over_grpc_though_no_method_answers_it() -> None:
    """Elastic Load Balancing takes a target for healthy by the status of its answer."""
    upstream = Upstream("triton", "127.0.0.1", 1, grpc_port=1)
    for keys in ({"team-a": KEY}, {}):
        _, door = doors("chat", ModelEndpointSpec(keys=bool(keys)), [upstream])
        async with Envoy([upstream], keys=keys) as envoy, grpc.aio.insecure_channel(f"127.0.0.1:{envoy.port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as answered:
                await channel.unary_unary(door.health)(b"")
        assert str(answered.value.code().value[0]) in door.healthy.split(",")
