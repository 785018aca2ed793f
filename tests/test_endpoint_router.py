"""An endpoint before the routers of a group: the real Envoy and the real vllm-router, which ``make router`` installs."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

import envoy
import vllm_router
from asking import Answer, Connection, in_loop
from disaggregated_group import QUICK, group, streamed, text
from eks_inference.endpoints.proxy import Upstream
from envoy import Envoy
from kv_blocks import expected
from streaming_servers import CachingServer, talk
from vllm_router import VllmRouter
from waiting import eventually, until_in_loop

if not (envoy.COMMAND and vllm_router.COMMAND):
    pytest.skip("Envoy and vllm-router are not both installed: make router", allow_module_level=True)

KEYS = {"team-a": "key-of-team-a-0001"}
PATH = "/v1/completions"


async def ask(port: int, tokens: int, key: str = KEYS["team-a"], *, stream: bool = False) -> Answer:
    async with Connection(port, headers={"authorization": f"Bearer {key}"}) as client:
        return await client.post(PATH, {"model": "m", "prompt": "a b c d e", "max_tokens": tokens, "stream": stream})


@in_loop
async def test_a_pair_answers_who_has_a_key() -> None:
    async with group([{}], [{}], OPENAI_API_KEY="key-of-the-servers") as servers:
        upstreams = [Upstream("pair", "127.0.0.1", servers.router.port, "m")]
        async with Envoy(upstreams, keys=KEYS) as front:
            assert text(await ask(front.port, 4)) == expected("a b c d e", 4)
            assert (await ask(front.port, 4, key="another-key-of-nobody")).status == 401
            told = [request.headers for engine in (*servers.prefill, *servers.decode) for request in engine.requests]
            assert told
            assert not [value for headers in told for value in headers.values() if KEYS["team-a"] in value]


@in_loop
async def test_a_router_that_restarts_costs_no_stream_and_no_request() -> None:
    async with group([{}], [{"token_s": 0.1}], *QUICK) as servers, AsyncExitStack() as stack:
        urls = [engine.url for engine in servers.prefill], [engine.url for engine in servers.decode]
        second = await stack.enter_async_context(VllmRouter(*urls, QUICK))
        routers = [servers.router, second]
        upstreams = [Upstream(f"router-{number}", "127.0.0.1", one.port, "m") for number, one in enumerate(routers)]
        front = await stack.enter_async_context(Envoy(upstreams, keys=KEYS))
        before = [asyncio.create_task(ask(front.port, 40, stream=True)) for _ in range(12)]
        await until_in_loop(lambda: sum(len(engine.requests) for engine in servers.decode) == 12)
        ending = asyncio.create_task(second.terminate())
        await eventually(second.refuses)
        during = [await ask(front.port, 2) for _ in range(20)]
        assert {text(answer) for answer in during} == {expected("a b c d e", 2)}
        assert {streamed(await task) for task in before} == {expected("a b c d e", 40)}
        assert await ending == 0


@in_loop
async def test_the_routers_own_policy_asks_every_server_about_every_prompt() -> None:
    """Why an endpoint picks pods itself (``spread: prefixes``): vllm-router's ``cache_aware`` wants each prompt in tokens."""
    async with AsyncExitStack() as stack:
        pods = [await stack.enter_async_context(CachingServer()) for _ in range(4)]
        urls = [f"http://127.0.0.1:{pod.port}" for pod in pods]
        router = await stack.enter_async_context(VllmRouter(servers=urls, policy="cache_aware"))
        await talk(router.port, count=2, turns=3)
        asked = Counter(request.path for pod in pods for request in pod.seen if request.method == "POST")
        assert asked == {"/v1/chat/completions": 6, "/v1/chat/completions/render": 24}
