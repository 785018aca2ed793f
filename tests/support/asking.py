"""HTTP/1.1 on loopback in one event loop, for tests with more exchanges than threads are good for. Standard library only.

A ``Site`` serves, a ``Connection`` asks. Both keep connections open between requests, and both send and read whole bodies and
chunked ones.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Self
from urllib.parse import parse_qsl

from waiting import PATIENCE_S

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error", 503: "Service Unavailable"}


@dataclass(eq=False)
class Exchange:
    """One request and the way to answer it. Header names are in lower case; ``body`` is the JSON body, None without one."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    _transport: asyncio.Transport

    def answer(self, status: int, body: Any, kind: str = "application/json") -> None:
        """Answers with text, or with anything else as JSON."""
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self._head(status, kind, f"content-length: {len(data)}", data)

    def begin(self, kind: str = "text/event-stream") -> None:
        self._head(200, kind, "transfer-encoding: chunked", b"")

    def event(self, data: Any) -> None:
        """One server-sent event."""
        self.chunk(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n")

    def chunk(self, said: str) -> None:
        text = said.encode()
        self._transport.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")

    def end(self) -> None:
        self._transport.write(b"0\r\n\r\n")

    def _head(self, status: int, kind: str, length: str, data: bytes) -> None:
        head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Other')}\r\ncontent-type: {kind}\r\n{length}\r\n\r\n"
        self._transport.write(head.encode() + data)


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs an asynchronous test in a loop of its own, for at most ten minutes: a long run beside others takes several."""

    @wraps(test)
    def run(**given: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(600):
                await test(**given)

        asyncio.run(limited())

    return run


Serve = Callable[[Exchange], Awaitable[None]]


class Site:
    """Answers every request by ``serve``, which is cancelled when its client goes."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.open: set[_Peer] = set()
        self.aborted = False
        self._server: asyncio.Server | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """The port, chosen when it is 0."""
        self._server = await asyncio.get_running_loop().create_server(lambda: _Peer(self), host, port, backlog=512)
        return self._server.sockets[0].getsockname()[1]

    def abort(self) -> None:
        """Ends at once, as a killed process does: no more connections, none of the existing ones answered."""
        self.aborted = True
        if self._server:
            self._server.close()
        for peer in list(self.open):
            peer.abort()


class _Peer(asyncio.Protocol):
    def __init__(self, site: Site) -> None:
        self._site = site
        self._buffer = b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._site.open.add(self)
        if self._site.aborted:  # after the loop took the connection, and before it said so
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._site.open.discard(self)
        if self._task:
            self._task.cancel()

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def _next(self) -> None:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if self._task or not found:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        received = _chunked(rest) if headers.get("transfer-encoding") == "chunked" else _counted(rest, headers)
        if received is None:
            return
        sent, self._buffer = received
        body = json.loads(sent) if sent and "json" in headers.get("content-type", "json") else None
        path, _, query = path.partition("?")
        exchange = Exchange(method, path, dict(parse_qsl(query)), headers, body, self._transport)
        self._task = asyncio.get_running_loop().create_task(self._run(exchange))

    async def _run(self, exchange: Exchange) -> None:
        try:
            await self._site.serve(exchange)
        finally:
            self._task = None
        self._next()


def _counted(rest: bytes, headers: Mapping[str, str]) -> tuple[bytes, bytes] | None:
    """The body and what follows it; None while the body is not whole."""
    length = int(headers.get("content-length", 0))
    return None if len(rest) < length else (rest[:length], rest[length:])


def _chunked(rest: bytes) -> tuple[bytes, bytes] | None:
    """As ``_counted``, of a body in chunks without trailers, which no further request follows at once."""
    body = b""
    if not rest.endswith(b"0\r\n\r\n"):
        return None  # large bodies would be parsed from their beginning again and again
    while True:
        size, found, rest = rest.partition(b"\r\n")
        length = int(size, 16) if found else 0
        if not found or len(rest) < length + 2:
            return None
        body, rest = body + rest[:length], rest[length + 2 :]
        if not length:
            return body, rest


@dataclass(frozen=True)
class Answer:
    """``whole`` is whether the body ended as its head announced; ``text`` is what came of it."""

    status: int
    headers: dict[str, str]
    text: str
    whole: bool

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[str]:
        return [event.removeprefix("data: ") for event in self.text.split("\n\n") if event]


@dataclass(eq=False)
class Connection:
    """A client's kept connection, opened at the first request and again after one that was closed."""

    port: int
    timeout_s: float = PATIENCE_S
    headers: dict[str, str] = field(default_factory=dict)
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Closes the connection without a word, whatever is under way."""
        if self._streams:
            self._streams[1].transport.abort()
        self._streams = None

    def leave_after(self, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self.leave)

    async def get(self, path: str) -> Answer:
        return await self.ask("GET", path, b"")

    async def post(self, path: str, body: Any) -> Answer:
        return await self.ask("POST", path, json.dumps(body).encode())

    async def ask(self, method: str, path: str, data: bytes) -> Answer:
        """Raises OSError when there is nobody, or nothing came before the end of the connection or of time."""
        async with asyncio.timeout(self.timeout_s):
            reader, writer = self._streams or await asyncio.open_connection("127.0.0.1", self.port)
            self._streams = (reader, writer)
            headers = {"content-type": "application/json"} | self.headers
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{lines}"
            writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
            try:
                first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
            except asyncio.IncompleteReadError as error:
                self.leave()
                raise ConnectionResetError("closed without an answer") from error
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
            text, whole = await _body(reader, headers)
        if not whole or headers.get("connection") == "close":
            self.leave()
        return Answer(int(first.split()[1]), headers, text.decode(), whole)


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    try:
        if "content-length" in headers:
            return await reader.readexactly(int(headers["content-length"])), True
        while size := int(await reader.readuntil(b"\r\n"), 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
        await reader.readuntil(b"\r\n")
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        parts.append(getattr(error, "partial", b""))
        return b"".join(parts), False
    return b"".join(parts), True
