"""Runs a function for several items side by side: in forked processes, which start with the modules of this one loaded."""

import contextlib
import json
import os
import selectors
import signal
import sys
import threading
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, Final, TypeVar

from stackgraph.interrupts import ending_cleanly

T = TypeVar("T")

MOST: Final = os.cpu_count() or 2
"""Processes at a time."""


_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(Exception):
    """A process ended without an answer. Its text says how."""


def can_fork() -> bool:
    """Whether a fork of this process works: libraries of macOS break in one, and so do locks that another thread holds."""
    return sys.platform == "linux" and threading.active_count() == 1


def side_by_side(function: Callable[[T], Any], items: Sequence[T]) -> Generator[Any]:
    """Yields what the function returns for each item, in their order, through JSON; an ``Ended`` for a process without answer.

    Whatever the function raises ends its process, so it has to return what it wants to say. Processes that still run when the
    iterator is closed are killed.
    """
    waiting, running, found = [*enumerate(items)][::-1], dict[int, tuple[int, int, bytearray]](), dict[int, Any]()
    with ending_cleanly(), selectors.DefaultSelector() as selector:
        try:
            for number in range(len(items)):
                while number not in found:
                    while waiting and len(running) < MOST:
                        place, item = waiting.pop()
                        # A signal in between would leave behind a process that nobody knows of.
                        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
                        try:
                            pid, pipe = _started(function, item, before)
                            running[pipe] = (place, pid, bytearray())
                        finally:
                            signal.pthread_sigmask(signal.SIG_SETMASK, before)
                        selector.register(pipe, selectors.EVENT_READ)
                    for key, _ in selector.select():
                        place, pid, answer = running[key.fd]
                        if chunk := os.read(key.fd, 1 << 20):
                            answer += chunk
                            continue
                        selector.unregister(key.fd)
                        del running[key.fd]
                        os.close(key.fd)
                        found[place] = _answer(answer, _ended(pid))
                yield found.pop(number)
        finally:
            for pipe, (_, pid, _) in running.items():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                _ended(pid)
                os.close(pipe)


def _started(function: Callable[[T], Any], item: T, mask: Collection[int]) -> tuple[int, int]:
    """Starts a process that blocks the signals of ``mask``. Returns its id and the pipe that it answers through."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        os.close(write)
        return pid, read
    status, end_process = 1, os._exit  # while a program is recorded, ``os`` has another function of this name
    try:
        # A terminal sends Ctrl-C to all processes of a command, and the first one says so.
        signal.signal(signal.SIGINT, lambda number, frame: end_process(128 + number))
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(read)
        answer = function(item)
        with open(write, "w", encoding="utf-8") as pipe:
            json.dump(answer, pipe)
        status = 0
    except KeyboardInterrupt:  # SIGTERM and SIGHUP
        status = 128 + signal.SIGTERM
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        end_process(status)


def _ended(pid: int) -> int:
    """Waits for a process. Returns its exit code, or less than zero for a signal."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # a parent that ignores SIGCHLD leaves nothing to wait for
        return 0


def _answer(written: bytearray, status: int) -> Any:
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return Ended(f"signal {-status}" if status < 0 else f"exit code {status}")
