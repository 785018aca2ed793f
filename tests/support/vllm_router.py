"""Runs the pinned vllm-router in a process of its own, on loopback. VLLM_ROUTER is its path, which `make router` sets."""

import asyncio
import io
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from asking import Connection
from ports import free_ports
from waiting import PATIENCE_S

COMMAND = os.environ.get("VLLM_ROUTER")


@dataclass(eq=False)
class VllmRouter:
    """``servers`` are equal ones, instead of prefill and decode. It gets PATH and ``environment``, so no key of the caller's."""

    prefill: Sequence[str] = ()
    decode: Sequence[str] = ()
    arguments: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    servers: Sequence[str] = ()
    policy: str = "round_robin"

    async def __aenter__(self) -> Self:
        assert COMMAND
        self.port, self.metrics_port = free_ports(2)
        # Each URL is a word of its own: the binary that the image runs does not take --prefill=URL (src/main.rs).
        sides = (("--prefill", self.prefill), ("--decode", self.decode))
        servers = [word for flag, urls in sides for url in urls for word in (flag, url)]
        self._log = io.FileIO(os.memfd_create("vllm-router"), "w+")
        self.process = await asyncio.create_subprocess_exec(
            COMMAND,
            *(("--worker-urls", *self.servers) if self.servers else ("--vllm-pd-disaggregation",)),
            *(f"--port={self.port}", f"--prometheus-port={self.metrics_port}", "--worker-startup-check-interval=1"),
            *(f"--policy={self.policy}", *servers, *self.arguments),
            env={"PATH": os.environ["PATH"], **self.environment},
            stdout=self._log,
            stderr=self._log,
        )
        await self._started()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        self._log.close()

    async def _started(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            if self.process.returncode is not None or time.monotonic() > end:
                raise AssertionError(f"vllm-router has not started: {self.log()[-2000:]}")
            try:
                async with Connection(self.port) as client:
                    if (await client.get("/liveness")).status == 200:
                        return
            except OSError:
                await asyncio.sleep(0.05)

    async def refuses(self) -> bool:
        """Whether it takes no new connection."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return True
        writer.close()
        return False

    async def terminate(self) -> int:
        """Its exit code after SIGTERM."""
        self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), PATIENCE_S)

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    async def metrics(self) -> dict[str, float]:
        """Samples by name with labels."""
        async with Connection(self.metrics_port) as client:
            text = (await client.get("/metrics")).text
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in text.splitlines() if line[:1] != "#")
            if name
        }
