"""Handles Ctrl-C, termination and hangup, for code that has to clean up and for code that has nothing to clean up."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

EXIT_CODE = 130
"""The exit code of a command that Ctrl-C ends (128 + SIGINT)."""


def ending_cleanly() -> AbstractContextManager[None]:
    """Makes SIGTERM and SIGHUP raise ``KeyboardInterrupt``, so that all three signals end the block in the same way.

    An ignored signal stays ignored, for ``nohup``.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    ending = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    return _handling(ending, end)


def ending_at_once() -> AbstractContextManager[None]:
    """Makes Ctrl-C end the process immediately. Has no effect outside the main thread, or where Ctrl-C is ignored or
    handled already.

    For code that runs in event loops and callbacks and has nothing to clean up: there a ``KeyboardInterrupt`` may get lost or
    leave threads waiting for each other.
    """
    # While a program is recorded, ``os`` has another function of this name.
    end_process = os._exit

    def end(number: int, frame: FrameType | None) -> None:
        print("\nended by Ctrl-C", file=sys.stderr, flush=True)
        end_process(EXIT_CODE)

    free = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return _handling([signal.SIGINT] if free and threading.current_thread() is threading.main_thread() else [], end)


@contextmanager
def _handling(numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
