"""The commands of ``stackgraph``. Each is a module that implements the protocol ``Command``."""

import argparse
from collections.abc import Sequence
from typing import Protocol


class Command(Protocol):
    """The interface of a command's module. Its name is that of the command, with underscores for hyphens.

    Help texts import every module, so a module imports its dependencies inside its functions, or for type checkers only.
    """

    HELP: str
    """One line for the list of commands."""

    EXAMPLES: Sequence[str]
    """Lines for the end of its help, without the name of the program. A test parses each, and runs those that need no cluster."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the description and the options. ``options.py`` has those that several commands share."""
        ...

    def run(self, options: argparse.Namespace) -> int:
        """Runs the command and returns its exit code (``CommandLine.exit_codes``). Raises ``ProblemsFound`` for exit code 2."""
        ...
