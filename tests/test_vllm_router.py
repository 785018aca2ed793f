"""The real vllm-router between stand-ins for servers over NIXL: of what goes wrong, clients are told, and nothing keeps blocks.

``make router`` installs the pinned wheel into an environment of its own and runs this file. ROUTER_REQUESTS says how many
requests the long run has.
"""

import asyncio
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from asking import Answer, Connection, in_loop
from disaggregated_group import QUICK, Group, group, streamed, text
from kv_blocks import expected
from nixl_engine import NixlEngine
from ports import free_ports
from vllm_router import COMMAND, VllmRouter
from waiting import PATIENCE_S, eventually, until_in_loop

REQUESTS = int(os.environ.get("ROUTER_REQUESTS", "10000"))
CLIENTS = 32

if not COMMAND:
    pytest.skip("vllm-router is not installed: make router", allow_module_level=True)


# -- many requests ---------------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    seen: Counter[str] = field(default_factory=Counter)
    wrong: list[Answer | None] = field(default_factory=list)


async def many(servers: Group, requests: int) -> Tally:
    """Of twenty requests decode refuses one in its server and one before that, and of one the client leaves."""
    draw = random.Random(11)
    left = iter(range(requests))
    tally = Tally()

    async def client() -> None:
        async with Connection(servers.router.port) as connection:
            for number in left:
                await one(connection, number)

    async def one(connection: Connection, number: int) -> None:
        prompt = " ".join(f"w{number + place}" for place in range(draw.randint(1, 20)))
        body: dict[str, Any] = {"model": "m", "prompt": prompt, "max_tokens": 3, "stream": draw.random() < 0.5}
        kind = {0: "refused", 1: "unavailable", 2: "left"}.get(number % 20, "answered")
        if kind == "refused":
            body["max_tokens"] = 64
        elif kind == "unavailable":
            draw.choice(servers.decode).refusals.append(503)
        leaving = connection.leave_after(draw.uniform(0, 0.02)) if kind == "left" else None
        try:
            answer = await connection.post("/v1/completions", body)
        except OSError:
            answer = None
        if leaving:
            leaving.cancel()
        if kind == "left" and (answer is None or not answer.whole):
            tally.seen["left"] += 1
        elif answer and answer.status != 200 and answer.whole:
            tally.seen[str(answer.status)] += 1
        elif answer and answer.whole and (streamed(answer) if body["stream"] else text(answer)) == expected(prompt, 3):
            tally.seen["200"] += 1
        else:
            tally.wrong.append(answer)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return tally


async def lose_nothing_and_leak_nothing(requests: int, kept_s: float = 2 * PATIENCE_S, **engine: Any) -> None:
    lease_s = 30  # so long that decode reads before it ends, if the router stands still, too
    each = {"prefill_s": 0.002, "token_s": 0.001, "blocks_total": 2048, "lease_s": lease_s, **engine}
    async with group([each] * 2, [each] * 3) as servers:
        tally = await many(servers, requests)
        assert not tally.wrong
        assert sum(tally.seen.values()) == requests, tally.seen
        assert set(tally.seen) <= {"200", "400", "503", "left"}, tally.seen
        assert tally.seen["200"] > requests * 0.8, tally.seen
        # Which request a refusal before decode meets, nothing promises: one that decode would refuse, or one whose client leaves.
        assert {"400", "503"} <= set(tally.seen), tally.seen
        assert tally.seen["400"] + tally.seen["503"] > requests // 20, tally.seen
        assert tally.seen["left"], tally.seen
        assert not await servers.kept(kept_s), "blocks are kept"
        assert sum(engine.expired for engine in servers.prefill) >= tally.seen["503"]
        assert not sum(engine.failed_transfers + engine.unrecognised for engine in servers.alive)


@in_loop
async def test_of_many_requests_none_is_lost_and_none_keeps_a_block() -> None:
    await lose_nothing_and_leak_nothing(REQUESTS)


@in_loop
async def test_without_leases_the_same_run_keeps_blocks() -> None:
    with pytest.raises(AssertionError, match="blocks are kept"):
        await lose_nothing_and_leak_nothing(300, 5, leases=False)


# -- decode ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@in_loop
async def test_the_refusal_of_decode_reaches_the_client_and_frees_prefill_at_once(stream: bool) -> None:
    async with group([{"lease_s": 3600}], [{}]) as servers:
        answer = await servers.ask(max_tokens=64, stream=stream)
        assert (answer.status, answer.body["error"]["message"]) == (400, "longer than 64 tokens")
        assert len(servers.prefill[0].requests) == 1, "prefill is asked for one token, and so does not refuse"
        assert not await servers.kept()


@in_loop
async def test_stream_options_without_a_stream_pass_prefill_and_cost_its_blocks_for_a_lease() -> None:
    async with group([{}], [{}]) as servers:
        assert (await servers.ask(stream_options={"include_usage": True})).status == 400
        assert "stream_options" not in servers.prefill[0].requests[0].body
        assert not await servers.kept()
        assert servers.prefill[0].expired == 1


@in_loop
async def test_what_decode_answers_before_it_looks_reaches_the_client_once_and_the_lease_frees_prefill() -> None:
    async with group([{}], [{"refusals": [503]}, {}]) as servers:
        answer = await servers.ask()
        assert answer.status == 503
        assert sum(len(engine.requests) for engine in servers.decode) == 1, "no other decode is asked"
        assert not await servers.kept()
        assert servers.prefill[0].expired == 1


@in_loop
async def test_the_stream_of_a_killed_decode_ends_unfinished_and_others_go_on() -> None:
    async with group([{}], [{}] * 2, *QUICK) as servers:
        for engine in servers.decode:
            engine.lets_end.clear()
        streams = [asyncio.create_task(servers.ask(max_tokens=20, stream=True)) for _ in range(4)]
        await until_in_loop(lambda: all(engine.streaming == 2 for engine in servers.decode))
        servers.decode[0].kill()
        servers.decode[1].lets_end.set()
        ends = Counter((answer.whole, "[DONE]" in answer.text) for answer in await asyncio.gather(*streams))
        assert ends == {(False, False): 2, (True, True): 2}
        await until_all_answer(servers)
        assert not await servers.kept()


@in_loop
async def test_a_decode_that_nobody_reaches_fails_its_requests_and_the_lease_frees_prefill() -> None:
    async with group([{}], [{}]) as servers:
        servers.decode[0].kill()
        answer = await servers.ask()
        assert (answer.status, "Decode request failed" in answer.text) == (500, True)
        assert not await servers.kept()
        assert servers.prefill[0].expired == 1


# -- prefill ---------------------------------------------------------------------------------------------------------------------


async def until_all_answer(servers: Group) -> None:
    """Until every request is answered, of more than there are servers."""

    async def statuses() -> list[int]:
        return [(await servers.ask()).status for _ in range(4)]

    await eventually(statuses, lambda found: found == [200] * 4)


@in_loop
async def test_a_killed_prefill_fails_its_requests_until_a_health_check_and_serves_again_when_it_is_back() -> None:
    async with group([{"port": free_ports(1)[0]}, {}], [{}], *QUICK) as servers:
        for engine in servers.prefill:
            engine.lets_end.clear()
        under_way = [asyncio.create_task(servers.ask()) for _ in range(4)]
        await until_in_loop(lambda: all(len(engine.requests) == 2 for engine in servers.prefill))
        dead = servers.prefill[0]
        dead.kill()
        servers.prefill[1].lets_end.set()
        answers = await asyncio.gather(*under_way)
        assert Counter(answer.status for answer in answers) == {500: 2, 200: 2}, "no other prefill is asked"
        assert any("Prefill request" in answer.text for answer in answers if answer.status == 500)
        await until_all_answer(servers)
        async with NixlEngine(port=dead.port) as again:

            async def serves() -> bool:
                assert (await servers.ask()).status == 200
                return bool(again.requests)

            await eventually(serves)
        assert not await servers.kept()


@pytest.mark.parametrize(("status", "told"), [(400, 400), (429, 429), (500, 500), (503, 500)])
@in_loop
async def test_what_prefill_refuses_never_reaches_decode_and_a_servers_own_error_becomes_500(status: int, told: int) -> None:
    async with group([{"refusals": [status]}, {}], [{}]) as servers:
        answer = await servers.ask()
        assert (answer.status, "refused before" in answer.text) == (told, True)
        assert not servers.decode[0].requests
        assert sum(len(engine.requests) for engine in servers.prefill) == 1, "no other prefill is asked"


@in_loop
async def test_a_router_that_starts_before_its_servers_waits_for_all_of_them() -> None:
    async with NixlEngine() as decode, NixlEngine() as prefill:
        prefill.ready = False
        asyncio.get_running_loop().call_later(1.5, setattr, prefill, "ready", True)
        async with VllmRouter([prefill.url], [decode.url]):
            assert prefill.ready


@pytest.mark.parametrize("on_failure", ["fail", "recompute"])
@in_loop
async def test_a_prefill_killed_before_decode_has_read_costs_its_requests_or_is_made_good(on_failure: str) -> None:
    async with group([{}], [{"sequences": 1, "on_failure": on_failure}]) as servers:
        servers.decode[0].lets_end.clear()
        first = asyncio.create_task(servers.ask(max_tokens=20))
        await until_in_loop(lambda: len(servers.decode[0].requests) == 1)
        waiting = [asyncio.create_task(servers.ask(f"other {number}")) for number in range(3)]
        await until_in_loop(lambda: len(servers.decode[0].requests) == 4)
        servers.prefill[0].kill()
        servers.decode[0].lets_end.set()
        assert text(await first) == expected("a b c d e", 20), "its blocks were read"
        for number, answer in enumerate(await asyncio.gather(*waiting)):
            if on_failure == "recompute":
                assert text(answer) == expected(f"other {number}", 3)
            else:
                assert (answer.status, answer.body["error"]["type"]) == (500, "InternalServerError")
        assert servers.decode[0].failed_transfers == 3
        assert not await servers.kept()


@pytest.mark.parametrize("heartbeats", [True, False])
@in_loop
async def test_a_queue_longer_than_the_lease_is_right_with_heartbeats_and_silently_wrong_without(heartbeats: bool) -> None:
    lease_s = 1.2  # so long that no heartbeat in it is missed
    few = {"blocks_total": 6, "heartbeats": heartbeats}
    async with group([few | {"lease_s": 3600}], [few | {"lease_s": lease_s, "sequences": 1}]) as servers:
        [prefill], [decode] = servers.prefill, servers.decode
        decode.lets_end.clear()
        first = asyncio.create_task(servers.ask())
        await until_in_loop(lambda: len(decode.requests) == 1)
        waits = asyncio.create_task(servers.ask("x y"))
        await until_in_loop(lambda: len(decode.requests) == 2)
        prefill.end_leases(lease_s)
        await (asyncio.sleep(1.5 * lease_s) if heartbeats else until_in_loop(lambda: prefill.expired))
        # The next prompts need all blocks of prefill that are free: two of them, or all three.
        later = [asyncio.create_task(servers.ask(f"p q r s t {number}", max_tokens=1)) for number in range(3)]
        await until_in_loop(lambda: len(decode.requests) == 5 - heartbeats)
        decode.lets_end.set()
        answers = await asyncio.gather(first, waits, *later)
        assert {answer.status for answer in answers} == {200}
        assert (text(answers[1]) == expected("x y", 3)) == heartbeats
        assert bool(prefill.unrecognised) != heartbeats


@in_loop
async def test_two_versions_behind_one_router_fail_every_request_between_them() -> None:
    async with group([{"lease_s": 3600}], [{}, {"version": "0.31.0"}]) as servers:
        answers = [await servers.ask() for _ in range(10)]
        assert Counter(answer.status for answer in answers) == {200: 5, 500: 5}
        assert servers.decode[1].failed_transfers == 5
        await until_in_loop(lambda: len(servers.prefill[0].pins) == 5)
        servers.prefill[0].end_leases()
        assert not await servers.kept()
        assert servers.prefill[0].expired == 5


@pytest.mark.parametrize("stream", [False, True])
@in_loop
async def test_a_server_that_drains_before_the_router_knows_gives_empty_answers(stream: bool) -> None:
    """So the router has to hear of a server's end before the server does."""
    async with group([{}], [{}, {}]) as servers:
        servers.decode[0].lets_end.clear()
        busy = asyncio.create_task(servers.ask(max_tokens=20))
        await until_in_loop(lambda: len(servers.decode[0].requests) == 1)
        draining = asyncio.create_task(servers.decode[0].drain())
        answers = [await servers.ask(stream=stream) for _ in range(4)]
        said = [streamed(answer) if stream else text(answer) for answer in answers]
        assert Counter(said) == {"": 2, expected("a b c d e", 3): 2}
        assert sum('"finish_reason": "abort"' in answer.text for answer in answers) == 2
        servers.decode[0].lets_end.set()
        assert text(await busy) == expected("a b c d e", 20)
        await draining
        assert not await servers.kept()


@in_loop
async def test_without_blocks_from_a_prefill_that_drains_decode_computes_them() -> None:
    async with group([{"lease_s": 3600}], [{"sequences": 1}]) as servers:
        servers.decode[0].lets_end.clear()
        busy = asyncio.create_task(servers.ask("other", max_tokens=10))
        await until_in_loop(lambda: len(servers.decode[0].requests) == 1)
        waits = asyncio.create_task(servers.ask())
        await until_in_loop(lambda: len(servers.decode[0].requests) == 2)
        draining = asyncio.create_task(servers.prefill[0].drain())
        late = asyncio.create_task(servers.ask("late"))
        await until_in_loop(lambda: len(servers.decode[0].requests) == 3)
        servers.decode[0].lets_end.set()
        assert text(await late) == expected("late", 3)
        assert "kv_transfer_params" not in servers.decode[0].requests[2].body
        for answer, said in ((await waits, expected("a b c d e", 3)), (await busy, expected("other", 10))):
            assert text(answer) == said, "it waits for its blocks to be read"
        await draining
        assert not await servers.kept()
