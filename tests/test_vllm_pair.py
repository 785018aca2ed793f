"""Two real vLLM servers that hand KV caches over by NIXL, with the arguments that the graph of gpu-nixl gives them.

By hand: VLLM names the command `vllm` of an environment with vLLM 0.30 for CPUs, NIXL and transformers (6 GB). The model is tiny
and random, and the transport is UCX on loopback.
"""

import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import recorded
from graphs import of_kind
from ports import free_ports
from vllm_model import MODEL

VLLM = os.environ.get("VLLM", "")
pytestmark = pytest.mark.skipif(not VLLM, reason="VLLM names no command `vllm` (6 GB; by hand)")

LEASE_S = 20
DIFFERS = {"--host": "127.0.0.1", "--tensor-parallel-size": "1", "--max-model-len": "2048", "--max-num-batched-tokens": "2048"}
_START_S = 300
_KEYS = {"do_remote_prefill", "do_remote_decode", "remote_block_ids", "remote_engine_id", "remote_request_id", "remote_host"}
_KEYS |= {"remote_port", "tp_size", "dcp_size", "pp_size", "remote_num_tokens", "remote_blocks_expiry_time", "transfer_mode"}
"""What prefill gives to decode; the stand-in of ``nixl_engine.py`` gives the same."""


@dataclass
class Server:
    port: int
    process: "subprocess.Popen[bytes]"

    def ask(self, prompt: str, tokens: int, transfer: Any = None) -> tuple[int, Any]:
        body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 1, "ignore_eos": True}
        body |= {"kv_transfer_params": transfer} if transfer else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, None

    def prefill(self, prompt: str) -> dict[str, Any]:
        status, answer = self.ask(prompt, 1, {"do_remote_decode": True, "do_remote_prefill": False})
        assert status == 200
        return answer["kv_transfer_params"]

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(rf"vllm:{name}[{{ ]", line))


def tokens(answer: Any) -> list[float]:
    return [round(one, 3) for one in answer["choices"][0]["logprobs"]["token_logprobs"]]


def arguments(role: str, model: Path, port: int) -> list[str]:
    """The arguments of a server in the graph, with what differs here."""
    (found,) = [one for one in of_kind(recorded("gpu-nixl"), "Deployment") if f"-{role}-" in one.inputs["metadata"]["name"]]
    (container,) = [one for one in found.inputs["spec"]["template"]["spec"]["containers"] if one["name"] == "vllm"]
    given, shown = list(container["args"])[1:], [str(model), "--served-model-name", "tiny", "--dtype", "float32"]
    changed = {"--port": str(port), **DIFFERS}
    for position, one in enumerate(given):
        flag, _, value = one.partition("=")
        if flag == "--kv-transfer-config":
            wanted = json.loads(value)
            assert wanted["kv_connector_extra_config"]["backends"] == ["LIBFABRIC"]
            wanted |= {"kv_buffer_device": "cpu"}
            wanted["kv_connector_extra_config"] |= {"backends": ["UCX"], "kv_lease_duration": LEASE_S}
            shown.append(f"{flag}={json.dumps(wanted)}")
        elif value:
            shown.append(f"{flag}={DIFFERS.get(flag, value)}")
        else:
            before = given[position - 1]
            shown.append(changed.get(before, str(one)))
    return shown


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    folder = tmp_path_factory.mktemp("pair")
    subprocess.run([Path(VLLM).with_name("python"), "-c", MODEL, folder / "tiny"], check=True, capture_output=True, timeout=300)
    servers = []
    ports = free_ports(4)
    try:
        for role, port, side in (("prefill", *ports[:2]), ("decode", *ports[2:])):
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
                "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side),
                "VLLM_NO_USAGE_STATS": "1",
                "HF_HUB_OFFLINE": "1",
                "HOME": str(folder),
                "UCX_TLS": "tcp,self,sm",
            }
            command = [VLLM, "serve", *arguments(role, folder / "tiny", port)]
            with (folder / f"{role}.log").open("wb") as log:
                process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            servers.append(Server(port, process))
        for server in servers:
            _wait(server)
        yield servers[0], servers[1]
    finally:
        for server in servers:
            _end(server)


def _wait(server: Server) -> None:
    ends = time.monotonic() + _START_S
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health", timeout=5).close()
            return
        except OSError:
            assert server.process.poll() is None, "the server ended"
            assert time.monotonic() < ends, "the server did not start"
            time.sleep(1)


def _end(server: Server) -> None:
    try:
        os.killpg(server.process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    server.process.wait()


@pytest.mark.thorough
def test_decode_answers_from_what_prefill_computed(pair: tuple[Server, Server]):
    prefill, decode = pair
    prompt = "a brown dog jumps " * 60
    _, alone = prefill.ask(prompt, 12)
    transfer = prefill.prefill(prompt)
    assert transfer.keys() == _KEYS
    status, answer = decode.ask(prompt, 12, transfer)
    assert status == 200
    assert tokens(answer) == tokens(alone)
    assert decode.metric("external_prefix_cache_hits_total") == answer["usage"]["prompt_tokens"]
    assert decode.metric("request_prefill_kv_computed_tokens_sum") == 0
    assert decode.metric("nixl_bytes_transferred_sum") > 0


@pytest.mark.thorough
def test_what_nobody_reads_is_kept_until_the_lease_ends_and_then_counted(pair: tuple[Server, Server]):
    prefill, _ = pair
    started = time.monotonic()
    prefill.prefill("nobody reads this " * 60)
    assert prefill.metric("kv_cache_usage_perc") > 0
    while not prefill.metric("nixl_num_kv_expired_reqs_total"):
        assert time.monotonic() - started < 3 * LEASE_S, "the lease did not end"
        prefill.ask("an engine ends leases in its steps", 1)
        time.sleep(0.5)
    assert time.monotonic() - started > LEASE_S - 1
    assert prefill.metric("kv_cache_usage_perc") == 0


@pytest.mark.thorough
def test_of_a_killed_prefill_decode_tells_and_goes_on(pair: tuple[Server, Server]):
    """The last test, because it ends the prefill server."""
    prefill, decode = pair
    transfer = prefill.prefill("prefill dies " * 60)
    _end(prefill)
    assert decode.ask("prefill dies " * 60, 12, transfer) == (500, None)
    assert decode.metric("nixl_num_failed_transfers_total") == 1
    assert decode.ask("still here", 3)[0] == 200
