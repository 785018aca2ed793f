"""The ``eks-inference`` command.

Exit codes: 0 done; 1 a server, a deployed or a simulated stack is not well (``chat``, ``verify``, ``simulate``); 2 what was given
cannot be used; 130 for Ctrl-C.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from eks_inference_tools.interrupts import EXIT_CODE

if TYPE_CHECKING:
    from eks_inference_tools.commands import Command
    from stackgraph.problems import PreviewError

COMMANDS = (
    "preview",
    "plan",
    "diff",
    "check",
    "simulate",
    "cluster-tools",
    "replay",
    "verify",
    "diff-comment",
    "chat",
    "loadtest",
    "schema",
)
"""Each is a module of ``commands/``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the console script's entry point."""
    given = sys.argv[1:] if arguments is None else arguments
    # The modules of the other commands are loaded only to show help, or to say what there is.
    options = parser(given[:1] if given and given[0] in COMMANDS else COMMANDS).parse_args(given)
    from stackgraph.problems import PreviewError

    try:
        return options.run(options)
    except PreviewError as error:
        _report(error, debug=getattr(options, "debug", False))
        return 2
    except KeyboardInterrupt:
        print("\nended by Ctrl-C", file=sys.stderr)
        return EXIT_CODE
    except BrokenPipeError:
        # The reader went away (`… | head`). Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of a command line that names one of these commands."""
    found = _Parser(prog="eks-inference", description="Serve LLMs on Amazon EKS with Neuron chips or NVIDIA GPUs.")
    commands: Any = found.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in names:
        command = cast("Command", import_module(f"eks_inference_tools.commands.{name.replace('-', '_')}"))
        its_parser = commands.add_parser(name, help=command.HELP)
        its_parser.set_defaults(run=command.run)
        command.configure(its_parser)
    return found


class _Parser(argparse.ArgumentParser):
    """Names the nearest choice when one is misspelt."""

    def error(self, message: str) -> None:  # type: ignore[override]
        from difflib import get_close_matches

        given, _, choices = message.partition("invalid choice: ")[2].partition(" (choose from ")
        known = [choice.strip("', )") for choice in choices.split(",")] if choices else []
        nearest = get_close_matches(given.strip("'"), known, n=1)
        super().error(f"{message}; did you mean '{nearest[0]}'?" if nearest else message)


def _report(error: "PreviewError", *, debug: bool) -> None:
    count = len(error.problems)
    for problem in error.problems:
        print(f"error: {problem.render()}", file=sys.stderr)
    if count > 1:
        print(f"{count} errors", file=sys.stderr)
    if debug and error.__cause__ is not None:
        import traceback

        traceback.print_exception(error.__cause__, file=sys.stderr)
