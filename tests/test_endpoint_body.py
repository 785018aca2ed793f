"""What the proxy of an endpoint reads of a body is what servers read: the real Envoy, asked in bytes."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from asking import in_loop
from eks_inference.endpoints.proxy import Proxy, Upstream
from envoy import COMMAND, Envoy

if not COMMAND:
    pytest.skip("Envoy is not installed: make envoy", allow_module_level=True)

MIB = 1 << 20
LARGEST = 16 * MIB
NAMES = ("a", "b/c", "modèle")


@dataclass
class RawServer:
    """Takes whatever comes, and remembers the bodies."""

    bodies: list[bytes] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        body = b""
        if b"content-length: " in head:
            body = await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
        while b"chunked" in head and (size := int(await reader.readline(), 16)):
            body += (await reader.readexactly(size + 2))[:-2]
        self.bodies.append(body)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()


@dataclass
class There:
    envoy: Envoy
    servers: dict[str, RawServer]

    async def asks(self, body: bytes, parts: int = 1) -> int:
        """Returns the status. The body goes in parts, each of which the proxy reads by itself."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.envoy.port)
        head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json; charset=utf-8\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode())
        cuts = sorted(random.Random(body).sample(range(len(body) + 1), min(parts - 1, len(body))))
        with suppress(ConnectionError):  # refused before the end
            for begins, ends in zip([0, *cuts], [*cuts, len(body)], strict=True):
                writer.write(body[begins:ends])
                await writer.drain()
                await asyncio.sleep(0.003 * (parts > 1))
        status = int((await reader.readuntil(b"\r\n")).split()[1])
        writer.close()
        return status

    def got(self) -> list[str]:
        """The models whose servers have got requests, which are then forgotten."""
        found = [name for name, server in self.servers.items() for _ in server.bodies]
        for server in self.servers.values():
            server.bodies.clear()
        return found


@asynccontextmanager
async def endpoint() -> AsyncIterator[There]:
    servers = {name: RawServer() for name in NAMES}
    listening = [await asyncio.start_server(server.answer, "127.0.0.1", 0, limit=1 << 26) for server in servers.values()]
    upstreams = [
        Upstream(f"s{number}", "127.0.0.1", each.sockets[0].getsockname()[1], name)
        for number, (name, each) in enumerate(zip(NAMES, listening, strict=True))
    ]
    try:
        async with Envoy(upstreams, Proxy((), spread="prefixes", largest_request_bytes=LARGEST)) as envoy:
            yield There(envoy, servers)
    finally:
        for each in listening:
            each.close()


READ: dict[bytes, str] = {
    b'{"model":"a"}': "a",
    b'\xef\xbb\xbf \r\n\t{ "model" : "a" } \n': "a",
    b'{"model":"b\\/c"}': "b/c",
    b'{"model":"\\u0061"}': "a",
    '{"model":"modèle"}'.encode(): "modèle",
    b'{"model":"mod\\u00E8le"}': "modèle",
    b'{"model":"a","model":"b/c"}': "b/c",
    b'{"model":"b/c","x":1,"model":"a","y":[]}': "a",
    b'{"model":3,"model":"a"}': "a",
    b'{"x":{"model":"b/c"},"model":"a"}': "a",
    b'{"model":"a","x":{"model":"b/c"}}': "a",
    b'{"model":"a","x":[{"model":"b/c"}]}': "a",
    b'{"model":"a","x":"\\",\\"model\\":\\"b/c"}': "a",
    b'{"model":"a","x":"\\\\","y":"\\\\\\""}': "a",
    b'{"x":"}","model":"a"}': "a",
    b'{"x":"]","y":["}"],"z":[{"{":"["}],"model":"a"}': "a",
    b'{"x":"model","model":"a"}': "a",
    b'{"x":["model","b/c"],"model":"a"}': "a",
    b'{"x":"\\u0022,\\u0022model\\u0022:\\u0022b/c","model":"a"}': "a",
    b'{"":1,"model":"a"}': "a",
    b'{"kv_transfer_params":null,"ec_transfer_params": null ,"model":"a"}': "a",
    b'{"vllm_xargs":{"temperature_decay":0.5,"say":"kv \\"transfer\\""},"model":"a"}': "a",
    b'{"vllm_xargs":null,"model":"a","prompt":"kv_transfer_params \\u005f"}': "a",
    b'{"x":-1.5e+10,"y":true,"z":null,"model":"a"}': "a",
    b'{"x":NaN,"y":1e400,"z":"\\ud83d","model":"a"}': "a",
    b'{"x":{},"y":[],"z":[[],{}],"model":"a"}': "a",
    b'{"messages":[{"role":"user","content":"x"}],"model":"a"}': "a",
    b'{"messages":[{"x":' + b'[{"x":' * 300 + b"1" + b"}]" * 300 + b'}],"model":"a"}': "a",
    b'{"model":"a","messages":' + b"[" * 20000 + b"]" * 20000 + b"}": "a",
    b'{"x":' + b'{"model":' * 500 + b'"b/c"' + b"}" * 500 + b',"model":"a"}': "a",
    b'{"x":"' + b"\\\\" * 100_000 + b'","model":"a"}': "a",
    b"{" + b" " * 100_000 + b'"model"' + b"\n" * 100_000 + b":" + b"\t" * 100_000 + b'"a"}' + b"\r" * 100_000: "a",
    b"{" + b",".join(b'"%d":%d' % (number, number) for number in range(998)) + b',"model":"a"}': "a",
}
UNKNOWN = (
    b'{"model":"A"}',
    b'{"model":""}',
    b'{"model":"a "}',
    b'{"model":"\xff"}',
    b'{"model":"\xed\xa0\xbd"}',
    b'{"model":"a","model":"none"}',
    b'{"model":"\\\\u0061"}',
    b'{"model":"' + b"a" * 1000 + b'"}',
)
OF_SERVERS = b'{"do_remote_prefill":true,"remote_host":"192.0.2.1"}'
UNREADABLE = (
    b'{"model":"a","kv_transfer_params":' + OF_SERVERS + b"}",
    b'{"kv_transfer_params":null,"model":"a","kv_transfer_params":{}}',
    b'{"ec_transfer_params": ' + OF_SERVERS + b',"model":"a"}',
    b'{"model":"a","vllm_xargs":{"kv_transfer_params":"x"}}',
    b'{"model":"a","vllm_xargs":{},"vllm_xargs":{"a":1,"ec_transfer_params":["x"]}}',
    b'{"model":"a","vllm_xargs":{"kv\\u005ftransfer_params":"x"}}',
    b'{"model":"a","vllm_xargs":{"a":"' + b"x" * 5000 + b'","kv_transfer_params":"x"}}',
    b'{"model":"a\x00"}',
    b'{"model":"\\ud83d\\ude00"}',
    b'{"model":"a\\u0000"}',
    b'{"model":"a\\n"}',
    b"",
    b" ",
    b"null",
    b'"model"',
    b'[{"model":"a"}]',
    b"{}",
    b'{"x":1}',
    b'{"Model":"a"}',
    b'{"model ":"a"}',
    b'{"model":null}',
    b'{"model":["a"]}',
    b'{"model":{"a":1}}',
    b'{"model":"a","model":null}',
    b'{"model":"a"',
    b'{"model":"a}',
    b'{"model":"a"}}',
    b'{"model":"a"} {"model":"b/c"}',
    b'{"model":"a"}\x00',
    b'{"model":"a"]',
    b'{"model"}',
    b'{"model":}',
    b"{'model':'a'}",
    b'{"m\\u006fdel":"a"}',
    b'{"model":"b/c","\\u006dodel":"a"}',
    b'{"model":"a","' + b"x" * 300 + b'":1}',
    b'{"model":"' + b"a" * 5000 + b'"}',
    b"{" + b'"x":1,' * 1001 + b'"model":"a"}',
    *('{"model":"a"}'.encode(coding) for coding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le")),
    b"\xef\xbb\xbf\xef\xbb\xbf{}",
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
)


@pytest.mark.parametrize("parts", [1, 3])
@in_loop
async def test_the_model_is_what_a_server_reads(parts: int) -> None:
    async with endpoint() as there:
        for body, model in READ.items():
            assert (await there.asks(body, parts), there.got()) == (200, [model]), body[:100]
            with suppress(RecursionError):
                assert json.loads(body)["model"] == model
        for body, status in (*((one, 404) for one in UNKNOWN), *((one, 400) for one in UNREADABLE)):
            assert (await there.asks(body, parts), there.got()) == (status, []), body[:100]
        assert "script log" not in there.envoy.log()


def drawn(chance: random.Random) -> bytes:
    """A body with traps, some of which are broken."""
    blanks = ("", "", "", " ", "\n\t ")
    texts = ('"a"', '"b/c"', '"b\\/c"', '"\\u0061"', '"x\\""', '"\\\\"', '"}"', '"model"', '"{\\"model\\":\\"a\\"}"', '"modèle"')
    keys = ('"model"', '"model"', '"messages"', '"x"', '"prompt"', '""', '"\\u006dodel"', '"Model"')

    def value(depth: int) -> str:
        kind = chance.randrange(8 if depth < 4 else 5)
        if kind < 4:
            return chance.choice(texts)
        if kind == 4:
            return chance.choice(("1", "-0.5e3", "true", "null", "NaN", "[]", "{}"))
        blank = chance.choice(blanks)
        if kind == 5:
            return f"[{blank}{f'{blank},'.join(value(depth + 1) for _ in range(chance.randrange(4)))}{blank}]"
        return members(depth + 1)

    def members(depth: int) -> str:
        blank = chance.choice(blanks)
        pairs = (f"{blank}{chance.choice(keys)}{blank}:{blank}{value(depth)}{blank}" for _ in range(chance.randrange(5)))
        return f"{{{','.join(pairs)}}}"

    body = bytearray(members(0).encode())
    for _ in range(chance.choice((0, 0, 1, 2))):
        at = chance.randrange(len(body) + 1)
        body[at : at + chance.randrange(3)] = chance.choice(
            (b"", b'"', b"\\", b"{", b"}", b"]", b",", b":", b"\x00", b"\xff", b" ")
        )
    return bytes(body)


ESCAPED_KEY = re.compile(rb'\\[^"]*"\s*:')
"""Refused, whatever it says."""


def read(body: bytes) -> Any:
    """The model as FastAPI has it; None: it refuses the body."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found.get("model") if isinstance(found, dict) else None


@pytest.mark.parametrize("seed", [1, 2, 3])
@in_loop
async def test_no_server_reads_another_model_than_the_proxy(seed: int) -> None:
    chance = random.Random(seed)
    async with endpoint() as there:
        for _ in range(400):
            body = drawn(chance)
            status, served = await there.asks(body, chance.choice((1, 1, 2))), there.got()
            model = read(body)
            if served:
                assert (status, served) == (200, [model]) or model is None, body
            else:
                assert status in (400, 404), body
                assert model not in NAMES or ESCAPED_KEY.search(body), body
        assert "script log" not in there.envoy.log()


def filled(head: bytes, each: bytes, tail: bytes) -> bytes:
    return head + each * ((LARGEST - len(head) - len(tail)) // len(each)) + tail


BATCH = b"[%b]," % b",".join(b"%d" % (100_000 + number * 37) for number in range(500))
LARGE: dict[str, tuple[bytes, bytes, bytes]] = {
    "a text": (b'{"model":"a","prompt":"', b"x", b'"}'),
    "backslashes": (b'{"model":"a","prompt":"', b"\\\\", b'"}'),
    "numbers of one digit": (b'{"model":"a","prompt":[', b"1,", b"1]}"),
    "ids of six digits": (b'{"model":"a","prompt":[', b"101234,", b"1]}"),
    "empty texts": (b'{"model":"a","prompt":[', b'"",', b"1]}"),
    "empty objects": (b'{"model":"a","prompt":[', b"{},", b"1]}"),
    "depth": (b'{"model":"a","prompt":', b"[", b"]}"),
    "messages": (b'{"model":"a","messages":[', b'{"role":"assistant","content":""},', b"{}]}"),
    "embeddings": (b'{"model":"a","input":[', BATCH, b"[1]]}"),
    "models": (b'{"model":"a"', b',"model":"a"', b"}"),
    "blanks": (b'{"model":"a"', b" ", b"}"),
}


@pytest.mark.parametrize("blank", [b" ", b"\\t", b", "])
@in_loop
async def test_blanks_in_a_message_keep_no_thread_busy(blank: bytes) -> None:
    """A pattern that began with blanks took seconds for each of these."""
    body = b'{"model":"a","messages":[{"role":"user","content":"%b"}]}' % (blank * 1000)
    async with endpoint() as there:
        before = there.envoy.cpu_seconds()
        assert {await there.asks(body) for _ in range(8)} == {200}
        assert there.envoy.cpu_seconds() - before < 5


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("shape", LARGE)
@in_loop
async def test_whatever_is_in_a_large_body_it_takes_three_times_its_size(shape: str, count: int) -> None:
    body = filled(*LARGE[shape])
    assert 0.99 * LARGEST < len(body) <= LARGEST
    async with endpoint() as there:
        idle = there.envoy.peak_mib()
        statuses: Sequence[int] = await asyncio.gather(*(there.asks(body) for _ in range(count)))
        assert set(statuses) <= {200, 400}
        assert there.envoy.peak_mib() - idle < 3 * count * LARGEST / MIB
