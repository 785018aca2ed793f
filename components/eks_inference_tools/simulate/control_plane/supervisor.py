"""Starts the processes of a simulation and kills all of them when the program that asked for them is gone.

``processes.Processes`` runs it as a program. Whatever ends that parent (Ctrl-C, SIGKILL, an exception) closes the standard input
here; this program then kills every process group that it started and removes the folder. It imports only the standard library, so
it starts in milliseconds. Each line of standard input is a JSON document: ``{"name", "argv", "env"}`` starts a process and is
answered with ``{"pid"}`` or ``{"error"}``; ``{"stop": name}`` kills one and is answered with ``{"pid"}``.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

EXIT_SUFFIX = ".exit"
LOG_SUFFIX = ".log"

_REAP_SECONDS = 0.1


def main(folder: Path) -> None:
    # Signals that end the parent may reach this process, too, which still has to clean up then. SIG_IGN would be inherited by
    # the processes started here, and a shell cannot trap a signal that was ignored on entry; a handler is not inherited.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        _serve(folder, running)
    finally:
        for process in running.values():
            _kill(process)
        shutil.rmtree(folder, ignore_errors=True)


def _serve(folder: Path, running: dict[str, subprocess.Popen[bytes]]) -> None:
    unread = b""
    while True:
        for name, process in list(running.items()):
            if process.poll() is not None:
                _kill(process)  # its children
                unfinished = folder / f"{name}.unfinished"
                unfinished.write_text(str(process.returncode))
                unfinished.rename(folder / f"{name}{EXIT_SUFFIX}")
                del running[name]
        if not select.select([0], [], [], _REAP_SECONDS)[0]:
            continue
        received = os.read(0, 65536)
        if not received:
            return
        *lines, unread = (unread + received).split(b"\n")
        for line in lines:
            print(json.dumps(_obey(json.loads(line), folder, running)), flush=True)


def _obey(order: dict, folder: Path, running: dict[str, subprocess.Popen[bytes]]) -> dict:
    if "stop" in order:
        if process := running.pop(order["stop"], None):
            _kill(process)
        return {"pid": process and process.pid}
    name = order["name"]
    if name in running:
        return {"error": "it is already running"}
    try:
        with (folder / f"{name}{LOG_SUFFIX}").open("wb") as log:
            process = subprocess.Popen(
                order["argv"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=order["env"],
                cwd=folder,
                start_new_session=True,
            )
    except OSError as error:
        return {"error": error.strerror or str(error)}
    running[name] = process
    return {"pid": process.pid}


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kills a process group at once: nothing in a simulation needs a graceful shutdown."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
