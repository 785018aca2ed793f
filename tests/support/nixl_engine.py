"""Imitates vLLM servers that hand KV caches over by NIXL, with what they do about blocks, leases and handshakes, on loopback.

A server is prefill or decode by what ``kv_transfer_params`` of a request say, as in vLLM. What decode answers comes from the
blocks that it read, so an answer from foreign blocks is a wrong answer. Times are seconds; vLLM's leases are whole seconds.

Read in vllm 0.30.0 (wheel), below ``distributed/kv_transfer/kv_connector/v1/nixl/`` unless said otherwise; file:line stand where
it is imitated. Left out: prefix caching, preemption, chunks, several ranks, push, transfers from decode back to prefill.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from asking import Exchange, Site
from kv_blocks import Blocks, blocks_of, kv, words
from nixl_remote import LoadFailed, Remote, line

_numbers = itertools.count(1)
_STEP_S = 0.01
"""How long an engine's step takes here. It ends leases at steps only (base_worker.py:2760)."""
_LONGEST_STEP_S = 0.1
"""What a step counts for at most: while the process of the test stands still, no lease ends, as no heartbeat comes."""


@dataclass
class _Pin:
    """Blocks that wait to be read."""

    blocks: list[int]
    ends: float


@dataclass(kw_only=True, eq=False)
class NixlEngine:
    """One server: an HTTP port and a side channel. ``refusals`` are statuses to be answered before a request is looked at."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 becomes a free one."""
    version: str = "0.30.0"
    model: str = "m"
    lease_s: float = 30
    """``kv_lease_duration`` of ``kv_connector_extra_config``, 30 when not given (base_scheduler.py:82)."""
    leases: bool = True
    """False: blocks that nobody reads are kept without end."""
    heartbeats: bool = True
    on_failure: Literal["fail", "recompute"] = "fail"
    """``kv_load_failure_policy``, fail when not given (config/kv_transfer.py:103)."""
    blocks_total: int = 256
    block_tokens: int = 4
    longest: int = 64
    sequences: int = 64
    prefill_s: float = 0
    token_s: float = 0
    refusals: list[int] = field(default_factory=list)
    key: str | None = None

    def __post_init__(self) -> None:
        self.engine_id = f"engine-{next(_numbers)}"
        self.blocks = Blocks(self.blocks_total)
        self.pins: dict[str, _Pin] = {}
        self.requests: list[Exchange] = []
        self.failed_transfers = self.expired = self.unrecognised = self.aborted = 0
        self.health_checks = 0
        self.streaming = 0
        """Streams whose first token was sent and that have not ended."""
        self.dead = self.draining = False
        self.ready = True
        self._site = Site(self._serve)
        self._slots = asyncio.Semaphore(self.sequences)
        self._remotes: dict[str, Remote] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stepping: asyncio.Task[None] | None = None
        self._now = 0.0
        self.lets_end = asyncio.Event()
        """No prompt is computed and no answer ends before it is set, as it is at first."""
        self.lets_end.set()
        self._peers: set[asyncio.StreamWriter] = set()
        self._side: asyncio.Server | None = None
        self.side_port = 0

    async def __aenter__(self) -> Self:
        self._side = await asyncio.start_server(self._side_channel, self.host, 0)
        self.side_port = self._side.sockets[0].getsockname()[1]
        self.port = await self._site.start(self.host, self.port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Ends as a killed process does: its blocks, leases and heartbeats are gone, and it notifies nobody."""
        self.dead = True
        self._site.abort()
        if self._side:
            self._side.close()
        for peer in self._peers:
            peer.transport.abort()
        for task in [*self._tasks, *filter(None, [self._stepping])]:
            task.cancel()
        for remote in self._remotes.values():
            remote.close()

    async def drain(self) -> None:
        """Ends as on SIGTERM with ``--shutdown-timeout``: aborts new requests, and goes when none runs and no block waits to be
        read (v1/engine/core.py:1390, 1490 and 1567; v1/core/sched/scheduler.py:2659). Without that flag it goes at once."""
        self.draining = True
        while self.blocks.held:
            await asyncio.sleep(_STEP_S)
        self.kill()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def compatibility(self) -> str:
        """Of the factors of metadata.py:177, those that tests vary: one version, one model name."""
        return f"{self.version} {self.model}"

    # -- HTTP ------------------------------------------------------------------------------------------------------------------

    async def _serve(self, exchange: Exchange) -> None:
        if exchange.path == "/health":
            self.health_checks += 1
            exchange.answer(200 if self.ready else 503, "")
        elif exchange.path == "/metrics":
            exchange.answer(200, self._metrics(), "text/plain")
        elif self.key and exchange.headers.get("authorization") != f"Bearer {self.key}":
            exchange.answer(401, {"error": "Unauthorized"})
        elif exchange.path == "/v1/models":
            exchange.answer(200, {"object": "list", "data": [{"id": self.model, "object": "model"}]})
        elif exchange.path in ("/v1/completions", "/v1/chat/completions"):
            self.requests.append(exchange)
            await self._complete(exchange)
        else:
            exchange.answer(404, {"detail": "Not Found"})

    async def _complete(self, exchange: Exchange) -> None:
        body = exchange.body
        if self.refusals:
            exchange.answer(self.refusals.pop(), {"error": {"message": "refused before the request was looked at"}})
            return
        if "stream_options" in body and not body.get("stream"):
            # Refused by the request's type, before any of the code that would tell prefill
            # (entrypoints/openai/completion/protocol.py, validate_stream_options).
            exchange.answer(400, {"error": {"message": "stream_options without stream", "type": "Bad Request", "code": 400}})
            return
        params = body.get("kv_transfer_params") or {}
        prompt = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
        if wrong := self._wrong(body, prompt):
            # A request that never reached the engine is handed to it as aborted, so that the connector lets go of what prefill
            # keeps (entrypoints/generate/base/serving.py:287, pull_scheduler.py:222).
            if params.get("do_remote_prefill"):
                self._later(self._let_go(params))
            exchange.answer(400, {"error": {"message": wrong, "type": "BadRequestError", "code": 400}})
            return
        count = body.get("max_completion_tokens") or body.get("max_tokens", 16)
        if self.draining:
            # The HTTP server goes on until the engine has ended, and an aborted request is an answer like others.
            await self._generate(exchange, [], finish_reason="abort")
        elif params.get("do_remote_decode"):
            await self._prefill(exchange, prompt)
        else:
            await self._decode(exchange, prompt, count, params if params.get("do_remote_prefill") else None)

    def _wrong(self, body: dict[str, Any], prompt: str) -> str | None:
        count = body.get("max_completion_tokens") or body.get("max_tokens", 16)
        if len(prompt.split()) + count > self.longest:
            return f"longer than {self.longest} tokens"
        if body.get("min_tokens", 0) > count:
            return "min_tokens is above max_tokens"
        return None

    def _say(self, exchange: Exchange, text: str, finish_reason: str | None = None, **more: Any) -> dict[str, Any]:
        chat = exchange.path == "/v1/chat/completions"
        said = {"delta" if exchange.body.get("stream") else "message": {"content": text}} if chat else {"text": text}
        return {"model": self.model, "choices": [{"index": 0, **said, "finish_reason": finish_reason}], **more}

    def _metrics(self) -> str:
        label = '{engine="0"}'
        counters = {"failed_transfers": self.failed_transfers, "kv_expired_reqs": self.expired}
        return "".join(f"vllm:nixl_num_{name}_total{label} {value}\n" for name, value in counters.items())

    # -- prefill ---------------------------------------------------------------------------------------------------------------

    async def _prefill(self, exchange: Exchange, prompt: str) -> None:
        count = blocks_of(len(prompt.split()), self.block_tokens)
        async with self._running(count) as blocks:
            await asyncio.sleep(self.prefill_s)
            await self.lets_end.wait()
            for block in blocks:
                self.blocks.content[block] = kv(prompt)
            # It has ended with length or stop, so the blocks stay until decode has read them or the lease ends. A request that is
            # aborted before that keeps none (pull_scheduler.py:237).
            request = f"cmpl-{exchange.headers['x-request-id']}"
            ends = self._now + self.lease_s if self.leases else float("inf")
            self.pins[request] = _Pin(list(blocks), ends)
            blocks.clear()
        if self._stepping is None:
            self._stepping = asyncio.get_running_loop().create_task(self._step())
        params = {  # pull_scheduler.py:280
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [self.pins[request].blocks],
            "remote_engine_id": self.engine_id,
            "remote_request_id": request,
            "remote_host": self.host,
            "remote_port": self.side_port,
            "tp_size": 1,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": len(prompt.split()),
            "remote_blocks_expiry_time": None,
            "transfer_mode": "pull",
        }
        exchange.answer(200, self._say(exchange, " first", "length", kv_transfer_params=params))

    async def _step(self) -> None:
        """Ends leases. The dict is in the order of entry, and the first lease that goes on ends the search, so one that is
        renewed delays the end of later ones (base_worker.py:2762)."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(_STEP_S)
            self._now += min(loop.time() - began, _LONGEST_STEP_S)
            while self.pins and self._now >= next(iter(self.pins.values())).ends:
                self._free(next(iter(self.pins)))
                self.expired += 1

    def end_leases(self, in_s: float = 0) -> None:
        """Has those that are under way end sooner: a test that waits for their end need not have them short before."""
        for pin in self.pins.values():
            pin.ends = self._now + in_s

    def _free(self, request: str) -> None:
        self.blocks.give(self.pins.pop(request).blocks)

    async def _side_channel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handshakes (base_scheduler.py:314) and, which NIXL carries elsewhere, reads and notifications (pull_worker.py:617)."""
        self._peers.add(writer)
        if self.dead:
            writer.transport.abort()
        with suppress(OSError, asyncio.CancelledError):
            while got := await reader.readline():
                message = json.loads(got)
                if "meta" in message:
                    writer.write(line({"engine_id": self.engine_id, "hash": self.compatibility}))
                elif "read" in message:
                    # The reader's side of RDMA: nobody asks whether the blocks are still those of the request.
                    writer.write(line([self.blocks.content[block] for block in message["read"]]))
                elif "heartbeat" in message:
                    new = self._now + self.lease_s * 2 / 3  # base_worker.py:422 and 2812
                    for request in message["heartbeat"]:
                        if request in self.pins:
                            self.pins[request].ends = max(self.pins[request].ends, new)
                elif message["done"] in self.pins:
                    self._free(message["done"])
                else:
                    self.unrecognised += 1  # "Potentially invalid KV blocks …", in the log only
        self._peers.discard(writer)
        writer.close()

    # -- decode ----------------------------------------------------------------------------------------------------------------

    async def _decode(self, exchange: Exchange, prompt: str, count: int, params: dict[str, Any] | None) -> None:
        mine = blocks_of(len(prompt.split()), self.block_tokens)
        remote = self._remote(params) if params else None
        waits = remote is not None
        if params and remote:
            remote.waiting.add(params["remote_request_id"])  # from its entry into the queue, base_scheduler.py:207
        try:
            async with self._running(blocks_of(len(prompt.split()) + count, self.block_tokens)) as blocks:
                content = [kv(prompt)] * mine
                if params and remote:
                    waits = False
                    try:
                        content = await self._load(remote, params, blocks[:mine])
                    except LoadFailed:
                        self.failed_transfers += 1
                        if self.on_failure == "fail":
                            self._fail(exchange)
                            return
                    finally:
                        remote.waiting.discard(params["remote_request_id"])
                await self._generate(exchange, words(content, count))
        except asyncio.CancelledError:
            self.aborted += 1
            if params and remote and waits and not self.dead:  # aborted in the queue, pull_scheduler.py:222
                remote.waiting.discard(params["remote_request_id"])
                self._later(self._let_go(params))
            raise

    async def _load(self, remote: Remote, params: dict[str, Any], blocks: list[int]) -> list[str]:
        """A read that has begun goes on when its request is aborted, and notifies at its end."""
        [theirs] = params["remote_block_ids"]
        content = await asyncio.shield(self._later(remote.read(params["remote_request_id"], theirs)))
        for block, what in zip(blocks, content, strict=True):
            self.blocks.content[block] = what
        return content

    async def _generate(self, exchange: Exchange, said: list[str], finish_reason: str = "length") -> None:
        if not exchange.body.get("stream"):
            await asyncio.sleep(self.token_s * len(said))
            if said:
                await self.lets_end.wait()
            exchange.answer(200, self._say(exchange, "".join(said), finish_reason))
            return
        exchange.begin()
        for number, word in enumerate(said):
            await asyncio.sleep(self.token_s)
            exchange.event(self._say(exchange, word))
            self.streaming += not number
        if said:
            await self.lets_end.wait()
            self.streaming -= 1
        exchange.event(self._say(exchange, "", finish_reason))
        exchange.event("[DONE]")
        exchange.end()

    def _fail(self, exchange: Exchange) -> None:
        """entrypoints/generate/base/serving.py:206; openai/chat_completion/serving.py:903 for a stream."""
        error = {"error": {"message": "Internal server error", "type": "InternalServerError", "code": 500}}
        if not exchange.body.get("stream"):
            exchange.answer(500, error)
            return
        exchange.begin()
        exchange.event(error)
        exchange.event("[DONE]")
        exchange.end()

    def _remote(self, params: dict[str, Any]) -> Remote:
        engine = params["remote_engine_id"]
        if engine not in self._remotes or self._remotes[engine].failed:
            self._remotes[engine] = Remote(params, self.compatibility, self.lease_s / 6 if self.heartbeats else None)
        return self._remotes[engine]

    async def _let_go(self, params: dict[str, Any]) -> None:
        """A notification without a read, which needs the handshake too."""
        remote = self._remote(params)
        with suppress(LoadFailed):
            await remote.ready()
            remote.done(params["remote_request_id"])

    @asynccontextmanager
    async def _running(self, count: int) -> AsyncIterator[list[int]]:
        """A place in the batch and blocks; what is left in the list goes back at the end."""
        async with self._slots:
            blocks = await self.blocks.take(count)
            try:
                yield blocks
            finally:
                self.blocks.give(blocks)

    def _later(self, work: Any) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
