"""The ``eks-inference`` command.

Exit codes: 0 done; 1 a server, a deployed or a simulated stack is not well (``chat``, ``verify``, ``simulate``); 2 what was given
cannot be used; 130 for Ctrl-C.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eks_inference.clients import chat
from eks_inference_tools.commands import check, cluster_tools, diff_comment, loadtest, replay, simulate, verify
from eks_inference_tools.commands import diff as diff_command
from eks_inference_tools.commands import plan as plan_command
from eks_inference_tools.interrupts import EXIT_CODE
from eks_inference_tools.presentation.output import colour, write

# Only what every command needs is imported here; the rest costs start-up time and comes with the command that uses it.
if TYPE_CHECKING:
    from stackgraph.graph.document import Graph
    from stackgraph.problems import PreviewError

FORMATS = ("tree", "json", "manifests", "mermaid", "html")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the console script's entry point."""
    parser = _parser()
    options = parser.parse_args(arguments)
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

    plan_command.configure(commands.add_parser("plan", help="how a model fits an instance type: splits, batches, lengths"))
    diff_command.configure(commands.add_parser("diff", help="what a branch changes in every stack, from its code alone"))
    check.configure(commands.add_parser("check", help="whether a stack can run, by rules, with the arithmetic"))
    simulate.configure(
        commands.add_parser("simulate", help="where every pod lands, on a real control plane with simulated nodes")
    )
    cluster_tools.configure(
        commands.add_parser("cluster-tools", help="build the programs that `simulate` and `replay` run, once")
    )
    replay.configure(
        commands.add_parser("replay", help="how an autoscaled server scales, on a real control plane and Prometheus"),
        _recorded_stack,
        write,
    )
    verify.add_parser(commands, _recorded_stack)
    diff_comment.configure(commands.add_parser("diff-comment", help="in a GitHub workflow: post a diff on its pull request"))
    chat.configure(commands.add_parser("chat", help="ask a model server, e.g. through a port forward"))

    loadtest.configure(
        commands.add_parser("loadtest", help="results of load tests side by side, and beside published figures"), write
    )

    schema = commands.add_parser("schema", help="the JSON schema of stack files, for editors")
    schema.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to a file instead of standard output")
    schema.set_defaults(run=_schema)
    return parser


class _Parser(argparse.ArgumentParser):
    """Names the nearest choice when one is misspelt."""

    def error(self, message: str) -> None:  # type: ignore[override]
        given, _, choices = message.partition("invalid choice: ")[2].partition(" (choose from ")
        known = [choice.strip("', )") for choice in choices.split(",")] if choices else []
        nearest = get_close_matches(given.strip("'"), known, n=1)
        super().error(f"{message}; did you mean '{nearest[0]}'?" if nearest else message)


def _preview(options: argparse.Namespace) -> int:
    from eks_inference_tools.program import program

    stack = program(options.stack, options.program)
    graph = check.refuse(stack, stack.record(strict=options.strict))
    write(_render(graph, options.format, colour=options.output is None and colour()), options.output)
    return 0


def _recorded_stack(options: argparse.Namespace) -> "Graph":
    """The graph of the stack that the options of a command name."""
    from eks_inference_tools.program import program

    return program(options.stack).record()


def _schema(options: argparse.Namespace) -> int:
    import json

    from eks_inference.stack.spec import stack_file_schema

    write(json.dumps(stack_file_schema(), indent=2, ensure_ascii=False) + "\n", options.output)
    return 0


def _render(graph: "Graph", format_: str, *, colour: bool) -> str:
    if format_ == "json":
        return graph.to_json()
    if format_ == "manifests":
        from stackgraph.views.manifests import render_manifests

        return render_manifests(graph)
    if format_ == "mermaid":
        from stackgraph.views.mermaid import render_mermaid

        return render_mermaid(graph)
    from eks_inference_tools.reading.domain import EKS

    if format_ == "html":
        from stackgraph.views.page import render_html

        return render_html(graph, EKS)
    from stackgraph.views.tree import render_tree

    return render_tree(graph, EKS, colour=colour)


def _report(error: "PreviewError", *, debug: bool) -> None:
    count = len(error.problems)
    for problem in error.problems:
        print(f"error: {problem.render()}", file=sys.stderr)
    if count > 1:
        print(f"{count} errors", file=sys.stderr)
    if debug and error.__cause__ is not None:
        traceback.print_exception(error.__cause__, file=sys.stderr)
