"""``eks-inference preview``: shows what ``pulumi up`` of a new stack would create."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from eks_inference_tools.commands.options import add_prices, own_prices
from stackgraph.commands import preview
from stackgraph.commands.options import add_document, add_program, add_stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eks_inference_tools.cost.estimate import Rate
    from eks_inference_tools.cost.price_book import OwnPrices
    from eks_inference_tools.program import StackProgram
    from stackgraph.graph.document import Graph

_ONLY_WITH = {"timeline": ("tree", "json"), "without_defaults": ("stack",)}
"""Options that few formats have."""

HELP = preview.HELP
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
        help="summaries of load tests, as `loadtest report` reads them, to show what a million output tokens cost",
    )
    add_document(parser, (*preview.FORMATS, "stack"))
    parser.add_argument(
        "--without-defaults",
        action="store_true",
        help="with --format stack, which prints every value and where it comes from: leave out the schema's defaults",
    )
    preview.add_recording(parser)
    parser.add_argument(
        "--timeline",
        action="store_true",
        help="show how long it takes until the stack is up and its models answer, by typical times (--format tree or json)",
    )


def run(options: argparse.Namespace) -> int:
    from eks_inference_tools.commands.check import refuse
    from eks_inference_tools.program import program
    from stackgraph.presentation.output import drawing, write
    from stackgraph.problems import Problem, ProblemsFound

    for option, formats in _ONLY_WITH.items():
        if getattr(options, option) and options.format not in formats:
            hint = "the page of --format html shows the timeline anyway" if option == "timeline" else ""
            allowed, key = ", ".join(f"--format {name}" for name in formats), f"--{option.replace('_', '-')}"
            raise ProblemsFound([Problem("has no such format", key=key, given=options.format, allowed=allowed, hint=hint)])
    prices, measured = own_prices(options), _rates(options.load_test)
    stack = program(options.stack, options.program, debug=options.debug, answers=options.answers)
    if options.write_answers:
        return preview.ask(stack, options.write_answers.resolve())
    if options.format == "stack":
        write(_stack_file(stack, defaults=not options.without_defaults), options.output)
        return 0
    graph = refuse(stack, preview.recorded(stack, options))
    if options.format == "json":
        write(_json(graph, prices, measured, with_timeline=options.timeline), options.output)
    elif options.timeline:
        from eks_inference_tools.timeline.text import render_text
        from eks_inference_tools.timeline.timeline import timeline

        write(render_text(timeline(graph), **drawing(options.output)), options.output)
    else:
        from eks_inference_tools.domain import eks

        write(preview.view(stack, graph, options.format, eks(prices, measured), **drawing(options.output)), options.output)
    return 0


def _stack_file(stack: "StackProgram", *, defaults: bool) -> str:
    """The stack file with every value that it leaves open, and where each comes from. No rule judges it, and no program runs."""
    from eks_inference_tools.program import STACK_KEY
    from eks_inference_tools.resolution.origins import stack_file, values_of
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
    from eks_inference_tools.alternatives import places
    from eks_inference_tools.cost.document import document as cost
    from eks_inference_tools.domain import Figures
    from stackgraph.presentation.output import sorted_json

    figures = Figures(prices)
    shown = {**graph.document(), "cost": cost(graph, figures.cost(graph), measured)}
    if found := [place.document() for place in places(graph, figures)]:
        shown["places"] = found
    if with_timeline:
        from eks_inference_tools.timeline.document import document

        shown["timeline"] = document(figures.time(graph))
    return sorted_json(shown)
