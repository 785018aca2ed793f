"""The commands of ``eks-inference``: a module each, all with the protocol of ``Command``."""

import argparse
from typing import Protocol


class Command(Protocol):
    """What a module of this folder has. It is named as its command, with an underscore for each hyphen.

    It is imported to show help, so it imports what the command works with when the command runs.
    """

    HELP: str
    """One line, for the list of commands."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the description and the options; those that several commands share come from ``options.py``."""
        ...

    def run(self, options: argparse.Namespace) -> int:
        """Runs the command and returns its exit code (``cli.EXIT_CODES``); raises ``ProblemsFound`` where that is 2."""
        ...
