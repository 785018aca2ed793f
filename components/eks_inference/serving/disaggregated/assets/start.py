"""Starts one server of the pair and becomes it: check the artifact, find the other side, fill in the addresses, execute.

    start.py ROLE PLAN

The engine takes addresses, not names, and hangs for ever on a wrong one. A name in the cluster's DNS may still lead to the pod
that was there before, so the two sides meet first: decode connects to prefill's name, both say which artifact they will load, and
prefill says its address. A meeting that fails ends with exit code 1, and the pod with it.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PREFILL_ADDRESS = "@PREFILL_ADDRESS@"
DECODE_ADDRESS = "@DECODE_ADDRESS@"

_PAUSE_S = 2.0
_ANSWER_S = 5.0


class MeetingError(Exception):
    """The other side did not come, or is another one."""


def await_decode(own: str, port: int, artifact: str, seconds: float) -> str:
    """Prefill's side of the meeting; decode's address."""
    end = time.monotonic() + seconds
    with socket.create_server(("", port)) as listener:
        while True:
            listener.settimeout(max(end - time.monotonic(), 0.01))
            try:
                connection, (address, _) = listener.accept()
            except TimeoutError:
                raise MeetingError(f"decode did not come within {seconds} s") from None
            with connection:
                connection.settimeout(_ANSWER_S)
                try:
                    theirs = _receive(connection)
                    _send(connection, {"artifact": artifact, "address": own})
                except (OSError, ValueError):
                    continue  # not decode, or a decode that has gone again
            if theirs.get("artifact") != artifact:
                raise MeetingError(f"decode is to load {theirs.get('artifact')}, and prefill {artifact}")
            return address


def find_prefill(name: str, port: int, artifact: str, seconds: float) -> str:
    """Decode's side of the meeting; prefill's address."""
    end = time.monotonic() + seconds
    reason = ""
    while time.monotonic() < end:
        try:
            address = socket.gethostbyname(name)
            with socket.create_connection((address, port), timeout=_ANSWER_S) as connection:
                _send(connection, {"artifact": artifact})
                theirs = _receive(connection)
            if theirs.get("artifact") != artifact:
                raise MeetingError(f"prefill is to load {theirs.get('artifact')}, and decode {artifact}")
            if theirs.get("address") == address:
                return address
            now = f"{address} is not prefill, which says it is {theirs.get('address')}"
        except (OSError, ValueError) as error:
            now = f"{name}: {error}"
        if now != reason:
            print(f"waiting for prefill: {now}", flush=True)
            reason = now
        time.sleep(min(_PAUSE_S, max(end - time.monotonic(), 0)))
    raise MeetingError(f"prefill was not there within {seconds} s: {reason}")


def _send(connection: socket.socket, message: dict[str, str]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def _receive(connection: socket.socket) -> dict[str, str]:
    with connection.makefile("rb") as lines:
        message = json.loads(lines.readline(4096) or b"null")
    if not isinstance(message, dict):
        raise ValueError("no answer")
    return message


def addresses(role: str, plan: dict[str, Any]) -> dict[str, str]:
    """What the placeholders stand for; nothing where both sides are on one node."""
    meeting = plan["meeting"]
    if meeting is None:
        return {}
    own, artifact = os.environ["POD_IP"], plan["artifact"]["folder"]
    if role == "prefill":
        return {PREFILL_ADDRESS: own, DECODE_ADDRESS: await_decode(own, meeting["port"], artifact, meeting["seconds"])}
    return {PREFILL_ADDRESS: find_prefill(meeting["address"], meeting["port"], artifact, meeting["seconds"]), DECODE_ADDRESS: own}


def filled(text: str, known: dict[str, str]) -> str:
    for placeholder, address in known.items():
        text = text.replace(placeholder, address)
    return text


def main(role: str, path: str) -> int:
    plan = json.loads(Path(path).read_text("utf-8"))
    checked = subprocess.run([sys.executable, str(Path(__file__).with_name("artifact.py")), "verify", path])
    if checked.returncode:
        return checked.returncode
    try:
        known = addresses(role, plan)
    except MeetingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    server = plan["servers"][role]
    command = [filled(word, known) for word in server["command"]]
    for name, value in server["environment"].items():
        os.environ[name] = filled(value, known)
    print(f"{role}: {' '.join(command)}", flush=True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
