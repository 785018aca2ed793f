"""Model servers that answer slowly, and the DNS that knows them, on loopback. Stand-ins: of vLLM, and of CoreDNS."""

import asyncio
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Self

from asking import Connection, Exchange, Site


@dataclass(eq=False)
class StreamingServer:
    """One pod of a server. It says its name in each token, and remembers what it was asked."""

    name: str = "pod"
    token_s: float = 0.02
    first_s: float = 0.0
    host: str = "127.0.0.1"
    port: int = 0
    seen: list[Exchange] = field(default_factory=list)
    answered: int = 0
    longest_s: float = 0.0
    """The longest time that it has taken for a token of a stream."""
    lets_end: asyncio.Event = field(default_factory=asyncio.Event)
    """No answer ends before it is set, as it is at first."""

    def __post_init__(self) -> None:
        self.lets_end.set()

    async def __aenter__(self) -> Self:
        await self.start(self.port)
        return self

    async def start(self, port: int = 0) -> None:
        self._site = Site(self._serve)
        self.port = await self._site.start(self.host, port)

    async def __aexit__(self, *error: object) -> None:
        self._site.abort()

    @property
    def connections(self) -> int:
        return len(self._site.open)

    def die(self) -> None:
        self._site.abort()

    async def _serve(self, asked: Exchange) -> None:
        self.seen.append(asked)
        body: dict[str, Any] = asked.body or {}
        count = int(body.get("max_tokens", 4))
        await asyncio.sleep(self.first_s)
        if not body.get("stream"):
            await asyncio.sleep(self.token_s * count)
            await self.lets_end.wait()
            asked.answer(200, {"model": body.get("model"), "choices": [{"text": self.name}]})
        else:
            asked.begin()
            for number in range(count):
                began = time.monotonic()
                try:
                    await asyncio.sleep(self.token_s)
                finally:  # also when the proxy has lost patience
                    self.longest_s = max(self.longest_s, time.monotonic() - began)
                asked.event({"choices": [{"text": f"{self.name} {number}"}]})
            await self.lets_end.wait()
            asked.event("[DONE]")
            asked.end()
        self.answered += 1


@dataclass(eq=False)
class CachingServer(StreamingServer):
    """One whose engine keeps what it has read, in blocks of text, as vLLM's automatic prefix caching does by tokens."""

    read: int = 0
    known: int = 0
    """Characters of prompts: all, and those that were in the cache."""
    _cache: set[str] = field(default_factory=set)

    async def _serve(self, asked: Exchange) -> None:
        text = "".join(message["content"] for message in (asked.body or {}).get("messages", ()))
        beginnings = [text[:end] for end in range(_BLOCK, len(text) + 1, _BLOCK)]
        self.read += len(text)
        self.known += _BLOCK * len(list(takewhile(self._cache.__contains__, beginnings)))
        self._cache.update(beginnings)
        await super()._serve(asked)


_BLOCK = 64


def known_part(pods: Sequence[CachingServer]) -> float:
    """How much of all that the pods read was in the cache of the pod that read it."""
    return sum(pod.known for pod in pods) / sum(pod.read for pod in pods)


def conversations(count: int, turns: int) -> list[list[list[dict[str, str]]]]:
    """The messages of each turn of some conversations that share a system prompt and differ in what their users say."""
    system = {"role": "system", "content": "You know all about the things we sell. " * 20}
    found: list[list[list[dict[str, str]]]] = []
    for number in range(count):
        said, asked = [system], list[list[dict[str, str]]]()
        for turn in range(turns):
            question = f"In talk {number}, question {turn}: " + '{how} is "it"? ' * 20
            said = [*said, {"role": "user", "content": question}]
            asked.append(said)
            said = [*said, {"role": "assistant", "content": f"Answer {turn} of talk {number}. " * 20}]
        found.append(asked)
    return found


async def talk(port: int, count: int = 16, turns: int = 6) -> None:
    """Holds conversations side by side, each of which waits for an answer before its next turn."""

    async def one(asked: list[list[dict[str, str]]]) -> None:
        for messages in asked:
            async with Connection(port) as client:
                assert (await client.post("/v1/chat/completions", {"model": "m", "messages": messages})).status == 200

    await asyncio.gather(*(one(asked) for asked in conversations(count, turns)))


class ClusterDns(asyncio.DatagramProtocol):
    """Answers with the addresses of the pods of a name that are ready, as CoreDNS does for a Service without an address."""

    def __init__(self) -> None:
        self.ready: dict[str, list[StreamingServer]] = {}

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, ("127.0.0.1", 0))
        self.port: int = self._transport.get_extra_info("sockname")[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._transport.close()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        labels, at = list[str](), 12
        while length := data[at]:
            labels.append(data[at + 1 : at + 1 + length].decode())
            at += 1 + length
        question = data[12 : at + 5]
        (wanted,) = struct.unpack("!H", data[at + 1 : at + 3])
        pods = self.ready.get(".".join(labels), ()) if wanted == _A else ()
        # Each answer: the name of the question, type A, class IN, one second to live, an address.
        answers = b"".join(struct.pack("!HHHIH", 0xC00C, _A, 1, 1, 4) + socket.inet_aton(pod.host) for pod in pods)
        head = data[:2] + struct.pack("!HHHHH", 0x8180, 1, len(pods), 0, 0)
        self._transport.sendto(head + question + answers, addr)


_A = 1
