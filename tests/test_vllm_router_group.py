"""The real vllm-router with the flags that the library plans, between stand-ins for the servers of two revisions."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from asking import Connection, in_loop
from disaggregated_group import text
from eks_inference.serving.pod_parts import REVISION_LABEL
from eks_inference.serving.prefill_decode.plan import Group, labels
from eks_inference.serving.prefill_decode.router import arguments
from eks_inference.serving.prefill_decode.spec import ROLES, Role
from kv_blocks import expected
from nixl_engine import NixlEngine
from pods_api import PodsApi
from ports import free_ports, own_addresses
from vectors.nixl import planned
from vllm_router import COMMAND, VllmRouter
from waiting import eventually, until_in_loop

if not COMMAND:
    pytest.skip("vllm-router is not installed: make router", allow_module_level=True)

ADDRESSES = own_addresses()
GROUP = "llama"
"""As vectors call it."""
OF_THE_BENCH = ("--host", "--port", "--prometheus-host", "--prometheus-port", "--vllm-pd-disaggregation")
"""Set by the bench: addresses on loopback, free ports."""


def flags(words: Sequence[str], port: int) -> list[str]:
    """The planned flags without those that the bench sets, for servers that listen at ``port``."""
    kept: list[str] = []
    skipping = False
    for word in words:
        skipping = word in OF_THE_BENCH if word.startswith("--") else skipping
        if not skipping:
            kept.append(word)
    kept[kept.index("--service-discovery-port") + 1] = str(port)
    return kept


def pods_of(api: PodsApi, group: Group, role: Role, engine: NixlEngine, *, ending: bool = False) -> None:
    """A ready pod with the labels of a group's pods of one role."""
    name = f"{role}-{group.revision}-{engine.host}"
    api.pod(name, engine.host, ready=True, ending=ending, **labels(GROUP, role), **{REVISION_LABEL: group.revision})


async def ready(router: VllmRouter) -> bool:
    async with Connection(router.port) as client:
        return (await client.get("/readiness")).status == 200


async def ask(router: VllmRouter, prompt: str) -> bool:
    """Whether the answer is right."""
    async with Connection(router.port) as client:
        answer = await client.post("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 3})
    return answer.status == 200 and text(answer) == expected(prompt, 3)


def test_two_images_are_two_revisions_and_the_flags_differ_in_that_alone() -> None:
    old, new = planned()[0], planned(image="public.ecr.aws/x/vllm:2@sha256:" + "1" * 64)[0]
    assert old.revision != new.revision
    changed = [pair for pair in zip(arguments(old), arguments(new), strict=True) if pair[0] != pair[1]]
    assert Counter(changed) == {(f"{REVISION_LABEL}={old.revision}", f"{REVISION_LABEL}={new.revision}"): 2}


@in_loop
async def test_routers_of_two_revisions_pair_only_their_own(tmp_path: Path) -> None:
    """As in a rollout: the second group starts, its router answers, the first group ends. The two cannot read each other."""
    old, new = planned()[0], planned(image="public.ecr.aws/x/vllm:2@sha256:" + "1" * 64)[0]
    namespace = GROUP
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(PodsApi(namespace))
        environment = {"KUBECONFIG": api.kubeconfig(tmp_path / "kubeconfig")}
        engines: dict[tuple[str, Role], NixlEngine] = {}
        (port,) = free_ports(1)
        for group, version in ((old, "0.30.0"), (new, "0.31.0")):
            for role in ROLES:
                one = NixlEngine(host=next(ADDRESSES), port=port, version=version, lease_s=1)
                engines[group.revision, role] = await stack.enter_async_context(one)
        routers = {
            group.revision: await stack.enter_async_context(VllmRouter([], [], flags(arguments(group), port), environment))
            for group in (old, new)
        }

        async def workers(group: Group) -> set[str]:
            async with Connection(routers[group.revision].port) as client:
                return {worker["url"] for worker in (await client.get("/workers")).body["workers"]}

        def own(group: Group) -> set[str]:
            return {engine.url for (revision, _), engine in engines.items() if revision == group.revision}

        for role in ROLES:
            pods_of(api, old, role, engines[old.revision, role])
        await eventually(lambda: ready(routers[old.revision]))
        assert not await ready(routers[new.revision]), "it has no servers yet"
        answered: Counter[bool] = Counter()
        service = routers[old.revision]
        turns, asking = [0] * 4, True

        async def client(number: int) -> None:
            while asking:
                answered[await ask(service, f"c{number} t{turns[number]}")] += 1
                turns[number] += 1

        async def each_asks(times: int) -> None:
            """Until no request is under way that was before, of any client."""
            wanted = [turn + times for turn in turns]
            await until_in_loop(lambda: all(now >= once for now, once in zip(turns, wanted, strict=True)))

        clients = [asyncio.create_task(client(number)) for number in range(4)]
        for role in ROLES:
            pods_of(api, new, role, engines[new.revision, role])
        await eventually(lambda: ready(routers[new.revision]))
        assert (await workers(old), await workers(new)) == (own(old), own(new))
        await each_asks(6)
        service = routers[new.revision]  # the new pods are ready, the old router's end
        await each_asks(6)
        for role in ROLES:
            pods_of(api, old, role, engines[old.revision, role], ending=True)
            await engines[old.revision, role].drain()
        await each_asks(6)
        asking = False
        await asyncio.gather(*clients)
        assert answered[False] == 0, answered
        assert await workers(old) == set()
        assert not any(engine.failed_transfers for engine in engines.values())
        assert all(len(engine.requests) > 20 for engine in engines.values())


@in_loop
async def test_a_router_that_selects_by_role_alone_mixes_revisions(tmp_path: Path) -> None:
    """Why the revision is among the labels that routers select by."""
    old, new = planned()[0], planned(image="public.ecr.aws/x/vllm:2@sha256:" + "1" * 64)[0]
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(PodsApi(GROUP))
        environment = {"KUBECONFIG": api.kubeconfig(tmp_path / "kubeconfig")}
        (port,) = free_ports(1)
        first = await stack.enter_async_context(NixlEngine(host=next(ADDRESSES), port=port, lease_s=1))
        second = await stack.enter_async_context(NixlEngine(host=next(ADDRESSES), port=port, version="0.31.0", lease_s=1))
        careless = [word for word in flags(arguments(old), first.port) if not word.startswith(REVISION_LABEL)]
        router = await stack.enter_async_context(VllmRouter([], [], careless, environment))
        pods_of(api, old, "prefill", first)
        pods_of(api, new, "decode", second)
        await eventually(lambda: ready(router))
        assert not await ask(router, "a b c")
        assert second.failed_transfers == 1
