"""What a stand-in for a decode server knows of one prefill engine: the handshake, reads, heartbeats and notifications.

Read in vllm 0.30.0 (wheel), ``distributed/kv_transfer/kv_connector/v1/nixl/``. Where NIXL would write to the other's memory, the
messages here are lines of JSON on the side channel.
"""

import asyncio
import json
from contextlib import suppress
from typing import Any


class LoadFailed(Exception):
    """Decode could not get the blocks."""


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


class Remote:
    """Connects at once. ``waiting`` are the requests of that engine that this server has in its queue."""

    def __init__(self, params: dict[str, Any], compatibility: str, every_s: float | None) -> None:
        self.waiting: set[str] = set()
        self._compatibility = compatibility
        self._every_s = every_s
        self._turn = asyncio.Lock()
        self._where = (params["remote_host"], params["remote_port"])
        self._shaken = asyncio.create_task(self._shake())
        self._shaken.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._beating = asyncio.create_task(self._beat()) if every_s is not None else None

    @property
    def failed(self) -> bool:
        """A failed handshake is tried again by the next request."""
        return self._shaken.done() and (self._shaken.cancelled() or self._shaken.exception() is not None)

    async def ready(self) -> None:
        await asyncio.shield(self._shaken)

    async def read(self, request: str, blocks: list[int]) -> list[str]:
        """What the blocks hold; the notification follows the transfer, and the other then frees them."""
        await self.ready()
        content = await self._ask({"read": blocks})
        self.done(request)
        return content

    def done(self, request: str) -> None:
        self._writer.write(line({"done": request}))

    def close(self) -> None:
        for task in filter(None, [self._shaken, self._beating]):
            task.cancel()
        if hasattr(self, "_writer"):
            self._writer.transport.abort()

    async def _shake(self) -> None:
        """One for each engine (base_worker.py:1185); other hashes are refused before anything else (base_worker.py:932)."""
        try:
            self._reader, self._writer = await asyncio.open_connection(*self._where)
        except OSError as error:
            raise LoadFailed(f"no handshake: {error}") from error
        meta = await self._ask({"meta": True})
        if meta["hash"] != self._compatibility:
            self._writer.close()
            raise LoadFailed(f"compatibility: {meta['hash']} is not {self._compatibility}")

    async def _ask(self, message: dict[str, Any]) -> Any:
        async with self._turn:
            try:
                self._writer.write(line(message))
                answer = await self._reader.readline()
            except OSError as error:
                raise LoadFailed(str(error)) from error
        if not answer:
            raise LoadFailed("the other side has gone")
        return json.loads(answer)

    async def _beat(self) -> None:
        """One message for all that wait, each sixth of the lease, once the handshake is done (base_worker.py:2917,
        base_scheduler.py:87)."""
        assert self._every_s is not None
        with suppress(LoadFailed, OSError):
            await self.ready()
            while True:
                if self.waiting:
                    self._writer.write(line({"heartbeat": sorted(self.waiting)}))
                await asyncio.sleep(self._every_s)
