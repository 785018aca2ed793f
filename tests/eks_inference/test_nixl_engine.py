"""The stand-ins for vLLM servers over NIXL do about blocks what vLLM's connector does, as it was read in its source.

test_vllm_router.py rests on them: what holds here holds without any router.
"""

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from asking import Answer, Connection, in_loop
from kv_blocks import expected
from nixl_engine import NixlEngine

_number = iter(range(1_000_000))
LEASE_S = 0.3
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


async def freed(engine: NixlEngine, within_s: float) -> float:
    """Seconds until it held no block, and infinity when that took longer."""
    start = time.monotonic()
    while engine.blocks.held:
        if time.monotonic() - start > within_s:
            return float("inf")
        await asyncio.sleep(0.005)
    return time.monotonic() - start


@in_loop
async def test_decode_answers_from_the_blocks_it_read_and_both_servers_are_free_afterwards() -> None:
    async with NixlEngine(lease_s=LEASE_S) as prefill, NixlEngine() as decode:
        params = await prefilled(prefill, "a b c d e")
        assert prefill.blocks.held == 2, "five tokens, four a block"
        assert text(await decoded(decode, "a b c d e", params)) == expected("a b c d e", 2)
        assert await freed(prefill, 1) < LEASE_S / 2
        assert (prefill.blocks.held, decode.blocks.held, prefill.expired) == (0, 0, 0)


@in_loop
async def test_what_the_server_of_decode_refuses_frees_prefill_at_once() -> None:
    async with NixlEngine(lease_s=30) as prefill, NixlEngine() as decode:
        for more in ({"max_tokens": 64}, {"min_tokens": 3}):
            answer = await decoded(decode, "a", await prefilled(prefill, "a"), **more)
            assert answer.status == 400
            assert await freed(prefill, 2) < 2


@in_loop
async def test_what_decode_refuses_by_its_type_frees_prefill_by_the_lease() -> None:
    async with NixlEngine(lease_s=LEASE_S) as prefill, NixlEngine() as decode:
        assert (await decoded(decode, "a", await prefilled(prefill, "a"), stream_options={})).status == 400
        assert LEASE_S / 2 < await freed(prefill, 3 * LEASE_S) < 3 * LEASE_S
        assert prefill.expired == 1


@pytest.mark.parametrize("leases", [True, False])
@in_loop
async def test_what_nobody_reads_is_kept_until_the_lease_ends_and_without_leases_for_ever(leases: bool) -> None:
    async with NixlEngine(lease_s=LEASE_S, leases=leases) as prefill:
        await prefilled(prefill, "a")
        took = await freed(prefill, 3 * LEASE_S)
        assert (LEASE_S / 2 < took < 3 * LEASE_S) == leases
        assert (prefill.expired, prefill.blocks.held) == ((1, 0) if leases else (0, 1))


@pytest.mark.parametrize("heartbeats", [True, False])
@in_loop
async def test_heartbeats_keep_what_waits_in_the_queue_of_decode(heartbeats: bool) -> None:
    async with NixlEngine(lease_s=LEASE_S) as prefill, NixlEngine(lease_s=LEASE_S, sequences=1, heartbeats=heartbeats) as decode:
        busy = asyncio.create_task(decoded(decode, "busy", await prefilled(prefill, "busy"), max_tokens=50))
        decode.token_s = 3 * LEASE_S / 50
        await asyncio.sleep(LEASE_S / 8)
        params = await prefilled(prefill, "a")
        waiting = asyncio.create_task(decoded(decode, "a", params))
        await asyncio.sleep(2 * LEASE_S)
        assert prefill.blocks.held == heartbeats
        # Blocks that were given back are soon another's. Nobody notices but the one who reads the answer, and prefill's log.
        prefill.blocks.content[params["remote_block_ids"][0][0]] += "" if heartbeats else " of another"
        assert (text(await waiting) == expected("a", 2)) == heartbeats
        assert (prefill.unrecognised, prefill.expired) == ((0, 0) if heartbeats else (1, 1))
        assert decode.failed_transfers == 0
        await busy


@in_loop
async def test_a_renewed_lease_delays_the_end_of_later_ones() -> None:
    async with NixlEngine(lease_s=LEASE_S) as prefill, NixlEngine(lease_s=LEASE_S, sequences=1) as decode:
        decode.token_s = 3 * LEASE_S / 50
        busy = asyncio.create_task(decoded(decode, "busy", await prefilled(prefill, "busy"), max_tokens=50))
        await asyncio.sleep(LEASE_S / 8)
        waiting = asyncio.create_task(decoded(decode, "a", await prefilled(prefill, "a")))
        await prefilled(prefill, "nobody reads this")
        await asyncio.sleep(2 * LEASE_S)
        assert len(prefill.pins) == 2
        await asyncio.gather(busy, waiting)
        assert await freed(prefill, 2 * LEASE_S) < LEASE_S
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
        assert fault == "killed" or await freed(prefill, 2) < 2, "a lease that nobody renews"


@in_loop
async def test_a_prefill_that_came_back_is_another_engine() -> None:
    async with NixlEngine() as prefill, NixlEngine() as decode:
        await decoded(decode, "a", await prefilled(prefill, "a"))
        prefill.kill()
        async with NixlEngine() as again:
            assert text(await decoded(decode, "b", await prefilled(again, "b"))) == expected("b", 2)


@in_loop
async def test_a_client_that_leaves_keeps_no_block_of_prefill_whether_it_leaves_prefill_or_the_queue_of_decode() -> None:
    async with NixlEngine(prefill_s=0.2) as prefill, NixlEngine(sequences=1, token_s=0.05) as decode:
        client = Connection(prefill.port, headers={"x-request-id": "leaves"})
        client.leave_after(0.05)
        with suppress(OSError):
            await client.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "kv_transfer_params": ASKS})
        assert await freed(prefill, 1) < 1
        assert not prefill.pins
        busy = asyncio.create_task(decoded(decode, "b", await prefilled(prefill, "b"), max_tokens=20))
        params = await prefilled(prefill, "c")
        client = Connection(decode.port)
        client.leave_after(0.05)
        with suppress(OSError):
            await client.post("/v1/completions", {"prompt": "c", "max_tokens": 1, "kv_transfer_params": params})
        assert await freed(prefill, 0.5) < 0.5, "long before the answer of the one that runs, and before its lease"
        assert not busy.done()
        await busy
        assert decode.blocks.held == 0
