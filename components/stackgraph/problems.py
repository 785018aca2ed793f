"""Problems of a project, a stack file or a program, the exceptions that carry them, text of others that is safe to print, and
files that a user names: each reading has a bound, and what goes wrong is a ``Problem``. The user's cache folder.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self


def printable(text: str, keep: str = "") -> str:
    """The text with a space for each letter that is not printable, such as controls and marks of direction, except ``keep``."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else " " for letter in text)


@dataclass(frozen=True)
class Problem:
    """One problem, with its place in a file where it has one."""

    message: str
    file: str = ""
    line: int = 0
    key: str = ""
    given: str = ""
    allowed: str = ""
    hint: str = ""
    rule: str = ""
    working: tuple[str, ...] = ()
    """The arithmetic behind the problem, one line per step."""

    @classmethod
    def of(cls, fault: Any, file: str = "", line: int = 0, key: str = "") -> Self:
        """What a library says, in the same words, at its place."""
        texts = ("message", "given", "allowed", "hint", "rule", "working")
        return cls(file=file, line=line, key=key, **{text: getattr(fault, text) for text in texts})

    def render(self) -> str:
        place = self.file + (f":{self.line}" if self.line else "")
        head = ": ".join(part for part in (*map(printable, (place, self.key, self.rule)), _lines(self.message)) if part)
        because = "\n".join(self.working)
        details = (("given", self.given), ("allowed", self.allowed), ("because", because), ("hint", self.hint))
        return "\n".join([head, *(f"    {label}: {_lines(text, ' ' * 13)}" for label, text in details if text)])


def _lines(text: str, indent: str = " " * 4) -> str:
    """The text of others, with its further lines indented, so that none passes for a problem of its own."""
    return f"\n{indent}".join(map(printable, text.split("\n")))


class ProblemsFound(Exception):
    """The request cannot be carried out, for reasons the user can fix. ``problems`` holds every reason found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problem.render() for problem in self.problems))


class ProgramError(ProblemsFound):
    """The Pulumi program failed. ``__cause__`` is its exception."""


MOST_BYTES = 256 << 20
"""The most bytes of a file that another program writes: states, graphs and results of load tests grow with use."""


def content(path: Path, most: int = MOST_BYTES, shown: str = "") -> bytes:
    """What is in a file. Raises ``ProblemsFound`` if it cannot be read or has more than ``most`` bytes."""
    shown = shown or str(path)
    try:
        with path.open("rb") as file:
            found = file.read(most + 1)
    except OSError as error:
        raise ProblemsFound([Problem(f"cannot be read: {error.strerror}", file=shown)]) from error
    if len(found) > most:
        raise ProblemsFound([Problem("the file is too long", file=shown, allowed=f"at most {most} bytes")])
    return found


def real(path: Path) -> Path:
    """The path without links. For one that leads to itself, ``Path.resolve`` raises ``RuntimeError`` before Python 3.13."""
    return Path(os.path.realpath(path))


def user_cache(command: str) -> Path:
    """The folder of a command's cache, below ``XDG_CACHE_HOME`` or ``~/.cache``. It may not exist yet.

    It holds only what the command can make again, so it is safe to delete.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(base) / command).absolute()
