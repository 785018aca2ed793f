"""Waits for what tests have begun: until something is so, never for a time. Who waits in vain is told what was seen last."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

PATIENCE_S = 60
"""How long anything may take on a busy machine. It costs nothing: a wait ends as soon as it can."""

Seen = TypeVar("Seen")


def until(look: Callable[[], Seen], holds: Callable[[Seen], object] = bool, within_s: float = PATIENCE_S) -> Seen:
    """Returns what ``look`` sees once that holds."""
    end = time.monotonic() + within_s
    while not holds(seen := look()):
        assert time.monotonic() < end, _in_vain(seen, within_s)
        time.sleep(0.02)
    return seen


def until_ended(*pids: int) -> None:
    """Waits for the end of processes."""
    until(lambda: [pid for pid in pids if is_running(pid)], lambda running: not running)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        # What ended and is only waiting to be noticed runs no more.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self").exists()


async def eventually(
    look: Callable[[], Awaitable[Seen]], holds: Callable[[Seen], object] = bool, within_s: float = PATIENCE_S
) -> Seen:
    """As ``until``, for what has to be asked for."""
    end = time.monotonic() + within_s
    while not holds(seen := await look()):
        assert time.monotonic() < end, _in_vain(seen, within_s)
        await asyncio.sleep(0.02)
    return seen


async def until_in_loop(look: Callable[[], Seen], holds: Callable[[Seen], object] = bool, within_s: float = PATIENCE_S) -> Seen:
    """As ``until``, for what the loop of the test does."""

    async def looked() -> Seen:
        return look()

    return await eventually(looked, holds, within_s)


def _in_vain(seen: object, within_s: float) -> str:
    return f"not within {within_s:g} s; seen last: {str(seen)[:2000]!r}"
