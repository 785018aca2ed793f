"""Files that a user names: each reading has a bound, and what goes wrong is a ``Problem``. The user's cache folder."""

import os
from pathlib import Path

from stackgraph.problems import Problem, ProblemsFound

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
