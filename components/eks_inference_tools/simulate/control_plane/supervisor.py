"""Starts the processes of a simulation and ends them, all of them, when the program that asked for them is gone.

Run as a program of its own by ``processes.Processes``: whatever ends its parent (Ctrl-C, SIGKILL, an exception) closes its
standard input, and then it kills every process group it started and removes the folder. Needs the standard library only, so that
it starts in a few milliseconds. Every line of standard input is a JSON document: ``{"name", "argv", "env"}`` starts a process and
is answered with ``{"pid"}`` or ``{"error"}``; ``{"stop": name}`` ends one and is answered with ``{"pid"}``.
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
    # Whoever ends everything ends the parent, too, and then there is work to do. Ignoring them would be handed on to what is
    # started here, and a shell cannot trap what was ignored before it; a handler is not.
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
                _kill(process)  # what it started in turn
                _note_exit(folder, name, process.returncode)
                del running[name]
        if not select.select([0], [], [], _REAP_SECONDS)[0]:
            continue
        received = os.read(0, 65536)
        if not received:
            return
        *lines, unread = (unread + received).split(b"\n")
        for line in lines:
            answer = _obey(json.loads(line), folder, running)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def _obey(order: dict, folder: Path, running: dict[str, subprocess.Popen[bytes]]) -> dict:
    if "stop" in order:
        process = running.pop(order["stop"], None)
        if process is None:
            return {"pid": None}
        _kill(process)
        return {"pid": process.pid}
    name = order["name"]
    if name in running:
        return {"error": "it is running already"}
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
    """At once: nothing of a simulation is worth a graceful end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _note_exit(folder: Path, name: str, code: int) -> None:
    unfinished = folder / f"{name}.unfinished"
    unfinished.write_text(str(code))
    unfinished.rename(folder / f"{name}{EXIT_SUFFIX}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
