"""Shows progress in one line on standard error."""

import shutil
import sys
from typing import Self

from stackgraph.graph.values import text
from stackgraph.graph.wording import shorten
from stackgraph.plain_text import printable

_CLEAR = "\r\x1b[K"


class Progress:
    """A status line that is overwritten in place. When standard error is not a terminal, only ``keep`` writes.

    It does not use rich, whose live display hides the cursor: a command that ends in ``ending_at_once`` would leave it hidden.
    """

    def __init__(self) -> None:
        self._shown = ""
        self._stream = sys.stderr  # a program that is recorded may put another in its place

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.show("")

    def show(self, line: str) -> None:
        """Replaces the status line; an empty ``line`` clears it."""
        if self._stream.isatty() and line != self._shown:
            room = shutil.get_terminal_size().columns - 1
            print(f"{_CLEAR}{shorten(text(line), room)}", end="", file=self._stream, flush=True)
            self._shown = line

    def keep(self, line: str) -> None:
        """Prints a permanent line."""
        self.show("")
        print(printable(line, keep="\n"), file=self._stream, flush=True)
