"""Reads files that a user names. Nobody knows what they are: each reading has a bound, and what goes wrong is a ``Problem``."""

import os
from pathlib import Path

from stackgraph.problems import Problem, ProblemsFound

MOST_BYTES = 256 << 20
"""Of what other programs write, which grows with what they do: states, graphs, results of load tests."""


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
