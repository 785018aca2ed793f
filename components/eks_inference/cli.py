"""The ``eks-inference`` command.

Exit codes: 0 done; 1 a server or a deployed stack is not well (``chat``, ``verify``); 2 what was given cannot be used; 130 for
Ctrl-C.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eks_inference.clients import chat
from eks_inference.verify import command as verify

# Only what every command needs is imported here; the rest costs start-up time and comes with the command that uses it.
if TYPE_CHECKING:
    from eks_inference.preview.errors import PreviewError, Problem
    from eks_inference.preview.graph import Graph
    from eks_inference.preview.project import Document

FORMATS = ("tree", "json", "manifests", "mermaid", "html")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the console script's entry point."""
    parser = _parser()
    options = parser.parse_args(arguments)
    from eks_inference.preview.errors import PreviewError

    try:
        return options.run(options)
    except PreviewError as error:
        _report(error, debug=getattr(options, "debug", False))
        return 2
    except BrokenPipeError:
        # The reader went away (`… | head`). Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="eks-inference", description="Serve LLMs on Amazon EKS with Neuron chips or NVIDIA GPUs.")
    commands: Any = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    preview = commands.add_parser("preview", help="what `pulumi up` of a new stack would create, without CLI or credentials")
    preview.add_argument("stack", nargs="?", metavar="STACK", help="a stack that has a file, e.g. inf2-llama3")
    preview.add_argument(
        "--program", metavar="DIR", type=Path, help="another Pulumi Python project (default: the one around here)"
    )
    preview.add_argument("--format", choices=FORMATS, default="tree", help="default: %(default)s")
    preview.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to a file instead of standard output")
    preview.add_argument(
        "--strict",
        action="store_true",
        help="leave what only a deployment knows unknown, as the engine does, instead of showing names such as <net-vpc.id>",
    )
    preview.add_argument("--debug", action="store_true", help="show the traceback of a program that fails")
    preview.set_defaults(run=_preview)

    verify.add_parser(commands, _recorded_stack)
    chat.configure(commands.add_parser("chat", help="ask a model server, e.g. through a port forward"))

    schema = commands.add_parser("schema", help="the JSON schema of stack files, for editors")
    schema.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to a file instead of standard output")
    schema.set_defaults(run=_schema)
    return parser


class _Parser(argparse.ArgumentParser):
    """Names the nearest choice when one is misspelt."""

    def error(self, message: str) -> None:  # type: ignore[override]
        given, _, choices = message.partition("invalid choice: ")[2].partition(" (choose from ")
        nearest = get_close_matches(given.strip("'"), [choice.strip("', )") for choice in choices.split(",")], n=1)
        super().error(f"{message}; did you mean '{nearest[0]}'?" if nearest else message)


def _preview(options: argparse.Namespace) -> int:
    graph = _recorded_stack(options)
    _write(_render(graph, options.format, colour=options.output is None and _colour()), options.output)
    return 0


def _recorded_stack(options: argparse.Namespace) -> "Graph":
    """The graph of the stack that the options of a command name; only ``stack`` is an option of every command."""
    import gc

    from eks_inference.preview.lazy_sdk import lazy_sdks

    # A short process that leaves next to no garbage: looking for it costs about a tenth of the time.
    gc.disable()
    with lazy_sdks():
        return _recorded(options)


def _recorded(options: argparse.Namespace) -> "Graph":
    from eks_inference.preview.errors import PreviewError, ProgramError
    from eks_inference.preview.project import find_project

    program: Path | None = getattr(options, "program", None)
    if program is not None and not program.is_dir():
        raise PreviewError([_problem("there is no such folder", file=str(program))])
    project = find_project(program or Path.cwd())
    document = project.stack_file(_stack(options.stack, project.stacks()))
    optional_secrets: Sequence[str] = ()
    if program is None and project.name == "eks-inference":
        from eks_inference.secrets import CONFIG_SECRETS

        optional_secrets = [f"{project.name}:{name}" for name in CONFIG_SECRETS]
    config = project.config(document, optional_secrets)

    from eks_inference.preview.recording import record

    stack = document.path.name.split(".", 1)[1].rpartition(".")[0]
    try:
        with _progress(stack) as progress, contextlib.redirect_stdout(sys.stderr):
            graph = record(
                project.main,
                project=project.name,
                stack=stack,
                config=config.values,
                secret_keys=config.secret_keys,
                strict=getattr(options, "strict", False),
                root=project.root,
                progress=progress,
            )
    except ProgramError as error:
        raise _located(error, document, f"{project.name}:stack") from error
    for warning in config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return graph


def _schema(options: argparse.Namespace) -> int:
    import json

    from eks_inference.stack import stack_file_schema

    _write(json.dumps(stack_file_schema(), indent=2, ensure_ascii=False) + "\n", options.output)
    return 0


def _stack(given: str | None, stacks: Sequence[str]) -> str:
    if given is not None:
        return given
    if len(stacks) == 1:
        return stacks[0]
    from eks_inference.preview.errors import PreviewError

    raise PreviewError([_problem("name a stack", allowed=", ".join(stacks) or "none has a file yet")])


def _render(graph: "Graph", format_: str, *, colour: bool) -> str:
    if format_ == "json":
        return graph.to_json()
    if format_ == "manifests":
        from eks_inference.preview.manifests import render_manifests

        return render_manifests(graph)
    if format_ == "mermaid":
        from eks_inference.preview.mermaid import render_mermaid

        return render_mermaid(graph)
    if format_ == "html":
        from eks_inference.preview.html import render_html

        return render_html(graph)
    from eks_inference.preview.tree import render_tree

    return render_tree(graph, colour=colour)


def _located(error: "PreviewError", document: "Document", key: str) -> "PreviewError":
    """Faults of the stack object, each with its line in the stack file; any other failure as it is."""
    from eks_inference.faults import SpecError, format_path
    from eks_inference.preview.errors import ProgramError

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, SpecError):
        cause = cause.__cause__
    if cause is None:
        return error
    return ProgramError(
        [
            _problem(
                fault.message,
                file=document.shown,
                line=document.line(("config",) if fault.config_key else ("config", key, *fault.path)),
                key=fault.config_key or format_path((key, *fault.path)),
                given=fault.given,
                allowed=fault.allowed,
                hint=fault.hint,
            )
            for fault in cause.faults
        ]
    )


def _problem(message: str, **place: "str | int") -> "Problem":
    from eks_inference.preview.errors import Problem

    return Problem(message, **place)  # type: ignore[arg-type]


def _report(error: "PreviewError", *, debug: bool) -> None:
    count = len(error.problems)
    for problem in error.problems:
        print(f"error: {problem.render()}", file=sys.stderr)
    if count > 1:
        print(f"{count} errors", file=sys.stderr)
    if debug and error.__cause__ is not None:
        traceback.print_exception(error.__cause__, file=sys.stderr)


@contextlib.contextmanager
def _progress(stack: str) -> Iterator[Callable[[int], None] | None]:
    """A counter on standard error while a person is watching."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        yield lambda count: print(f"\rrecording {stack}: {count} resources", end="", file=sys.stderr, flush=True)
    finally:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _write(text: str, output: Path | None) -> None:
    """To standard output, or to a file that is complete or not there at all."""
    if output is None:
        sys.stdout.write(text)
        return
    from eks_inference.preview.errors import PreviewError

    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=output.parent, prefix=f".{output.name}.", delete=False, encoding="utf-8"
        ) as file:
            try:
                file.write(text)
                file.close()
                os.chmod(file.name, 0o644)
                os.replace(file.name, output)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise PreviewError([_problem(f"cannot write here: {error.strerror}", file=str(output))]) from error
