"""Ctrl-C, a cancelled job and a closed terminal, for commands that have something to clean up."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

EXIT_CODE = 130
"""What a command that was ended by Ctrl-C returns (128 + SIGINT)."""


@contextlib.contextmanager
def ending_cleanly() -> Iterator[None]:
    """SIGTERM and SIGHUP raise ``KeyboardInterrupt``, too, so that there is one way to end."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
