"""The ``eks-inference`` command."""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, cast

from eks_inference_tools.interrupts import EXIT_CODE

if TYPE_CHECKING:
    from eks_inference_tools.commands import Command
    from stackgraph.problems import ProblemsFound

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

EXIT_CODES = """\
exit codes of every command:
  0    done, and what was looked at is well
  1    what was looked at is not well: a server (chat), a deployed stack
       (verify), a simulated one (simulate, replay), or a change that
       --exit-code or --fail-on is about (diff)
  2    what was given cannot be used: an option, a stack file, a stack that a
       rule refuses, a program that fails, a cluster that cannot be looked at
  130  ended by Ctrl-C
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the console script's entry point."""
    given = sys.argv[1:] if arguments is None else arguments
    # The modules of the other commands are loaded only to show help, or to say what there is.
    options = parser(given[:1] if given and given[0] in COMMANDS else COMMANDS).parse_args(given)
    from stackgraph.problems import ProblemsFound

    try:
        return options.run(options)
    except ProblemsFound as error:
        _report(error)
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
    found = _Parser(
        prog="eks-inference",
        description="Serve LLMs on Amazon EKS with Neuron chips or NVIDIA GPUs.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands: Any = found.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in names:
        command = cast("Command", import_module(f"eks_inference_tools.commands.{name.replace('-', '_')}"))
        its_parser = commands.add_parser(name, help=command.HELP)
        its_parser.set_defaults(run=command.run)
        command.configure(its_parser)
    return found


class _Parser(argparse.ArgumentParser):
    """Names the nearest choice, or the nearest option, when one is misspelt."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Refuses what it does not know, so that the usage that is shown is the command's own."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(f"unrecognized arguments: {' '.join(unknown)}", unknown[0], self._option_string_actions)
        return found, unknown

    def error(self, message: str) -> NoReturn:
        given, _, choices = message.partition("invalid choice: ")[2].partition(" (choose from ")
        self._refuse(message, given.strip("'"), [choice.strip("', )") for choice in choices.split(",") if choices])

    def _refuse(self, message: str, given: str, known: Iterable[str]) -> NoReturn:
        from difflib import get_close_matches

        nearest = get_close_matches(given.partition("=")[0], known, n=1)
        super().error(f"{message}; did you mean '{nearest[0]}'?" if nearest else message)


def _report(error: "ProblemsFound") -> None:
    count = len(error.problems)
    for problem in error.problems:
        print(f"error: {problem.render()}", file=sys.stderr)
    if count > 1:
        print(f"{count} errors", file=sys.stderr)
