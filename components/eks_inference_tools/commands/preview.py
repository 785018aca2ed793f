"""``eks-inference preview``: shows what ``pulumi up`` of a new stack would create."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from eks_inference_tools.commands.options import add_document, add_prices, add_program, add_stack, output_file, own_prices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eks_inference_tools.cost.estimate import Rate
    from eks_inference_tools.cost.price_book import OwnPrices
    from eks_inference_tools.program import StackProgram
    from stackgraph.graph.document import Graph

_ONLY_WITH = {"timeline": ("tree", "json"), "without_defaults": ("stack",)}
"""Options that few formats have."""
_COMMENTED = {"manifests": "#", "mermaid": "%%"}
"""Formats with comments above them, and how these begin."""

HELP = "show what `pulumi up` of a new stack would create, without CLI or credentials"
EXAMPLES = (
    "preview inf2-llama3",
    "preview stacks/Pulumi.inf2-llama3.yaml --timeline",
    "preview inf2-llama3 --format html -o inf2-llama3.html",
    "preview dev --program ../my-program",
    "preview inf2-llama2 --format stack --without-defaults",
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_stack(parser)
    add_program(parser)
    add_prices(parser)
    parser.add_argument(
        "--load-test",
        metavar="FILE",
        type=Path,
        nargs="+",
        default=(),
        help="summaries of load tests, as `loadtest report` reads them: what a million output tokens cost",
    )
    add_document(parser, ("tree", "json", "manifests", "mermaid", "html", "pulumi", "stack"))
    parser.add_argument(
        "--without-defaults",
        action="store_true",
        help="of the stack file that --format stack prints with every value and where it comes from: leave out the defaults of "
        "the schema",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="leave outputs that need a deployment unknown, as the engine does, instead of showing names such as <net-vpc.id>",
    )
    parser.add_argument(
        "--timeline",
        action="store_true",
        help="how long it takes until the stack is up and its models answer, by typical times; with --format tree or json",
    )
    parser.add_argument(
        "--write-answers",
        metavar="FILE",
        type=output_file,
        help="run `pulumi preview`, with your credentials, and write what data sources and other stacks give, for --answers",
    )


def run(options: argparse.Namespace) -> int:
    from eks_inference_tools.commands.check import refuse
    from eks_inference_tools.presentation.output import colour, write
    from eks_inference_tools.program import program
    from stackgraph.problems import Problem, ProblemsFound

    for option, formats in _ONLY_WITH.items():
        if getattr(options, option) and options.format not in formats:
            hint = "the page of --format html shows the timeline anyway" if option == "timeline" else ""
            allowed, key = ", ".join(f"--format {one}" for one in formats), f"--{option.replace('_', '-')}"
            raise ProblemsFound([Problem("has no such format", key=key, given=options.format, allowed=allowed, hint=hint)])
    prices, measured = own_prices(options), _rates(options.load_test)
    stack = program(options.stack, options.program, debug=options.debug, answers=options.answers)
    if options.write_answers:
        return _ask(stack, options.write_answers.resolve())
    if options.format == "stack":
        write(_stack_file(stack, defaults=not options.without_defaults), options.output)
        return 0
    if options.format == "pulumi":
        from eks_inference_tools.notes import notes_of
        from stackgraph.views.engine import render_engine_json

        # The engine knows no outputs of a stack that is not deployed.
        graph = refuse(stack, stack.record(strict=True, needs_files=True))
        notes = notes_of(graph, prices)
        write(render_engine_json(graph, stack.config.values, stack.config.secret_keys, notes), options.output)
        return 0
    graph = refuse(stack, stack.record(strict=options.strict, needs_files=True))
    if options.format == "json":
        write(_json(graph, prices, measured, with_timeline=options.timeline), options.output)
    elif options.timeline:
        from eks_inference_tools.timeline.text import render_text
        from eks_inference_tools.timeline.timeline import timeline

        write(render_text(timeline(graph), colour=colour(options.output)), options.output)
    elif options.format in _COMMENTED:
        write(_commented(graph, options.format, prices), options.output)
    else:
        write(_drawn(graph, options.format, prices, measured, colour=colour(options.output)), options.output)
    return 0


def _ask(stack: "StackProgram", file: Path) -> int:
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


def _stack_file(stack: "StackProgram", *, defaults: bool) -> str:
    """The stack file with every value that it leaves open, and where each comes from. No rule judges it, and no program runs."""
    from eks_inference_tools.program import STACK_KEY
    from eks_inference_tools.resolution.text import stack_file
    from eks_inference_tools.resolution.values import values_of
    from stackgraph.problems import Problem, ProblemsFound

    spec = stack.spec()
    if spec is None:
        hint = "a program that makes its own components has its values in its code"
        raise ProblemsFound([Problem("there is no stack object to print", stack.document.shown, key=STACK_KEY, hint=hint)])
    # As the file has it, with the project in the name of every key.
    given = {key if ":" in key else f"{stack.project.name}:{key}": value for key, value in stack.document.data["config"].items()}
    values = values_of(spec, given.pop(STACK_KEY))
    secrets = sorted(given.keys() & stack.config.secret_keys)
    others = {key: value for key, value in given.items() if key not in secrets}
    return stack_file(stack.stack, values if defaults else values.without("schema"), STACK_KEY, others, secrets)


def _rates(files: "Sequence[Path]") -> "Sequence[Rate]":
    if not files:
        return ()
    from eks_inference_tools.cost.estimate import rates
    from eks_inference_tools.loadtest_report.readers.detection import read_all

    return [rate for runs in read_all(files) for rate in rates(runs)]


def _json(graph: "Graph", prices: "OwnPrices", measured: "Sequence[Rate]", *, with_timeline: bool) -> str:
    """The graph's own document, with what it costs and, on request, how long it takes."""
    import json

    from eks_inference_tools.cost.document import document as cost
    from eks_inference_tools.cost.estimate import estimated

    shown = {**graph.document(), "cost": cost(graph, estimated(graph, prices), measured)}
    if with_timeline:
        from eks_inference_tools.timeline.document import document
        from eks_inference_tools.timeline.timeline import timeline

        shown["timeline"] = document(timeline(graph))
    return json.dumps(shown, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _commented(graph: "Graph", format_: str, prices: "OwnPrices") -> str:
    """A format without tables: what people read first stands above it, in comments."""
    from eks_inference_tools.notes import notes_of

    if format_ == "manifests":
        from stackgraph.views.manifests import render_manifests as render
    else:
        from stackgraph.views.mermaid import render_mermaid as render
    return "".join(f"{_COMMENTED[format_]} {note}\n" for note in notes_of(graph, prices)) + render(graph)


def _drawn(graph: "Graph", format_: str, prices: "OwnPrices", measured: "Sequence[Rate]", *, colour: bool) -> str:
    from eks_inference_tools.domain import eks

    if format_ == "html":
        from stackgraph.views.page import render_html

        return render_html(graph, eks(prices, measured))
    from stackgraph.views.tree import render_tree

    return render_tree(graph, eks(prices, measured), colour=colour)
