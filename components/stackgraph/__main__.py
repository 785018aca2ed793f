"""The command ``stackgraph``, for any Pulumi Python program: its console script, and ``python -m stackgraph``."""

import sys

from stackgraph.interrupts import ending_at_once

GROUPS = {"look at a program": ("preview", "diff"), "for CI": ("diff-comment",)}

EXIT_CODES = """\
exit codes of every command:
  0    success
  1    a change matches --exit-code or --fail-on (diff)
  2    the input cannot be used: an option, a stack file, a program that fails
  130  ended by Ctrl-C; 128 + N by signal N, such as a crash of the program
"""


def main() -> int:
    """Runs the command. Ctrl-C during the imports ends it like later."""
    with ending_at_once():
        from importlib import import_module
        from typing import TYPE_CHECKING, cast

        from stackgraph.cli import CommandLine

        if TYPE_CHECKING:
            from stackgraph.commands import Command

        def load(name: str) -> "Command":
            return cast("Command", import_module(f"stackgraph.commands.{name.replace('-', '_')}"))

        description = "Shows and compares what a Pulumi Python program creates, without CLI, plugin, credential or network."
        line = CommandLine("stackgraph", description, GROUPS, EXIT_CODES, load)
    return line.main()


if __name__ == "__main__":
    sys.exit(main())
