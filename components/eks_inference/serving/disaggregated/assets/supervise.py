"""Runs both servers of a pair in one container: when one ends, so does the other, and the container with them.

    supervise.py PLAN ROLE...

The two shake hands once, when they start: a server that comes back alone would wait for ever, and the other not notice.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_LAST_SECONDS = 30


def main(plan: str, *roles: str) -> int:
    start = str(Path(__file__).with_name("start.py"))
    # Groups of their own: an engine has processes of its own, which have to go with it.
    running = {
        process.pid: (role, process)
        for role in roles
        for process in [subprocess.Popen([sys.executable, start, role, plan], start_new_session=True)]
    }

    def stop(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    try:
        while True:
            # As the first process of the container this also takes in whatever an engine left behind.
            ended, status = os.wait()
            if ended in running:
                role, _ = running[ended]
                code = os.waitstatus_to_exitcode(status)
                print(f"{role} ended with {code}; so ends the pair", file=sys.stderr, flush=True)
                return code if code > 0 else 1
    finally:
        _end([process for _, process in running.values()])  # of the one that ended, what it left behind


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        _signal(process, signal.SIGTERM)
    end = time.monotonic() + _LAST_SECONDS
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(end - time.monotonic(), 0))
        _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
