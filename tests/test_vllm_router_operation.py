"""The real vllm-router as it is run: its end, its probes, its keys, its flags and metrics, and what it makes of pods."""

import asyncio
import os
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from asking import Answer, Connection, in_loop
from conftest import ROOT
from disaggregated_group import QUICK, group, streamed, text
from kv_blocks import expected
from nixl_engine import NixlEngine
from pods_api import PodsApi
from ports import free_ports, own_addresses
from vllm_router import COMMAND, VllmRouter
from waiting import PATIENCE_S, eventually, until_in_loop

if not COMMAND:
    pytest.skip("vllm-router is not installed: make router", allow_module_level=True)


@in_loop
async def test_on_sigterm_it_ends_streams_first_and_takes_no_new_clients() -> None:
    async with group([{}], [{}]) as servers:
        servers.decode[0].lets_end.clear()
        stream = asyncio.create_task(servers.ask(max_tokens=20, stream=True))
        await until_in_loop(lambda: servers.decode[0].streaming)
        ending = asyncio.create_task(servers.router.terminate())
        await eventually(servers.router.refuses)
        assert not stream.done()
        servers.decode[0].lets_end.set()
        assert streamed(await stream) == expected("a b c d e", 20)
        assert await ending == 0
        assert not await servers.kept()


@in_loop
async def test_ready_means_one_of_each_kind_and_healthy_means_all() -> None:
    async with group([{}] * 2, [{}], *QUICK) as servers, Connection(servers.router.port) as client:

        async def says(path: str) -> int:
            return (await client.get(path)).status

        async def settles(*statuses: int) -> None:
            async def said() -> tuple[int, ...]:
                return tuple([await says(path) for path in ("/liveness", "/readiness", "/health")])

            await eventually(said, lambda found: found == statuses)

        await settles(200, 200, 200)
        servers.prefill[0].ready = False
        await settles(200, 200, 503)
        assert {(await servers.ask()).status for _ in range(4)} == {200}
        servers.prefill[1].ready = False
        await settles(200, 503, 503)
        assert (await servers.ask()).status == 503


@in_loop
async def test_servers_get_the_routers_key_and_clients_need_none() -> None:
    async with group([{"key": "k"}], [{"key": "k"}], OPENAI_API_KEY="k") as servers:
        assert text(await servers.ask()) == expected("a b c d e", 3)
        async with Connection(servers.router.port, headers={"authorization": "Bearer other"}) as client:
            assert (await client.post("/v1/completions", {"prompt": "a", "max_tokens": 3})).status == 200
            workers = (await client.get("/workers")).body["workers"]
            assert len(workers) == 2
            assert (await client.post(f"/remove_worker?url={servers.prefill[0].url}", {})).status == 200, (
                "whoever reaches the port"
            )
            assert (await servers.ask()).status == 503


@in_loop
async def test_a_prompt_is_sent_to_prefill_for_one_token_without_a_stream() -> None:
    async with group([{}], [{}]) as servers:
        body = {"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 2, "stream_options": {}}
        answer = await servers.ask(path="/v1/chat/completions", stream=True, **body)
        assert answer.whole
        sent = servers.prefill[0].requests[0].body
        assert [sent[name] for name in ("max_tokens", "max_completion_tokens", "min_tokens", "stream")] == [1, 1, 1, False]
        assert "stream_options" not in sent
        got = servers.decode[0].requests[0].body
        assert got["kv_transfer_params"]["remote_port"] == servers.prefill[0].side_port
        assert (got["max_completion_tokens"], got["stream"]) == (2, True)


@in_loop
async def test_several_prompts_and_several_answers_are_handed_on_as_they_are() -> None:
    """Prefill of vLLM 0.30.0 returns the blocks of the first alone (entrypoints/openai/completion/serving.py:637)."""
    async with group([{"refusals": [400, 400]}], [{}]) as servers:
        await servers.ask(prompt=["a", "b"])
        await servers.ask(n=2)
        first, second = (request.body for request in servers.prefill[0].requests)
        assert (first["prompt"], second["n"]) == (["a", "b"], 2)


@in_loop
async def test_its_metrics_are_those_that_are_recorded() -> None:
    recorded = tomllib.loads((ROOT / "tests" / "exported_metrics.toml").read_text())["vllm_router"]["-"]
    async with group([{}], [{"refusals": [503]}], *QUICK) as servers:
        for _ in range(3):
            await servers.ask()
        servers.prefill[0].lets_end.clear()
        lost = asyncio.create_task(servers.ask())
        await until_in_loop(lambda: len(servers.prefill[0].requests) == 4)
        servers.prefill[0].kill()
        assert (await lost).status == 500

        async def gone() -> bool:
            return 0 in [value for name, value in (await servers.router.metrics()).items() if "_worker_health" in name]

        await eventually(gone)
        assert (await servers.ask()).status == 503
        seen = {re.split(r"[{ ]", name)[0] for name in await servers.router.metrics()}
    kinds = {kind: recorded[kind] for kind in ("gauges", "counters", "histograms")}
    suffixed = [name + suffix for name in kinds["histograms"] for suffix in ("_bucket", "_sum", "_count")]
    assert sorted(seen) == sorted([*kinds["gauges"], *kinds["counters"], *suffixed])


def test_the_flags_are_those_of_the_pinned_wheel() -> None:
    assert COMMAND
    helped = subprocess.run(
        [COMMAND, "--help"], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "80"}
    ).stdout
    _, _, options = helped.partition("\noptions:\n")
    told = {match[1]: match[0] for match in re.finditer(r"^  (--[a-z-]+)(?:.|\n(?!  -))*", options, re.MULTILINE)}
    recorded = tomllib.loads((ROOT / "tests" / "vllm_router.toml").read_text())
    for flag, default in recorded["defaults"].items():
        assert flag in told, flag
        [got] = re.findall(r"\(default: (.*?)\)$", " ".join(told[flag].split()))
        assert got == default, flag
    pinned = (ROOT / "tests" / "router_requirements.txt").read_text()
    assert f"\n{recorded['source'].split(' (')[0].replace(' ', '==')}\n" in pinned


# -- pods ------------------------------------------------------------------------------------------------------------------------

ADDRESSES = own_addresses()
NAMESPACE = "serving"
DISCOVERY = (
    "--service-discovery",
    f"--service-discovery-namespace={NAMESPACE}",
    *("--prefill-selector", "role=prefill", "group=g", "--decode-selector", "role=decode", "group=g"),
)


@dataclass
class Discovered:
    """Servers are at addresses of their own, all at one port, as pods are."""

    api: PodsApi
    router: VllmRouter
    engines: dict[str, NixlEngine]

    def pod(self, name: str, **more: Any) -> None:
        self.api.pod(name, self.engines[name].host, role=name.split("-")[0], group="g", **more)

    async def workers(self) -> set[str]:
        async with Connection(self.router.port) as client:
            urls = {worker["url"] for worker in (await client.get("/workers")).body["workers"]}
        return {name for name, engine in self.engines.items() if engine.url in urls}

    async def settles(self, *names: str, within_s: float = PATIENCE_S) -> None:
        await eventually(self.workers, lambda found: found == {*names}, within_s)


@asynccontextmanager
async def discovered(folder: Path, names: Sequence[str], *arguments: str, **engine: Any) -> AsyncIterator[Discovered]:
    async with AsyncExitStack() as stack:
        (port,) = free_ports(1)
        engines = {name: await stack.enter_async_context(NixlEngine(host=next(ADDRESSES), port=port, **engine)) for name in names}
        api = await stack.enter_async_context(PodsApi(NAMESPACE))
        environment = {"KUBECONFIG": api.kubeconfig(folder / "kubeconfig")}
        router = VllmRouter([], [], [*DISCOVERY, f"--service-discovery-port={port}", *arguments], environment)
        yield Discovered(api, await stack.enter_async_context(router), engines)


async def says(router: VllmRouter, path: str) -> int:
    async with Connection(router.port) as client:
        return (await client.get(path)).status


@in_loop
async def test_it_finds_ready_pods_with_all_labels_and_leaves_out_those_that_end(tmp_path: Path) -> None:
    async with discovered(tmp_path, ["prefill-0", "prefill-1", "decode-0"]) as found:
        assert await says(found.router, "/readiness") == 503
        found.pod("prefill-0")
        found.pod("prefill-1", ready=False)
        found.api.pod("decode-of-another-group", found.engines["decode-0"].host, role="decode", group="h")
        await found.settles("prefill-0")
        assert await says(found.router, "/readiness") == 503
        found.pod("decode-0")
        found.pod("prefill-1")
        await found.settles("prefill-0", "prefill-1", "decode-0")
        assert await says(found.router, "/readiness") == 200
        found.pod("prefill-0", ready=False)
        await found.settles("prefill-1", "decode-0")
        found.pod("prefill-0")
        found.pod("prefill-1", ending=True)
        await found.settles("prefill-0", "decode-0")
        async with Connection(found.router.port) as client:
            answer = await client.post("/v1/completions", {"model": "m", "prompt": "a", "max_tokens": 3})
        assert text(answer) == expected("a", 3)
        # What its Role has to allow: list and watch of pods in its namespace, and nothing else.
        assert {*found.api.asked} == {("list", found.api.path), ("watch", found.api.path)}


@in_loop
async def test_a_pod_that_vanishes_without_an_end_stays_and_fails_requests_until_health_checks(tmp_path: Path) -> None:
    async with discovered(tmp_path, ["prefill-0", "decode-0"], *QUICK) as found:
        found.pod("prefill-0")
        found.pod("decode-0")
        await found.settles("prefill-0", "decode-0")
        prefill = found.engines["prefill-0"]
        found.api.vanish("prefill-0")
        prefill.ready, before = False, prefill.health_checks

        async def unready() -> bool:
            return await says(found.router, "/readiness") == 503

        await eventually(unready)
        # Of a found pod three checks have to fail, whatever --health-failure-threshold says.
        assert prefill.health_checks - before >= 3
        await found.settles("prefill-0", "decode-0")  # it is known for ever


@in_loop
async def test_a_ready_pod_that_does_not_answer_holds_up_all_others_for_the_startup_timeout(tmp_path: Path) -> None:
    async with discovered(tmp_path, ["prefill-0", "decode-0"], "--worker-startup-timeout-secs=6") as found:
        found.engines["prefill-0"].ready = False
        found.pod("prefill-0")
        await until_in_loop(lambda: found.engines["prefill-0"].health_checks)
        found.pod("decode-0")
        with pytest.raises(AssertionError, match="not within"):
            await found.settles("decode-0", within_s=1.5)
        await found.settles("decode-0")
        found.engines["prefill-0"].ready = True
        with pytest.raises(AssertionError, match="not within"):  # it is not tried again before its pod changes
            await found.settles("prefill-0", "decode-0", within_s=2)
        found.pod("prefill-0")
        await found.settles("prefill-0", "decode-0")


@pytest.mark.parametrize("drains", [True, False])
@in_loop
async def test_an_update_of_all_servers_costs_no_request_when_each_drains(tmp_path: Path, drains: bool) -> None:
    """A new pod of its kind before an old one ends, under traffic; the router hears of the end a little before the server."""
    names = [f"{role}-{number}" for role in ("prefill", "decode") for number in range(4)]
    slow = {"prefill_s": 0.05, "token_s": 0.03, "lease_s": 1}
    async with discovered(tmp_path, names, **slow) as found:
        old, new = (["prefill-0", "prefill-1", "decode-0", "decode-1"], ["prefill-2", "prefill-3", "decode-2", "decode-3"])
        for name in old:
            found.pod(name)
        await found.settles(*old)
        statuses: Counter[int] = Counter()
        turns, asking = [0] * 8, True

        async def ask(number: int) -> None:
            async with Connection(found.router.port) as client:
                while asking:
                    body = {"model": "m", "prompt": "a", "max_tokens": 8, "stream": True}
                    try:
                        answer = await client.post("/v1/completions", body)
                    except OSError:
                        statuses[0] += 1
                        continue
                    statuses[answer.status if streamed_whole(answer) else 0] += 1
                    turns[number] += 1

        async def each_asks_anew() -> None:
            """Until no request is under way that was before."""
            before = list(turns)
            await until_in_loop(lambda: all(now > once for now, once in zip(turns, before, strict=True)))

        clients = [asyncio.create_task(ask(number)) for number in range(8)]
        now = set(old)
        for before, after in zip(old, new, strict=True):
            found.pod(after)
            now |= {after}
            await found.settles(*now)
            await each_asks_anew()
            found.pod(before, ending=True)
            now -= {before}
            if drains:
                await found.settles(*now)
                await each_asks_anew()  # what it had chosen a pod for has been there
                await found.engines[before].drain()
            else:
                found.engines[before].kill()
        await found.settles(*new)
        asking = False
        await asyncio.gather(*clients)
        assert (sum(statuses.values()) == statuses[200]) == drains, statuses
        await until_in_loop(lambda: not any(found.engines[name].blocks.held for name in new))


def streamed_whole(answer: Answer) -> bool:
    return answer.whole and answer.status == 200 and streamed(answer) == expected("a", 8)
