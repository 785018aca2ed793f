"""``eks-inference preview``: what ``pulumi up`` of a new stack would create."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stackgraph.graph.document import Graph

HELP = "what `pulumi up` of a new stack would create, without CLI or credentials"
FORMATS = ("tree", "json", "manifests", "mermaid", "html")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("stack", nargs="?", metavar="STACK", help="a stack that has a file, e.g. inf2-llama3")
    parser.add_argument(
        "--program", metavar="DIR", type=Path, help="another Pulumi Python project (default: the one around here)"
    )
    parser.add_argument("--format", choices=FORMATS, default="tree", help="default: %(default)s")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to a file instead of standard output")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="leave what only a deployment knows unknown, as the engine does, instead of showing names such as <net-vpc.id>",
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of a program that fails")


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code; raises ``PreviewError`` where that is 2."""
    from eks_inference_tools.commands.check import refuse
    from eks_inference_tools.presentation.output import colour, write
    from eks_inference_tools.program import program

    stack = program(options.stack, options.program)
    graph = refuse(stack, stack.record(strict=options.strict))
    write(_render(graph, options.format, colour=options.output is None and colour()), options.output)
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
    if format_ == "html":
        from stackgraph.views.page import render_html

        return render_html(graph)
    from stackgraph.views.tree import render_tree

    return render_tree(graph, colour=colour)
