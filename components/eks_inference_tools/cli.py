"""The command line of ``eks-inference``: parses the arguments, runs one command and prints its errors."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, cast

from eks_inference_tools.interrupts import EXIT_CODE

if TYPE_CHECKING:
    from eks_inference_tools.commands import Command

COMMANDS = (
    "preview",
    "plan",
    "new",
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
"""Names of commands, in the order of the help text. ``commands/`` has a module for each."""

EXIT_CODES = """\
exit codes of every command:
  0    success, and nothing is wrong with what was examined
  1    something is wrong: with a server (chat), a deployed stack (verify) or
       a simulated one (simulate, replay); or a change matches --exit-code or
       --fail-on (diff)
  2    the input cannot be used: an option, a stack file, a stack that a rule
       refuses, a program that fails, a cluster that cannot be read
  130  ended by Ctrl-C
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Without arguments, as the console script calls it, ends the process with it."""
    if arguments is not None:
        return _run(arguments)
    from eks_inference_tools.presentation.output import drop_stdout, usable_streams

    usable_streams()
    code = _run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError as error:
        drop_stdout()
        if not isinstance(error, BrokenPipeError):
            print(f"error: standard output: cannot write here: {error.strerror}", file=sys.stderr)
            code = code or 2
    # What a program left to run at the end of this process, or in threads, must neither follow the output nor change the code.
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


def _run(given: Sequence[str]) -> int:
    # Load the other commands' modules only where their names or help texts are printed.
    options = parser(given[:1] if given and given[0] in COMMANDS else COMMANDS).parse_args(given)
    from stackgraph.problems import ProblemsFound

    try:
        return options.run(options)
    except ProblemsFound as error:
        for problem in error.problems:
            print(f"error: {problem.render()}", file=sys.stderr)
        if len(error.problems) > 1:
            print(f"{len(error.problems)} errors", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nended by Ctrl-C", file=sys.stderr)
        return EXIT_CODE
    except BrokenPipeError:
        # The reader has closed the pipe (`… | head`).
        from eks_inference_tools.presentation.output import drop_stdout

        drop_stdout()
        return 0


def parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """Returns a parser that knows these commands."""
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
    """Takes no abbreviated options, and suggests the closest choice or option when one is misspelt."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Rejects unknown arguments itself, so that the error shows the usage of the command instead of the main parser's."""
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
