"""An endpoint that a picker helps: the real Envoy between clients, a picker and slow servers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from asking import Answer, Connection, in_loop
from eks_inference.endpoints import routing
from eks_inference.endpoints.proxy import PICKED_BYTES, PICKED_HEADER, Proxy, Upstream
from endpoint_picker import Picker
from envoy import COMMAND, Envoy
from ports import free_ports, own_addresses
from streaming_servers import ClusterDns, StreamingServer
from waiting import PATIENCE_S, eventually, until_in_loop

if not COMMAND:
    pytest.skip("Envoy is not installed: make envoy", allow_module_level=True)

CHAT = "/v1/chat/completions"
COUNTS_THEM = "envoy_http_ext_proc_failure_mode_allowed"
"""What the alert of a picker that is away reads."""
KEYS = {"team-a": "key-of-team-a-0001"}
ADDRESSES = own_addresses()
"""Pickers all have one port, and tests that run side by side must not share an address."""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picker is as slow as the machine of the test."""
    monkeypatch.setattr(routing, "_PICK_SECONDS", PATIENCE_S)


@dataclass
class There:
    envoy: Envoy
    picker: Picker
    pods: list[StreamingServer]
    dns: ClusterDns
    chosen: list[StreamingServer] = field(default_factory=list)
    """The pods that the picker names next, in the order of its preference."""
    refuses: str = ""
    """What the picker says of requests that it cannot read, if it can read none."""

    async def ask(self, path: str = CHAT, headers: dict[str, str] | None = None, **body: object) -> Answer:
        sent = {"authorization": f"Bearer {KEYS['team-a']}"} | (headers or {})
        async with Connection(self.envoy.port, headers=sent) as client:
            return await client.post(path, {"model": "m", "messages": [], **body})

    async def knows(self, pickers: int) -> None:
        """Waits until the proxy knows how many pickers answer."""
        healthy = 'envoy_cluster_membership_healthy{envoy_cluster_name="m/picker"}'
        await eventually(lambda: self.envoy.values(healthy), lambda found: found == [pickers])
        await asyncio.sleep(0.2)  # its threads learn it a moment later, and nothing tells when

    def asked(self) -> list[int]:
        return [len(pod.seen) for pod in self.pods]


@asynccontextmanager
async def endpoint(pods: int = 3, token_s: float = 0.01, at_once: int = 100) -> AsyncIterator[There]:
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(ClusterDns())
        (port,) = free_ports(1)
        made = [
            await stack.enter_async_context(StreamingServer(f"m{number}", token_s, host=next(ADDRESSES), port=port))
            for number in range(pods)
        ]
        there: There
        address = next(ADDRESSES)

        def pick(*_: object) -> str:
            if there.refuses:
                raise ValueError(there.refuses)
            return ",".join(f"{pod.host}:{pod.port}" for pod in there.chosen)

        picker = await stack.enter_async_context(Picker(pick, address))
        dns.ready = {"m.test": made, "picker.test": [StreamingServer(host=address)]}
        upstreams = [Upstream("m", "m.test", port, "m", picker="picker.test")]
        envoy = await stack.enter_async_context(
            Envoy(upstreams, Proxy((), spread="endpoint_picker", picks_at_once=at_once), KEYS, "", dns.port)
        )
        there = There(envoy, picker, made, dns, made[:1])
        await there.knows(1)
        yield there


@in_loop
async def test_the_pod_that_the_picker_names_answers() -> None:
    async with endpoint() as there:
        for pod in (*there.pods, *reversed(there.pods)):
            there.chosen = [pod]
            answer = await there.ask()
            assert answer.body["choices"][0]["text"] == pod.name
        assert there.asked() == [2, 2, 2]


@in_loop
async def test_each_server_of_a_name_has_a_picker_of_its_own() -> None:
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(ClusterDns())
        pods: list[StreamingServer] = []
        pickers: list[Picker] = []
        upstreams: list[Upstream] = []
        (port,) = free_ports(1)
        for name in ("blue", "green"):
            own = [await stack.enter_async_context(StreamingServer(name, 0, host=next(ADDRESSES), port=port)) for _ in range(2)]
            chosen, address = f"{own[1].host}:{port}", next(ADDRESSES)
            pickers.append(await stack.enter_async_context(Picker(lambda *_, chosen=chosen: chosen, address)))
            dns.ready |= {f"{name}.test": own, f"{name}-picker.test": [StreamingServer(host=address)]}
            upstreams.append(Upstream(name, f"{name}.test", port, "m", picker=f"{name}-picker.test", group=f"/{name}"))
            pods += own
        proxy = Proxy((), spread="endpoint_picker", models={"m": {"blue": 50, "green": 50}}, picks_at_once=100)
        envoy = await stack.enter_async_context(Envoy(upstreams, proxy, KEYS, "", dns.port))
        there = There(envoy, pickers[0], pods, dns)
        for name in ("blue", "green"):
            healthy = f'envoy_cluster_membership_healthy{{envoy_cluster_name="{name}/picker"}}'
            await eventually(lambda healthy=healthy: envoy.values(healthy), lambda found: found == [1])
        await asyncio.sleep(0.2)
        for _ in range(40):
            assert (await there.ask()).status == 200
        others, blue, more, green = there.asked()
        assert (others, more, blue + green) == (0, 0, 40)
        assert [len(picker.seen) for picker in pickers] == [blue, green]
        assert min(blue, green) > 4, "less than one time in a million by chance"


@in_loop
async def test_the_picker_reads_the_whole_body_and_no_key_and_the_pod_gets_what_the_client_sent() -> None:
    said = [{"role": "user", "content": 'a "long" prompt é ' * 20_000}]
    async with endpoint() as there:
        assert (await there.ask(messages=said)).status == 200
        ((headers, body),) = there.picker.seen
        assert json.loads(body)["messages"] == said
        assert (headers.keys(), headers[":path"]) == ({":path", "x-request-id"}, CHAT)
        (asked,) = there.pods[0].seen
        assert asked.body == {"model": "m", "messages": said}


@in_loop
async def test_no_client_picks_for_itself() -> None:
    async with endpoint() as there:
        other = there.pods[2]
        for headers in ({PICKED_HEADER: f"{other.host}:{other.port}"}, {PICKED_HEADER: "192.0.2.1:80"}):
            assert (await there.ask(headers=headers)).status == 200
        assert there.asked() == [2, 0, 0]
        await there.picker.die()
        await there.knows(0)
        for _ in range(20):
            assert (await there.ask(headers={PICKED_HEADER: f"{other.host}:{other.port}"})).status == 200
        assert other.answered < 20


@in_loop
async def test_a_pick_that_is_no_pod_of_the_model_is_not_followed() -> None:
    async with endpoint() as there, StreamingServer("stranger", host=next(ADDRESSES), port=there_port(there)) as stranger:
        for chosen in ([stranger], []):
            there.chosen = list(chosen)
            assert (await there.ask()).status == 200
        assert not stranger.seen


def there_port(there: There) -> int:
    return there.pods[0].port


@in_loop
async def test_what_a_picker_cannot_read_is_an_error_of_the_api_that_is_asked() -> None:
    said = 'inference error: BadRequest - invalid "messages"'
    async with endpoint() as there:
        there.refuses = said
        answer = await there.ask()
        assert (answer.status, answer.body["error"]["message"], answer.body["error"]["code"]) == (400, said, "invalid_request")
        answer = await there.ask("/v1/messages")
        assert (answer.status, answer.body) == (
            400,
            {"type": "error", "error": {"type": "invalid_request_error", "message": said}},
        )
        assert there.asked() == [0, 0, 0]


@in_loop
async def test_a_pod_that_is_gone_gives_the_request_to_the_next_pick() -> None:
    async with endpoint() as there:
        there.chosen = [there.pods[1], there.pods[2]]
        there.pods[1].die()
        answers = await asyncio.gather(*(there.ask() for _ in range(8)))
        assert {answer.status for answer in answers} == {200}
        assert not there.pods[1].answered


@in_loop
async def test_without_a_picker_the_pod_with_the_fewest_requests_answers() -> None:
    async with endpoint() as there:
        await there.picker.die()
        await there.knows(0)
        answers = await asyncio.gather(*(there.ask() for _ in range(12)))
        assert {answer.status for answer in answers} == {200}
        assert min(there.asked()) > 0
        lines = (await there.envoy.metrics()).splitlines()
        assert f"# TYPE {COUNTS_THEM} counter" in lines
        assert f'{COUNTS_THEM}{{envoy_http_conn_manager_prefix="endpoint"}} 12' in lines


@in_loop
async def test_a_picker_that_comes_back_is_asked_again() -> None:
    async with endpoint() as there:
        await there.picker.die()
        await there.knows(0)
        assert (await there.ask()).status == 200
        await there.picker.__aenter__()
        there.chosen = [there.pods[2]]

        async def answered() -> list[str]:
            return [(await there.ask()).body["choices"][0]["text"] for _ in range(4)]

        await eventually(answered, lambda names: names == ["m2"] * 4)


@in_loop
async def test_a_picker_that_dies_cuts_no_stream_and_keeps_none_open() -> None:
    async with endpoint(pods=1) as there:
        there.pods[0].lets_end.clear()
        streams = [asyncio.create_task(there.ask(stream=True)) for _ in range(10)]
        await until_in_loop(there.asked, lambda asked: asked[0] == 10)
        await until_in_loop(lambda: there.picker.open, lambda open: not open)  # it takes no part in answers
        await there.picker.die()
        there.pods[0].lets_end.set()
        answers = await asyncio.gather(*streams)
        assert all(answer.whole and answer.events[-1] == "[DONE]" for answer in answers)


@in_loop
async def test_a_picker_that_goes_costs_no_request() -> None:
    """It leaves DNS first, as a pod that ends does, and the next one comes after it."""
    async with endpoint() as there:
        statuses: list[int] = []

        async def ask_on() -> None:
            while True:
                statuses.append((await there.ask()).status)

        asking = [asyncio.create_task(ask_on()) for _ in range(4)]
        place = there.dns.ready.pop("picker.test")
        await there.knows(0)
        await there.picker.die()
        before = len(statuses)
        await until_in_loop(lambda: len(statuses), lambda now: now > before + 20)
        await there.picker.__aenter__()
        asked = len(there.picker.seen)
        there.dns.ready["picker.test"] = place
        await until_in_loop(lambda: len(there.picker.seen), lambda now: now > asked + 20)
        for each in asking:
            each.cancel()
        assert set(statuses) == {200}


@in_loop
async def test_a_picker_that_dies_while_it_is_asked_costs_an_error_that_clients_try_again() -> None:
    async with endpoint() as there:
        there.picker.lets_answer.clear()
        asked = asyncio.create_task(there.ask())
        await until_in_loop(lambda: len(there.picker.seen))
        await there.picker.die()
        assert (await asked).status == 503
        assert there.asked() == [0, 0, 0]


@in_loop
async def test_a_picker_that_says_nothing_is_not_waited_for_longer_than_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the proxy's own patience
    async with endpoint() as there:
        there.picker.lets_answer.clear()
        assert (await there.ask()).status == 503


@in_loop
async def test_a_picker_reads_no_more_than_it_has_memory_for() -> None:
    """Nobody waits for it then: the pod with the fewest requests answers."""
    async with endpoint(at_once=2) as there:
        there.picker.lets_answer.clear()
        asks = [*(there.ask() for _ in range(8)), *(there.ask(prompt="x" * PICKED_BYTES) for _ in range(3))]
        asked = [asyncio.create_task(ask) for ask in asks]
        await until_in_loop(lambda: sum(task.done() for task in asked) + len(there.picker.seen), lambda now: now == len(asked))
        there.picker.lets_answer.set()
        answers = await asyncio.gather(*asked)
        # One may get 503 where a thread has no connection yet.
        assert [answer.status for answer in answers].count(200) >= 10
        assert 0 < len(there.picker.seen) <= 2
        assert not [body for _, body in there.picker.seen if len(body) > PICKED_BYTES]
