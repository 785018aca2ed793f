"""Before a worker pod ends: no new requests, and time for those under way. Runs as the pod's preStop hook.

``python drain.py SECONDS`` leaves a mark that makes the pod's replicas refuse requests, and returns once every vLLM server of the
pod is idle, or after that many seconds. Standard library only.
"""

import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

MARK = os.environ.get("DRAIN_MARK", "/tmp/eks-inference-drain")

# Of the generation engine: requests in the batch, and those waiting for a place in it.
_GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting")
_LOOPBACK = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ports() -> Iterator[int]:
    """The ports of the vLLM servers that ``vllm_engine.py`` started in this pod."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        # Behind setpriv and, for a script, its interpreter.
        if "serve" in words and "--port" in words and os.path.basename(words[words.index("serve") - 1]) == "vllm":
            yield int(words[words.index("--port") + 1])


def under_way(port: int) -> float:
    """Requests a server has; none when it does not answer: one that is still loading has none."""
    try:
        with _LOOPBACK.open(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except (urllib.error.URLError, OSError):
        return 0
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(_GAUGES))


def drain(seconds: float) -> bool:
    """Whether all servers became idle in time."""
    Path(MARK).touch()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(1)  # also for what a replica took just before the mark
        if not any(under_way(port) for port in set(ports())):
            return True
    return False


if __name__ == "__main__":
    drain(float(sys.argv[1]))
