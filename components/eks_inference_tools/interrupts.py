"""Ctrl-C, a cancelled job and a closed terminal: for what has something to clean up, and for what has not."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

EXIT_CODE = 130
"""What a command that was ended by Ctrl-C returns (128 + SIGINT)."""


@contextlib.contextmanager
def ending_cleanly() -> Iterator[None]:
    """SIGTERM and SIGHUP raise ``KeyboardInterrupt``, too, so that there is one way to end. What is ignored stays ignored, for
    ``nohup``.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    ending = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in ending}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """Ctrl-C ends the process there and then. For what runs in event loops and callbacks, where a ``KeyboardInterrupt`` gets lost
    or leaves threads waiting for each other, and leaves nothing behind. Has no effect outside the main thread.
    """

    def end(number: int, frame: FrameType | None) -> None:
        print("\nended by Ctrl-C", file=sys.stderr, flush=True)
        os._exit(EXIT_CODE)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
