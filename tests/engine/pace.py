"""How long the echo providers take, and when each of their steps ran."""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "ECHO_PACE"
"""Names the file with seconds by action and URN, in the environment of the providers. What it does not name takes no time.

Instead of seconds it may have the message with which the action fails.
"""


@dataclass(frozen=True)
class Ran:
    """A step that a provider ran. Seconds are of one clock for all processes of the machine."""

    action: str
    urn: str
    began_s: float
    ended_s: float


class Failed(Exception):
    """The step fails with this message."""


class Pace:
    """Sleeps, and notes it beside the file. All providers of an engine write to the same notes, a line at a time."""

    def __init__(self, file: Path | None) -> None:
        self._seconds: Mapping[str, Mapping[str, float | str]] = json.loads(file.read_text()) if file else {}
        self._notes = _notes(file) if file else None

    @contextmanager
    def step(self, action: str, urn: str) -> Iterator[None]:
        if self._notes is None:
            yield
            return
        takes = self._seconds.get(action, {}).get(urn, 0.0)
        if isinstance(takes, str):
            raise Failed(takes)
        began = time.monotonic()
        yield
        # What the provider really did meanwhile counts.
        time.sleep(max(0.0, began + takes - time.monotonic()))
        line = json.dumps([action, urn, began, time.monotonic()]) + "\n"
        with self._notes.open("a") as notes:
            notes.write(line)


def pace_of_environment() -> Pace:
    file = os.environ.get(VARIABLE)
    return Pace(Path(file) if file else None)


def steps(file: Path) -> Sequence[Ran]:
    """What the providers of this file have run, by the time of its end."""
    notes = _notes(file)
    rows = [Ran(*json.loads(line)) for line in notes.read_text().splitlines()] if notes.exists() else []
    return sorted(rows, key=lambda ran: ran.ended_s)


def _notes(file: Path) -> Path:
    return file.with_suffix(".ran")
