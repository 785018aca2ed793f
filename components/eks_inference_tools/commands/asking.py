"""Questions on a terminal. An answer that cannot be used is told, and asked for again."""

import sys
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def asked(question: str, read: Callable[[str], Answer]) -> Answer:
    """Returns what ``read`` makes of an answer. It raises ``ProblemsFound`` for one that cannot be used.

    The end of the input (Ctrl-D) counts as an empty answer, and is not asked again.
    """
    from stackgraph.problems import ProblemsFound

    while True:
        try:
            given = input(f"{question}: ").strip()
        except EOFError:
            print(file=sys.stderr)
            return read("")
        try:
            return read(given)
        except ProblemsFound as error:
            for problem in error.problems:
                print(problem.render(), file=sys.stderr)
