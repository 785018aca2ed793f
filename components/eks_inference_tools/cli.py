"""The command line of ``eks-inference``: parses the arguments, runs one command and prints its errors."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, cast

from eks_inference_tools import COMMAND
from eks_inference_tools.interrupts import EXIT_CODE, ending_at_once

if TYPE_CHECKING:
    from eks_inference_tools.commands import Command

GROUPS: Mapping[str, Sequence[str]] = {
    "look at a stack before it exists": ("preview", "check", "diff", "simulate"),
    "make a stack of your own": ("plan", "new", "list"),
    "go to AWS": ("doctor", "first-flight"),
    "look at a deployed stack": ("verify", "chat", "loadtest"),
    "for editors, shells and CI": ("schema", "completion", "diff-comment"),
}
"""Names of commands by what they are for, in the order of the help text. ``commands/`` has a module for each."""

COMMANDS = tuple(name for names in GROUPS.values() for name in names)

FORMER = {
    "resolve": "preview STACK --format stack",
    "cluster-tools": "simulate STACK, which builds what it needs",
    "replay": "simulate STACK --load",
    **{name: f"list {name}" for name in ("models", "engines", "instances")},
}
"""Names that commands had until the last release, and what does their work now."""

ERRORS_SCHEMA = 1
"""Of the document that takes the place of a command's own with ``--format json``, when nothing could be done."""

EXIT_CODES = """\
exit codes of every command:
  0    success, and nothing is wrong with what was examined
  1    something is wrong: with a server (chat), a deployed stack (verify) or
       a simulated one (simulate); or a change matches --exit-code or
       --fail-on (diff)
  2    the input cannot be used: an option, a stack file, a stack that a rule
       refuses, a program that fails, a cluster that cannot be read, an account
       without what a stack needs (doctor)
  130  ended by Ctrl-C; 128 + N by signal N, such as a crash of the program
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Without arguments, as the console script calls it, ends the process with it."""
    if arguments is not None:
        return _run(arguments)
    if "_ARGCOMPLETE" in os.environ:
        # A shell asks what may stand at its cursor.
        from eks_inference_tools.completing import complete

        complete(_parser_for)
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
    if not given:
        parser().print_help()
        return 0
    try:
        os.getcwd()
    except OSError:
        print("error: the working directory no longer exists: change to another", file=sys.stderr)
        return 2
    with ending_at_once():
        options = _parser_for(given[0] if given else "").parse_args(given)
        from stackgraph.problems import ProblemsFound

    try:
        return options.run(options)
    except ProblemsFound as error:
        if getattr(options, "format", "") == "json":
            from dataclasses import asdict

            from eks_inference_tools.presentation.output import json_text

            print(json_text({"schema": ERRORS_SCHEMA, "errors": [asdict(problem) for problem in error.problems]}), end="")
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


def _parser_for(command: str) -> argparse.ArgumentParser:
    """A parser for one command. Loads the modules of all only where their names or help texts are printed."""
    return parser([command] if command in COMMANDS else COMMANDS)


def parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """Returns a parser that knows these commands."""
    found = _Overview(
        prog=COMMAND,
        description="Serve LLMs on Amazon EKS with Neuron chips or NVIDIA GPUs.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--version", action=_Version, nargs=0, help="show the version and end")
    commands: Any = found.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_Parser)
    for name in names:
        command = cast("Command", import_module(f"eks_inference_tools.commands.{name.replace('-', '_')}"))
        its_parser = commands.add_parser(name, help=command.HELP)
        its_parser.set_defaults(run=command.run)
        command.configure(its_parser)
        its_parser.formatter_class = _Described
        its_parser.epilog = "\n".join(("examples:", *(f"  {COMMAND} {example}" for example in command.EXAMPLES)))
    return found


class _Version(argparse.Action):
    """Looks the version up only where it is asked for: that reads the metadata of the installed package."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        print(f"{COMMAND} {version(COMMAND)}")
        parser.exit()


class _Described(argparse.HelpFormatter):
    """Wraps the description of a command, and leaves the lines of its examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """Takes no abbreviated options, and suggests the closest choice or option when one is misspelt."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)
        self._is_within = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Takes options also between arguments. Rejects unknown ones itself, so that the error shows the usage of the command
        instead of the main parser's.
        """
        if self._is_within or self._subparsers:
            return super().parse_known_args(args, namespace)
        self._is_within = True  # argparse parses in two steps, both with this method
        try:
            found, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_within = False
        if unknown:
            self._refuse(f"unrecognized arguments: {' '.join(unknown)}", unknown[0], self._option_string_actions)
        return found, unknown

    def error(self, message: str) -> NoReturn:
        given, _, choices = message.partition("invalid choice: ")[2].partition(" (choose from ")
        self._refuse(message, given.strip("'"), [choice.strip("', )") for choice in choices.split(",") if choices])

    def _refuse(self, message: str, given: str, known: Iterable[str]) -> NoReturn:
        if given in FORMER and self._subparsers:
            super().error(f"{given} is now: {COMMAND} {FORMER[given]}")
        from difflib import get_close_matches

        nearest = get_close_matches(given.partition("=")[0], known, n=1)
        super().error(f"{message}; did you mean '{nearest[0]}'?" if nearest else message)


class _Overview(_Parser):
    """The parser of the command itself, whose help lists the commands by what they are for."""

    def format_help(self) -> str:
        (commands,) = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        shown = {action.dest: action for action in commands._get_subactions()}
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for title, names in GROUPS.items():
            formatter.start_section(title)
            formatter.add_arguments([shown[name] for name in names if name in shown])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments([action for action in self._actions if action is not commands])
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()
