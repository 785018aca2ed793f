"""``eks-inference preview``: shows what ``pulumi up`` of a new stack would create."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from eks_inference_tools.commands.options import add_document, add_prices, add_program, add_stack, own_prices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eks_inference_tools.cost.per_token import Rate
    from eks_inference_tools.cost.price_book import OwnPrices
    from stackgraph.graph.document import Graph

_WITH_TIMELINE = ("tree", "json")
_COMMENTED = {"manifests": "#", "mermaid": "%%"}
"""Formats with comments above them, and how these begin."""

HELP = "show what `pulumi up` of a new stack would create, without CLI or credentials"
EXAMPLES = (
    "preview inf2-llama3",
    "preview stacks/Pulumi.inf2-llama3.yaml --timeline",
    "preview inf2-llama3 --format html -o inf2-llama3.html",
    "preview dev --program ../my-program",
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
    add_document(parser, ("tree", "json", "manifests", "mermaid", "html", "pulumi"))
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


def run(options: argparse.Namespace) -> int:
    from eks_inference_tools.commands.check import refuse
    from eks_inference_tools.presentation.output import colour, write
    from eks_inference_tools.program import program
    from stackgraph.problems import Problem, ProblemsFound

    if options.timeline and options.format not in _WITH_TIMELINE:
        hint = "the page of --format html shows the timeline anyway"
        allowed = ", ".join(f"--format {one}" for one in _WITH_TIMELINE)
        raise ProblemsFound([Problem("has no such format", key="--timeline", given=options.format, allowed=allowed, hint=hint)])
    prices, measured = own_prices(options), _rates(options.load_test)
    stack = program(options.stack, options.program, debug=options.debug, answers=options.answers)
    if options.format == "pulumi":
        from eks_inference_tools.notes import notes_of
        from stackgraph.views.engine import render_engine_json

        # The engine knows no outputs of a stack that is not deployed.
        graph = refuse(stack, stack.record(strict=True))
        notes = notes_of(graph, prices)
        write(render_engine_json(graph, stack.config.values, stack.config.secret_keys, notes), options.output)
        return 0
    graph = refuse(stack, stack.record(strict=options.strict))
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


def _rates(files: "Sequence[Path]") -> "Sequence[Rate]":
    if not files:
        return ()
    from eks_inference_tools.cost.per_token import rates
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
