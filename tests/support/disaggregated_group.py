"""The real vllm-router, prefill and decode of one group, in the loop of the test."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from asking import Answer, Connection
from nixl_engine import NixlEngine
from vllm_router import VllmRouter
from waiting import PATIENCE_S, until_in_loop

LEASE_S = 0.6
QUICK = (
    *("--health-check-interval-secs=1", "--health-failure-threshold=1", "--health-success-threshold=1"),
    # A server that stands still with the process of the test is not dead.
    f"--health-check-timeout-secs={PATIENCE_S}",
)


@dataclass
class Group:
    prefill: list[NixlEngine]
    decode: list[NixlEngine]
    router: VllmRouter

    @property
    def alive(self) -> list[NixlEngine]:
        return [engine for engine in (*self.prefill, *self.decode) if not engine.dead]

    async def ask(self, prompt: str | list[str] = "a b c d e", path: str = "/v1/completions", **more: Any) -> Answer:
        async with Connection(self.router.port) as client:
            return await client.post(path, {"model": "m", "prompt": prompt, "max_tokens": 3, **more})

    async def kept(self, within_s: float = PATIENCE_S) -> int:
        """Blocks that are not free when all that can end has ended."""

        def held() -> int:
            return sum(engine.blocks.held for engine in self.alive)

        with suppress(AssertionError):
            await until_in_loop(held, lambda count: not count, within_s)
        return held()


@asynccontextmanager
async def group(
    prefill: Sequence[dict[str, Any]], decode: Sequence[dict[str, Any]], *arguments: str, **environment: str
) -> AsyncIterator[Group]:
    async with AsyncExitStack() as stack:

        async def started(engines: Sequence[dict[str, Any]]) -> list[NixlEngine]:
            return [await stack.enter_async_context(NixlEngine(**{"lease_s": LEASE_S, **engine})) for engine in engines]

        sides = await started(prefill), await started(decode)
        first, second = ([engine.url for engine in side] for side in sides)
        yield Group(*sides, await stack.enter_async_context(VllmRouter(first, second, arguments, environment)))


def text(answer: Answer) -> str:
    assert answer.status == 200, answer
    return answer.body["choices"][0]["text"]


def streamed(answer: Answer) -> str:
    assert (answer.status, answer.whole, answer.events[-1]) == (200, True, "[DONE]"), answer
    return "".join(re.findall(r'"text": "([^"]*)"', answer.text))
