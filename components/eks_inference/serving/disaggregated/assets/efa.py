"""Checks that EFA works before any server needs it: the devices are in the pod, libfabric finds them, and data goes over them.

    efa.py INTERFACES [ADDRESS]

A pair whose EFA does not work says so after a minute, in the words of a timeout. Without ADDRESS both ends are here; with it the
pods of an indexed Job are the ends: the first answers, the others call it by that name. Runs in the engine's image.
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

_TOOLS = "/opt/amazon/efa/bin"
_PING = ["fi_pingpong", "-p", "efa", "-e", "rdm"]
_WAIT_S = 900  # for the image on the other node
_PAUSE_S = 5


class CheckError(Exception):
    """EFA does not work."""


def devices(folder: Path, wanted: int) -> None:
    found = sorted(path.name for path in folder.glob("uverbs*"))
    if len(found) < wanted:
        raise CheckError(f"{len(found)} of {wanted} EFA devices in {folder}: {', '.join(found) or 'none'}")
    print(f"{len(found)} EFA devices", flush=True)


def provider() -> None:
    told = subprocess.run(["fi_info", "-p", "efa"], capture_output=True, text=True)
    if told.returncode or "provider: efa" not in told.stdout:
        raise CheckError(f"libfabric finds no EFA: {(told.stderr or told.stdout).strip()}")
    domains = {line.split(":", 1)[1].strip() for line in told.stdout.splitlines() if line.strip().startswith("domain:")}
    print(f"libfabric finds {len(domains)} EFA domains", flush=True)


def here() -> None:
    """Both ends in this pod. Through the interfaces: within one node libfabric would take shared memory."""
    os.environ["FI_EFA_ENABLE_SHM_TRANSFER"] = "0"
    answering = subprocess.Popen(_PING)
    try:
        call("127.0.0.1", 60)
    finally:
        answering.terminate()
        answering.wait()


def answer() -> None:
    if subprocess.run(_PING, timeout=_WAIT_S).returncode:
        raise CheckError("the exchange with the other node failed")


def call(address: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            told = subprocess.run([*_PING, socket.gethostbyname(address)], capture_output=True, text=True)
            if told.returncode == 0:
                print(told.stdout, flush=True)
                return
            reason = (told.stderr or told.stdout).strip()
        except socket.gaierror as error:
            reason = str(error)
        if time.monotonic() >= end:
            raise CheckError(f"no exchange with {address} over EFA: {reason}")
        time.sleep(min(_PAUSE_S, max(end - time.monotonic(), 0)))


def main(wanted: str, address: str | None = None) -> int:
    os.environ["PATH"] = f"{os.environ['PATH']}{os.pathsep}{_TOOLS}"
    try:
        devices(Path(os.environ.get("EFA_DEVICES", "/dev/infiniband")), int(wanted))
        provider()
        if address is None:
            here()
        elif os.environ["JOB_COMPLETION_INDEX"] == "0":
            answer()
        else:
            call(address, _WAIT_S)
    except CheckError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("EFA works", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
