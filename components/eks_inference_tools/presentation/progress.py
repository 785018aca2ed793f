"""One line on standard error that changes while a person is watching."""

import shutil
import sys
from typing import Self

from stackgraph.graph.values import text
from stackgraph.graph.wording import shorten

_CLEAR = "\r\x1b[K"


class Progress:
    """A line that changes. Where standard error is no terminal, nothing is written but what is to be kept.

    rich is not used: its live display hides the cursor, and a command that ``ending_at_once`` ends would leave it hidden.
    """

    def __init__(self) -> None:
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.show("")

    def show(self, line: str) -> None:
        """The line in place of the one before; an empty one takes it away."""
        if sys.stderr.isatty() and line != self._shown:
            room = shutil.get_terminal_size().columns - 1
            print(f"{_CLEAR}{shorten(text(line), room)}", end="", file=sys.stderr, flush=True)
            self._shown = line

    def keep(self, line: str) -> None:
        """A line that stays, also where nobody is watching."""
        self.show("")
        print(line, file=sys.stderr, flush=True)
