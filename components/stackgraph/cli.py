"""A command line of several commands: parses the arguments, runs one command and prints its errors."""

import argparse
import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from stackgraph.interrupts import EXIT_CODE, ending_at_once

if TYPE_CHECKING:
    from stackgraph.commands import Command
    from stackgraph.problems import Problem


ERRORS_SCHEMA = 1
"""Version of the document that ``--format json`` prints in place of a command's own when nothing could be done."""

_UNWRITTEN = (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EPIPE)
"""How a standard stream fails that is closed, or takes nothing more."""


@dataclass(frozen=True)
class CommandLine:
    """The commands of one program."""

    name: str
    """The name of the program, and of the installed package that has its version."""
    description: str
    groups: Mapping[str, Sequence[str]]
    """Names of commands by what they are for, in the order of the help text."""
    exit_codes: str
    """The end of the help text."""
    load: Callable[[str], "Command"]
    """Imports the module of a command."""
    former: Mapping[str, str] = field(default_factory=dict)
    """Names that commands had until the last release, and what does their work now."""

    @property
    def commands(self) -> tuple[str, ...]:
        return tuple(name for names in self.groups.values() for name in names)

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Runs one command and returns its exit code. Without arguments, as a console script calls it, ends the process."""
        if arguments is not None:
            return self._run(arguments)
        from stackgraph.presentation.output import drop_stdout, usable_streams

        usable_streams()
        code = 2
        try:
            try:
                code = self._run(sys.argv[1:])
            except SystemExit as end:  # of argparse, after a help text or an error
                code = int(end.code or 0)
            sys.stdout.flush()
        except OSError as error:
            if error.errno not in _UNWRITTEN:
                raise
            drop_stdout()
            if error.errno != errno.EPIPE:
                code = code or 2
                with contextlib.suppress(OSError):
                    print(f"error: standard output: cannot write here: {error.strerror}", file=sys.stderr)
        # What a program left to run at the end of this process, or in threads, must not follow the output or change the code.
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)

    def _run(self, given: Sequence[str]) -> int:
        if not given:
            self.parser().print_help()
            return 0
        if _folder_is_gone():
            return 2
        with ending_at_once():
            options = self.parser_for(given[0]).parse_args(given)
            from stackgraph.problems import ProblemsFound

        try:
            return options.run(options)
        except ProblemsFound as error:
            return refused(error.problems, getattr(options, "format", "") == "json")
        except FileNotFoundError:
            if _folder_is_gone():
                return 2
            raise
        except KeyboardInterrupt:
            print("\nended by Ctrl-C", file=sys.stderr)
            return EXIT_CODE
        except BrokenPipeError:
            # The reader has closed the pipe (`… | head`).
            from stackgraph.presentation.output import drop_stdout

            drop_stdout()
            return 0

    def parser_for(self, command: str) -> argparse.ArgumentParser:
        """A parser for one command. Loads the modules of all only where their names or help texts are printed."""
        return self.parser([command] if command in self.commands else None)

    def parser(self, names: Sequence[str] | None = None) -> argparse.ArgumentParser:
        """Returns a parser that knows these commands, or all."""
        overview = _Overview(self)
        overview.add_argument("--version", action=_Version, nargs=0, help="show the version and end")
        commands: Any = overview.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_Parser)
        for name in self.commands if names is None else names:
            command = self.load(name)
            its_parser = commands.add_parser(name, help=command.HELP)
            its_parser.set_defaults(run=command.run)
            command.configure(its_parser)
            its_parser.epilog = "\n".join(("examples:", *(f"  {self.name} {example}" for example in command.EXAMPLES)))
        return overview


def refused(problems: Sequence["Problem"], as_json: bool) -> int:
    """Prints the problems, as a document, too, where that was asked for, and returns the exit code."""
    from stackgraph.presentation.output import json_text, tell

    if as_json:
        print(json_text({"schema": ERRORS_SCHEMA, "errors": [asdict(problem) for problem in problems]}), end="")
    for problem in problems:
        tell(f"error: {problem.render()}")
    if len(problems) > 1:
        print(f"{len(problems)} errors", file=sys.stderr)
    return 2


def _folder_is_gone() -> bool:
    """Whether the working directory no longer exists, which it says. It may go while a command runs."""
    try:
        os.getcwd()
    except OSError:
        print("error: the working directory no longer exists: change to another", file=sys.stderr)
        return True
    return False


class _Version(argparse.Action):
    """Looks the version up only where it is asked for: that reads the metadata of the installed package."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        print(f"{parser.prog} {version(parser.prog)}")
        parser.exit()


class _Described(argparse.HelpFormatter):
    """Wraps the description of a command, and leaves the lines of its examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return "\n".join(indent + line for line in self._split_lines(text, width - len(indent)))

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Keeps names with hyphens whole, which argparse breaks."""
        from textwrap import wrap

        return wrap(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False)


class _Parser(argparse.ArgumentParser):
    """Takes no abbreviated options, and suggests the closest choice or option when one is misspelt."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **{"formatter_class": _Described, **settings})
        self._is_within, self._as_json = False, False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Takes options also between arguments. Rejects unknown ones itself, so that the error names the command."""
        self._as_json = self._as_json or "--format json" in " ".join(args or ()).replace("=", " ")
        if self._is_within or self._subparsers:
            return super().parse_known_args(args, namespace)
        self._is_within = True  # argparse parses in two steps, both with this method
        try:
            found, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_within = False
        if unknown:
            known = [name for name, action in self._option_string_actions.items() if action.help != argparse.SUPPRESS]
            self._refuse(f"unrecognized arguments: {' '.join(unknown)}", given=unknown[0].partition("=")[0], known=known)
        return found, unknown

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse drops what cannot be written, and ends with success. A reader may close its pipe (``… | head``)."""
        with contextlib.suppress(BrokenPipeError):
            (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        """Says what is wrong in the form of all errors, without the usage, which may fill a screen."""
        key, _, said = message.removeprefix("argument ").partition(": ") if message.startswith("argument ") else ("", "", message)
        given, _, choices = said.partition("invalid choice: ")[2].partition(" (choose from ")
        known = [choice.strip("', )") for choice in choices.split(",") if choices]
        allowed = ", ".join(known)
        if said.startswith("not ") and ": " in said:  # the type of an option: "not ALLOWED: GIVEN"
            allowed, _, given = said.removeprefix("not ").partition(": ")
            said = "not an allowed value"
        self._refuse("not one of the choices" if choices else said, key, given.strip("'") or "''", known, allowed=allowed)

    def _refuse(self, message: str, key: str = "", given: str = "", known: Iterable[str] = (), allowed: str = "") -> NoReturn:
        from difflib import get_close_matches

        from stackgraph.problems import Problem

        names = {name.lstrip("-"): name for name in known}
        nearest = get_close_matches(given.lstrip("-"), names, n=1)
        hint = f"did you mean '{names[nearest[0]]}'?" if nearest else f"`{self.prog} --help` lists what it takes"
        told = [Problem(message, key=key, given=given if allowed else "", allowed=allowed, hint=hint)]
        self.exit(refused(told, self._as_json))


class _Overview(_Parser):
    """The parser of the command itself, whose help lists the commands by what they are for."""

    def __init__(self, line: CommandLine) -> None:
        self._line = line
        super().__init__(
            prog=line.name,
            description=line.description,
            epilog=line.exit_codes,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        given = message.partition("invalid choice: '")[2].partition("'")[0]
        if now := self._line.former.get(given):
            message = f"{given} is now: {self._line.name} {now}"
        super().error(message)

    def format_help(self) -> str:
        (commands,) = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        shown = {action.dest: action for action in commands._get_subactions()}
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for title, names in self._line.groups.items():
            formatter.start_section(title)
            formatter.add_arguments([shown[name] for name in names if name in shown])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments([action for action in self._actions if action is not commands])
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()
