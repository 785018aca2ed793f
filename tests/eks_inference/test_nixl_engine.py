"""The stand-ins for vLLM servers over NIXL do about blocks what vLLM's connector does, as it was read in its source.

test_vllm_router.py rests on them: what holds here holds without any router.
"""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from asking import Answer, Connection, in_loop
from kv_blocks import expected
from nixl_engine import NixlEngine
from waiting import until_in_loop

_number = iter(range(1_000_000))
LEASE_S = 0.3
LONG_S = 1.2
"""So long that a busy machine misses none of the heartbeats in it."""
ASKS = {"do_remote_decode": True, "do_remote_prefill": False}


async def prefilled(prefill: NixlEngine, prompt: str) -> dict[str, Any]:
    """What prefill returns for decode."""
    async with Connection(prefill.port, headers={"x-request-id": f"r{next(_number)}"}) as client:
        answer = await client.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "kv_transfer_params": ASKS})
    assert answer.status == 200
    return answer.body["kv_transfer_params"]


async def decoded(decode: NixlEngine, prompt: str, params: dict[str, Any], **more: Any) -> Answer:
    async with Connection(decode.port) as client:
        return await client.post("/v1/completions", {"prompt": prompt, "max_tokens": 2, "kv_transfer_params": params, **more})


def text(answer: Answer) -> str:
    assert answer.status == 200, answer
    return answer.body["choices"][0]["text"]


async def freed(engine: NixlEngine) -> None:
    """Waits until it holds no block."""
    await until_in_loop(lambda: engine.blocks.held, lambda held: not held)


@in_loop
async def test_decode_answers_from_the_blocks_it_read_and_both_servers_are_free_afterwards() -> None:
    async with NixlEngine() as prefill, NixlEngine() as decode:
        params = await prefilled(prefill, "a b c d e")
        assert prefill.blocks.held == 2, "five tokens, four a block"
        assert text(await decoded(decode, "a b c d e", params)) == expected("a b c d e", 2)
        await freed(prefill)
        assert (prefill.blocks.held, decode.blocks.held, prefill.expired) == (0, 0, 0)


@in_loop
async def test_what_the_server_of_decode_refuses_frees_prefill_at_once() -> None:
    async with NixlEngine(lease_s=30) as prefill, NixlEngine() as decode:
        for more in ({"max_tokens": 64}, {"min_tokens": 3}):
            answer = await decoded(decode, "a", await prefilled(prefill, "a"), **more)
            assert answer.status == 400
            await freed(prefill)
        assert prefill.expired == 0


@in_loop
async def test_what_decode_refuses_by_its_type_frees_prefill_by_the_lease() -> None:
    async with NixlEngine(lease_s=LEASE_S) as prefill, NixlEngine() as decode:
        assert (await decoded(decode, "a", await prefilled(prefill, "a"), stream_options={})).status == 400
        await freed(prefill)
        assert prefill.expired == 1


@pytest.mark.parametrize("leases", [True, False])
@in_loop
async def test_what_nobody_reads_is_kept_until_the_lease_ends_and_without_leases_for_ever(leases: bool) -> None:
    async with NixlEngine(lease_s=LEASE_S, leases=leases) as prefill:
        await prefilled(prefill, "a")
        await (freed(prefill) if leases else asyncio.sleep(3 * LEASE_S))
        assert (prefill.expired, prefill.blocks.held) == ((1, 0) if leases else (0, 1))


@pytest.mark.thorough
@pytest.mark.parametrize("heartbeats", [True, False])
@in_loop
async def test_heartbeats_keep_what_waits_in_the_queue_of_decode(heartbeats: bool) -> None:
    async with NixlEngine(lease_s=LONG_S) as prefill, NixlEngine(lease_s=LONG_S, sequences=1, heartbeats=heartbeats) as decode:
        decode.lets_end.clear()
        busy = asyncio.create_task(decoded(decode, "busy", await prefilled(prefill, "busy")))
        await until_in_loop(lambda: len(decode.requests))
        params = await prefilled(prefill, "a")
        waiting = asyncio.create_task(decoded(decode, "a", params))
        await (asyncio.sleep(2 * LONG_S) if heartbeats else freed(prefill))
        assert prefill.blocks.held == heartbeats
        # Blocks that were given back are soon another's. Nobody notices but the one who reads the answer, and prefill's log.
        prefill.blocks.content[params["remote_block_ids"][0][0]] += "" if heartbeats else " of another"
        decode.lets_end.set()
        assert (text(await waiting) == expected("a", 2)) == heartbeats
        assert (prefill.unrecognised, prefill.expired) == ((0, 0) if heartbeats else (1, 1))
        assert decode.failed_transfers == 0
        await busy


@pytest.mark.thorough
@in_loop
async def test_a_renewed_lease_delays_the_end_of_later_ones() -> None:
    async with NixlEngine(lease_s=LONG_S) as prefill, NixlEngine(lease_s=LONG_S, sequences=1) as decode:
        decode.lets_end.clear()
        busy = asyncio.create_task(decoded(decode, "busy", await prefilled(prefill, "busy")))
        await until_in_loop(lambda: len(decode.requests))
        waiting = asyncio.create_task(decoded(decode, "a", await prefilled(prefill, "a")))
        await prefilled(prefill, "nobody reads this")
        await asyncio.sleep(2 * LONG_S)
        assert len(prefill.pins) == 2
        decode.lets_end.set()
        await asyncio.gather(busy, waiting)
        await freed(prefill)
        assert prefill.expired == 1


@pytest.mark.thorough
@pytest.mark.parametrize("on_failure", ["fail", "recompute"])
@pytest.mark.parametrize("fault", ["version", "model", "killed"])
@in_loop
async def test_blocks_that_decode_cannot_get_fail_the_request_or_are_computed_anew(fault: str, on_failure: Any) -> None:
    other: dict[str, Any] = {"version": "0.29.0"} if fault == "version" else {"model": "other"} if fault == "model" else {}
    async with NixlEngine(lease_s=LEASE_S) as prefill, NixlEngine(on_failure=on_failure, **other) as decode:
        params = await prefilled(prefill, "a")
        if fault == "killed":
            prefill.kill()
        answer = await decoded(decode, "a", params)
        assert answer.status == (200 if on_failure == "recompute" else 500)
        assert on_failure == "fail" or text(answer) == expected("a", 2)
        stream = await decoded(decode, "a", params, stream=True)
        assert (stream.status, stream.whole, stream.events[-1]) == (200, True, "[DONE]")
        assert ('"error"' in stream.events[0]) == (on_failure == "fail")
        assert (decode.failed_transfers, decode.blocks.held) == (2, 0)
        if fault != "killed":  # a lease that nobody renews
            await freed(prefill)


@in_loop
async def test_a_prefill_that_came_back_is_another_engine() -> None:
    async with NixlEngine() as prefill, NixlEngine() as decode:
        await decoded(decode, "a", await prefilled(prefill, "a"))
        prefill.kill()
        async with NixlEngine() as again:
            assert text(await decoded(decode, "b", await prefilled(again, "b"))) == expected("b", 2)


@in_loop
async def test_a_client_that_leaves_keeps_no_block_of_prefill_whether_it_leaves_prefill_or_the_queue_of_decode() -> None:
    async with NixlEngine(prefill_s=20) as prefill, NixlEngine(sequences=1, token_s=20) as decode:

        async def leave(engine: NixlEngine, prompt: str, params: dict[str, Any]) -> None:
            client, before = Connection(engine.port, headers={"x-request-id": "leaves"}), len(engine.requests)
            body = {"prompt": prompt, "max_tokens": 1, "kv_transfer_params": params}
            asking = asyncio.create_task(client.post("/v1/completions", body))
            await until_in_loop(lambda: len(engine.requests), lambda now: now > before)
            client.leave()
            with suppress(OSError):
                await asking

        await leave(prefill, "a", ASKS)
        await freed(prefill)
        assert not prefill.pins
        prefill.prefill_s = 0
        busy = asyncio.create_task(decoded(decode, "b", await prefilled(prefill, "b")))
        await until_in_loop(lambda: len(decode.requests))
        await leave(decode, "c", await prefilled(prefill, "c"))
        await freed(prefill)  # before the answer of the one that runs, and before its lease
        assert not busy.done()
        assert prefill.expired == 0
        busy.cancel()
        await freed(decode)
