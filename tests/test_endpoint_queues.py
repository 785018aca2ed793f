"""The model of queues against the real Envoy, which leads requests to three replicas whose clock is the test's.

Each replica computes its steps as the model does, so what differs is where Envoy leads requests. Nothing happens before what was
sent has arrived, so noise of the machine changes nothing.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import ceil, inf
from typing import get_args

import pytest

from asking import Answer, Connection, Exchange, in_loop
from eks_inference.endpoints.proxy import SESSION_HEADER, Proxy, Spread, Upstream
from eks_inference.speed.batching import Limits, Replica, Request
from eks_inference.speed.queue import Traffic, keeps, served
from eks_inference.stack.facts import ROUTINGS
from envoy import COMMAND, Envoy
from linear_steps import Linear
from ports import free_ports, own_addresses
from streaming_servers import ClusterDns, StreamingServer
from waiting import eventually

if not COMMAND:
    pytest.skip("Envoy is not installed: make envoy", allow_module_level=True)

STEPS, LIMITS = Linear(), Limits(max_num_seqs=8, kv_tokens=16_000, step_tokens=256, ahead=False)
PROMPT, ANSWER, REQUESTS, REPLICAS = 100, 50, 400, 3
MOST = 60
"""Requests that the endpoint lets to the servers at once."""
RATES = {"half": 10.0, "busy": 17.0, "overload": 30.0}
"""Requests a second. Three replicas take 20."""
DRAWS, OFF = 100, 0.15
"""Model and Envoy leave some to chance: so often the model is played, and so far beyond all its results Envoy's may lie. By
prefixes, the addresses of the pods decide how large a part of Envoy's ring each has, for all requests of a test."""
SPREADS = sorted(set(get_args(Spread)) - {"endpoint_picker"})
"""Those by which Envoy chooses itself."""


@dataclass(eq=False)
class Pod(StreamingServer):
    """One replica, whose answers stay open until the test has computed them."""

    replica: Replica = field(default_factory=lambda: Replica(STEPS, LIMITS, 0.0))
    computed: dict[int, asyncio.Event] = field(default_factory=dict[int, asyncio.Event])
    arrivals: "asyncio.Queue[Pod | None]" = field(default_factory=lambda: asyncio.Queue())

    async def _serve(self, asked: Exchange) -> None:
        event = self.computed[int(asked.body["user"])] = asyncio.Event()
        self.arrivals.put_nowait(self)
        await event.wait()
        asked.answer(200, {})


@dataclass
class Endpoint:
    envoy: Envoy
    pods: list[Pod]
    arrivals: "asyncio.Queue[Pod | None]"
    asking: dict[int, asyncio.Task[Answer]] = field(default_factory=dict[int, asyncio.Task[Answer]])

    async def leads(self, number: int, session: str) -> Pod | None:
        """Asks, and returns the pod that gets it; None: it was refused."""
        self.asking[number] = asyncio.create_task(self._ask(number, session))
        return await self.arrivals.get()

    async def _ask(self, number: int, session: str) -> Answer:
        async with Connection(self.envoy.port, 300, {SESSION_HEADER: session}) as client:
            answer = await client.post("/v1/completions", {"model": "m", "user": str(number)})
        if answer.status != 200:
            self.arrivals.put_nowait(None)
        return answer

    async def answered(self, number: int) -> int:
        """The status of the answer once it is whole."""
        for pod in self.pods:
            if number in pod.computed:
                pod.computed[number].set()
        return (await self.asking[number]).status


@asynccontextmanager
async def endpoint(spread: Spread, most: int | None = None) -> AsyncIterator[Endpoint]:
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(ClusterDns())
        (port,), addresses = free_ports(1), own_addresses()
        arrivals = asyncio.Queue[Pod | None]()
        made = [Pod(host=next(addresses), port=port, arrivals=arrivals) for _ in range(REPLICAS)]
        pods = [await stack.enter_async_context(pod) for pod in made]
        dns.ready["pods.test"] = list(pods)
        proxy = Proxy((), spread=spread, concurrent_requests=most)
        envoy = await stack.enter_async_context(Envoy([Upstream("m", "pods.test", port, "m")], proxy, resolver=dns.port))
        await eventually(lambda: envoy.addresses("m"), lambda found: len(found) == REPLICAS)
        yield Endpoint(envoy, pods, arrivals)


@dataclass
class Measured:
    came: int = 0
    lost: int = 0
    queued: int = 0
    whole: list[Request] = field(default_factory=list[Request])
    gaps: list[float] = field(default_factory=list[float])

    def first_token(self, percent: int) -> float:
        return _rank([request.first - request.at for request in self.whole], percent)

    def token(self, percent: int) -> float:
        return _rank(self.gaps, percent)


def _rank(numbers: list[float], percent: int) -> float:
    return sorted(numbers)[ceil(len(numbers) * percent / 100) - 1]


async def measured(there: Endpoint, coming: tuple[float, ...], until: float) -> Measured:
    found = Measured()
    for one in there.pods:
        one.replica = Replica(STEPS, LIMITS, 0.0)
    while True:
        pod = min(there.pods, key=lambda pod: pod.replica.event())
        event, arrival = pod.replica.event(), coming[found.came] if found.came < len(coming) else inf
        if min(event, arrival) > until or event == arrival == inf:
            break
        if event < arrival:
            for request in pod.replica.step():
                assert await there.answered(request.number) == 200
                found.whole.append(request)
            continue
        number = found.came = found.came + 1
        if chosen := await there.leads(number, str(number)):
            chosen.replica.arrive(Request(arrival, PROMPT, ANSWER, number))
        else:
            assert await there.answered(number) == 503
            found.lost += 1
    found.gaps = [gap for pod in there.pods for gap, count in pod.replica.gaps for _ in range(count)]
    for number, asked in there.asking.items():
        if not asked.done():
            assert await there.answered(number) == 200
            found.queued += 1
    return found


@pytest.mark.parametrize("spread", SPREADS)
@in_loop
async def test_percentiles_are_those_of_the_model_and_no_request_is_forgotten(spread: Spread) -> None:
    async with endpoint(spread, MOST) as there:
        for load, rate in RATES.items():
            chance = random.Random(rate)
            coming = tuple(accumulate(chance.expovariate(rate) for _ in range(REQUESTS)))
            until = coming[-1] if load == "overload" else inf
            real = await measured(there, coming, until)
            asked = Traffic(arrivals=coming, input_tokens=PROMPT, output_tokens=ANSWER, requests=REQUESTS)
            played = [
                served(
                    STEPS,
                    LIMITS,
                    replace(asked, seed=seed),
                    replicas=REPLICAS,
                    routing=ROUTINGS[spread],
                    most=MOST,
                    seconds=until,
                )
                for seed in range(DRAWS)
            ]
            assert real.came == REQUESTS == real.lost + real.queued + len(real.whole)
            assert all(one.came == REQUESTS == one.lost + one.queued + one.answered for one in played)
            assert (real.lost > 0) == (load == "overload")
            for what in ("lost", "queued"):
                assert abs(getattr(real, what) - getattr(played[0], what)) <= OFF * REQUESTS / 4, (load, what)
            for what in ("first_token", "token"):
                for percent in (50, 95):
                    said = sorted(getattr(one, what)(percent) for one in played)
                    assert said[0] * (1 - OFF) < getattr(real, what)(percent) < said[-1] * (1 + OFF), (load, what, percent)


@in_loop
async def test_a_conversation_goes_to_another_pod_when_the_model_says() -> None:
    async with endpoint("sessions") as there:
        first = await there.leads(0, "one")
        assert first
        own, real, said = 1, list[bool](), list[bool]()
        for number in range(1, 50):
            said.append(keeps(own, number, REPLICAS))
            real.append(await there.leads(number, "one") is first)
            own += real[-1]
        assert real == said
        assert {await there.answered(number) for number in range(50)} == {200}
