"""Runs the pinned Envoy in a process of its own, on loopback. ENVOY is its path, which `make envoy` sets."""

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from asking import Connection
from eks_inference.endpoints.envoy import configuration
from eks_inference.endpoints.plan import KEYS_FILE, SERVER_KEY_FILE, clients_file, server_file
from eks_inference.endpoints.proxy import HEALTH_PATH, Proxy, Upstream
from ports import free_ports
from waiting import PATIENCE_S

COMMAND = os.environ.get("ENVOY")
DRAIN = Path(__file__).parents[2] / "components" / "eks_inference" / "endpoints" / "assets" / "drain.sh"
MINUTE_S = 3600
"""How long the minute of limits is here, so that none of them has room again because a machine stands still."""


class MountedSecret:
    """A folder as the kubelet mounts a Secret: files are links into a folder that one link chooses, which is replaced whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._version = 0

    def write(self, files: Mapping[str, str]) -> None:
        self._version += 1
        data = self.folder / f"..{self._version}"
        data.mkdir()
        for name, text in files.items():
            (data / name).write_text(text)
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        (self.folder / "..new").symlink_to(data.name)
        (self.folder / "..new").rename(self.folder / "..data")


@dataclass(eq=False)
class Envoy:
    """The proxy of an endpoint before ``upstreams``, configured as its pods are, except for addresses and ports."""

    upstreams: Sequence[Upstream]
    proxy: Proxy = field(default_factory=lambda: Proxy(()))
    keys: Mapping[str, str] = field(default_factory=dict)
    server_key: str = ""
    resolver: int | None = None
    """Port of the DNS server that knows the hosts; None: they are addresses."""

    async def __aenter__(self) -> Self:
        assert COMMAND
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        (folder / "keys").mkdir()
        self.secret = MountedSecret(folder / "keys")
        self.rotate(self.keys)
        # Envoy opens its stdout once more, with a place of its own: in one file, what stderr gets would overwrite its lines.
        self._out, self._error = (folder / "out").open("w"), (folder / "error").open("w")
        self.port, self.health_port, self.admin_port = free_ports(3)
        proxy = replace(
            self.proxy,
            upstreams=self.upstreams,
            address="127.0.0.1",
            api_port=self.port,
            health_port=self.health_port,
            admin_port=self.admin_port,
            keys_file=str(folder / "keys" / KEYS_FILE) if self.keys else None,
            server_key_file=str(folder / "keys" / SERVER_KEY_FILE) if self.server_key else None,
        )
        planned = configuration(proxy)
        if self.resolver:
            for cluster in planned["static_resources"]["clusters"]:
                if "cluster_type" in cluster:
                    asking = {"typed_dns_resolver_config": _asking(self.resolver), "dns_refresh_rate": "0.2s"}
                    cluster["cluster_type"]["typed_config"] |= asking
        for cluster in planned["static_resources"]["clusters"]:
            for check in cluster.get("health_checks", ()):
                # A picker that is away refuses connections; one that stands still with the process of the test is not away.
                check["timeout"] = f"{PATIENCE_S}s"
        text = json.dumps(planned).replace('"fill_interval": "60s"', f'"fill_interval": "{MINUTE_S}s"')
        (folder / "envoy.json").write_text(text)
        arguments = ("--concurrency", "2", "--disable-hot-restart", "--log-level", "warning")
        self.process = await asyncio.create_subprocess_exec(
            COMMAND, "-c", str(folder / "envoy.json"), *arguments, stdout=self._out, stderr=self._error
        )
        await self._started()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.kill()
        await self.process.wait()
        self._out.close()
        self._error.close()
        self._folder.cleanup()

    async def _started(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            if self.process.returncode is not None or time.monotonic() > end:
                raise AssertionError(f"Envoy has not started: {self.log()[-2000:]}")
            try:
                if await self.is_ready():
                    return
            except OSError:
                pass
            await asyncio.sleep(0.05)

    def rotate(self, keys: Mapping[str, str], server_key: str | None = None) -> None:
        """Other keys in the mounted Secret."""
        self.server_key = self.server_key if server_key is None else server_key
        files = {KEYS_FILE: clients_file(keys)} if keys else {}
        self.secret.write(files | ({SERVER_KEY_FILE: server_file(self.server_key)} if self.server_key else {}))

    async def is_ready(self) -> bool:
        async with Connection(self.health_port) as client:
            return (await client.get(HEALTH_PATH)).status == 200

    async def metrics(self) -> str:
        async with Connection(self.health_port) as client:
            return (await client.get("/stats/prometheus")).text

    async def values(self, part: str) -> list[float]:
        """The values of the samples whose lines have this part."""
        lines = (await self.metrics()).splitlines()
        return [float(line.rpartition(" ")[2]) for line in lines if part in line and not line.startswith("#")]

    async def addresses(self, cluster: str) -> set[str]:
        """Where it sends the requests of a cluster."""
        async with Connection(self.admin_port) as client:
            lines = (line.split("::") for line in (await client.get("/clusters")).text.splitlines())
        return {where for name, where, key, *_ in lines if (name, key) == (cluster, "cx_active")}

    async def go(self, leaves_s: int, within_s: int) -> float:
        """What Kubernetes does with a pod that goes: the script of preStop, then SIGTERM. Returns how long the script took."""
        began = time.monotonic()
        script = await asyncio.create_subprocess_exec(
            "/bin/bash", str(DRAIN), str(self.admin_port), str(leaves_s), str(within_s), stdout=self._error, stderr=self._error
        )
        assert await script.wait() == 0
        took = time.monotonic() - began
        self.process.terminate()
        await self.process.wait()
        return took

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()

    def cpu_seconds(self) -> float:
        """How long its threads have run. A machine that stands still adds nothing."""
        user, system = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self) -> int:
        """The most memory that it has had, as Linux counts it."""
        return int(Path(f"/proc/{self.process.pid}/status").read_text().partition("VmHWM:")[2].split()[0]) >> 10

    def log(self) -> str:
        return Path(self._error.name).read_text() + Path(self._out.name).read_text()

    def answered(self) -> list[dict[str, str]]:
        """The lines of the access log, but for one that is being written: Envoy writes its buffer in several pieces."""
        return [json.loads(line) for line in Path(self._out.name).read_text().split("\n")[:-1]]


def _asking(port: int) -> dict[str, Any]:
    return {
        "name": "envoy.network.dns_resolver.cares",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
            "resolvers": [{"socket_address": {"address": "127.0.0.1", "port_value": port}}],
            "dns_resolver_options": {"no_default_search_domain": True},
        },
    }
