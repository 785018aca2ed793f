"""``preview``: shows what ``pulumi up`` of a new stack would create."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from stackgraph.commands.options import add_document, add_program, add_stack, output_file

if TYPE_CHECKING:
    from typing import Unpack

    from stackgraph.domain import Domain
    from stackgraph.graph.document import Graph
    from stackgraph.presentation.output import Drawing
    from stackgraph.program import Program

HELP = "show what `pulumi up` of a new stack would create, without CLI or credentials"
EXAMPLES = (
    "preview dev",
    "preview dev --format html -o dev.html",
    "preview dev --program ../another-program --answers answers.yaml",
)
FORMATS = ("tree", "json", "manifests", "mermaid", "html", "pulumi")


def configure(parser: argparse.ArgumentParser) -> None:
    add_stack(parser)
    add_program(parser)
    add_document(parser, FORMATS)
    add_recording(parser)


def add_recording(parser: argparse.ArgumentParser) -> None:
    """Adds ``options.strict`` and ``options.write_answers``."""
    parser.add_argument(
        "--strict",
        action="store_true",
        help="leave outputs that need a deployment unknown, as the engine does, instead of showing names such as <net-vpc.id>",
    )
    parser.add_argument(
        "--write-answers",
        metavar="FILE",
        type=output_file,
        help="run `pulumi preview`, with your credentials, and write what data sources and other stacks give, for --answers",
    )


def run(options: argparse.Namespace) -> int:
    from stackgraph.domain import NO_DOMAIN
    from stackgraph.presentation.output import drawing, write
    from stackgraph.program import Program

    stack = Program.one(options.stack, options.program, debug=options.debug, answers=options.answers)
    if options.write_answers:
        return ask(stack, options.write_answers.resolve())
    graph = recorded(stack, options)
    write(view(stack, graph, options.format, NO_DOMAIN, **drawing(options.output)), options.output)
    return 0


def recorded(stack: "Program", options: argparse.Namespace) -> "Graph":
    """The graph for a format: the engine's own knows no outputs of a stack that is not deployed."""
    return stack.record(strict=options.strict or options.format == "pulumi", needs_files=True)


def view(stack: "Program", graph: "Graph", format_: str, domain: "Domain", **drawing: "Unpack[Drawing]") -> str:
    """The text of a graph in one of the ``FORMATS``."""
    if format_ == "json":
        from stackgraph.presentation.output import sorted_json

        return sorted_json(graph.document())
    if format_ == "pulumi":
        from stackgraph.views.preview_json import render_engine_json

        return render_engine_json(graph, stack.config.values, stack.config.secret_keys, domain.notes(graph))
    if format_ == "html":
        from stackgraph.views.page import render_html

        return render_html(graph, domain)
    if format_ == "tree":
        from stackgraph.views.tree import render_tree

        return render_tree(graph, domain, **drawing)
    # Formats without tables: what people read first stands above them, in comments.
    if format_ == "manifests":
        from stackgraph.views.manifests import render_manifests as render

        sign = "#"
    else:
        from stackgraph.views.mermaid import render_mermaid as render

        sign = "%%"
    return "".join(f"{sign} {note}\n" for note in domain.notes(graph)) + render(graph)


def ask(stack: "Program", file: Path) -> int:
    """Lets the engine run the program and writes the answers that it gets. Returns the engine's exit code."""
    import os
    import subprocess
    import tempfile

    import stackgraph.recorder
    from stackgraph.problems import Problem, ProblemsFound

    if given := ", ".join(stack.answers.config):
        hint = "write them into the stack's file: pulumi config set KEY VALUE"
        raise ProblemsFound(
            [Problem("the engine takes no values of -c or --answers", key="--write-answers", given=given, hint=hint)]
        )
    recorder = Path(stackgraph.recorder.__file__).parent
    path = os.pathsep.join(filter(None, (f"{recorder / 'assets'}", f"{recorder.parents[1]}", os.environ.get("PYTHONPATH"))))
    try:
        with tempfile.TemporaryDirectory() as folder:
            (rows := Path(folder, "rows")).touch()
            environment = {**os.environ, "PYTHONPATH": path, "STACKGRAPH_ANSWERS": str(rows)}
            code = subprocess.run(["pulumi", "preview", "-s", stack.stack], cwd=stack.project.root, env=environment).returncode
            told = sorted(rows.read_text(encoding="utf-8").splitlines(keepends=True), key=_particular)
        if told or code == 0:
            file.write_text("".join(told), encoding="utf-8")
        return code
    except FileNotFoundError as error:
        hint = "https://www.pulumi.com/docs/install"
        raise ProblemsFound([Problem("there is no `pulumi` command on PATH", key="--write-answers", hint=hint)]) from error


def _particular(line: str) -> tuple[bool, int]:
    """Sorts rows of answers so that no row comes before one that fits fewer calls: with a provider, with more arguments."""
    import json

    row = json.loads(line.removeprefix("- "))
    return "provider" not in row, -len(json.dumps(row.get("args")))
