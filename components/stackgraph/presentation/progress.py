"""Shows progress in one line on standard error."""

import contextlib
import shutil
import sys
import time
from typing import Self

from stackgraph.graph.values import text
from stackgraph.graph.wording import shorten
from stackgraph.problems import printable

_CLEAR = "\r\x1b[K"
_EVERY_SECONDS = 30.0
"""Between two lines where no terminal shows the status: in a log of CI."""


class Progress:
    """A status line that is overwritten in place. When standard error is not a terminal, ``show`` writes a line every 30 s.

    ``about`` are the seconds that the whole usually takes: each status then tells how many have passed, of how many.
    It does not use rich, whose live display hides the cursor: a command that ends in ``ending_at_once`` would leave it hidden.
    """

    def __init__(self, about: float = 0.0) -> None:
        self._shown = ""
        self._about = about
        self._start = self._written = time.monotonic()
        self._stream = sys.stderr  # a program that is recorded may put another in its place

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.show("")

    def show(self, line: str) -> None:
        """Replaces the status line; an empty ``line`` clears it."""
        now = time.monotonic()
        told = f"{now - self._start:.0f} s of about {self._about:.0f} s: {line}" if line and self._about else line
        if not self._stream.isatty():
            if line and now - self._written >= _EVERY_SECONDS:
                self._written = now
                with contextlib.suppress(OSError):  # a program that is recorded may have closed it
                    print(printable(told, keep=""), file=self._stream, flush=True)
        elif told != self._shown:
            room = shutil.get_terminal_size().columns - 1
            print(f"{_CLEAR}{shorten(text(told), room)}", end="", file=self._stream, flush=True)
            self._shown = told

    def count(self, what: str, done: int, total: int) -> None:
        """Says how many of equal items are done, and how long the others take if they take as long as these."""
        passed = time.monotonic() - self._start
        left = f", about {passed / done * (total - done):.0f} s more" if 0 < done < total else ""
        self.show(f"{what}: {done} of {total}{left}")

    def keep(self, line: str) -> None:
        """Prints a permanent line."""
        self.show("")
        print(printable(line, keep="\n"), file=self._stream, flush=True)
