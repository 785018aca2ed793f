"""``eks-inference rehearse``: plays a change, or a bad day, on a real control plane with simulated nodes.

Exit code 1: a server stopped answering or does not recover, or something got stuck. Exit code 2: the rehearsal itself failed.
"""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from eks_inference_tools.commands import rehearse_day
from eks_inference_tools.commands.options import add_cluster
from stackgraph.commands.options import add_document, add_program, add_stack
from stackgraph.interrupts import ending_cleanly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackgraph.graph.document import Graph

HELP = "play a change or a loss before it happens: who stops answering, for how long, what gets stuck"
EXAMPLES = (
    "rehearse change inf2-llama3 --base origin/main",
    "rehearse change smoke-gpu --try 'pools.gpu.size=2 servers.qwen3.surge=1'",
    *rehearse_day.EXAMPLES,
)
_SECONDS = 90.0
"""That a rehearsal of a shipped stack takes on two quiet cores (docs/rehearse.md)."""


def configure(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(title="rehearsals", required=True, metavar="WHAT", dest="what")
    change = what.add_parser(
        "change",
        help="a change from one revision to another",
        description="Applies a stack as it is at a revision on a real control plane with simulated nodes, then as it is in the "
        "working tree, in the order and with the waits of `pulumi up`. Shows which servers stop answering and for how long, and "
        "what gets stuck, and compares that with the lines of `diff`. Without --base every image gets another tag. Exit code 1 "
        "when a server stops answering or something gets stuck.",
    )
    add_stack(change)
    change.add_argument("--base", metavar="REV", help="the old revision (default: the working tree, with other images)")
    rehearse_day.add_tried(change)
    add_program(change)
    add_cluster(change)
    add_document(change, ("text", "markdown", "json"))
    change.set_defaults(play=_change)
    rehearse_day.configure(what.add_parser("day", help=rehearse_day.HELP))


def run(options: argparse.Namespace) -> int:
    return options.play(options)


def _change(options: argparse.Namespace) -> int:
    from eks_inference_tools.comparison import eks_compared
    from eks_inference_tools.reading.clusters import part_of
    from eks_inference_tools.simulate.control_plane.tool_build import provided
    from eks_inference_tools.simulate.rehearsal.change import rehearsed
    from eks_inference_tools.simulate.rehearsal.report import Rehearsal, render_json
    from eks_inference_tools.simulate.rehearsal.text import render_markdown, render_text
    from eks_inference_tools.simulate.simulation import tools_of
    from stackgraph.diff.report import Recorded, StackReport
    from stackgraph.graph.values import unique
    from stackgraph.presentation.output import drawing, write
    from stackgraph.presentation.progress import Progress

    scenes = [(tried, *(part_of(graph, options.cluster) for graph in sides)) for tried, *sides in _sides(options)]
    toolchain = provided(*unique(tool for _, *sides in scenes for graph in sides for tool in tools_of(graph)))
    played = list[Rehearsal]()
    for tried, before, after in scenes:
        report = StackReport(options.stack or "", Recorded(before), Recorded(after), eks_compared())
        with ending_cleanly(), Progress(about=_SECONDS) as progress:
            played.append(replace(rehearsed(report, toolchain, progress.show), tried=tried))
    renderers = {
        "text": lambda: render_text(*played, **drawing(options.output)),
        "markdown": lambda: "\n".join(map(render_markdown, played)),
        "json": lambda: render_json(*played),
    }
    write(renderers[options.format](), options.output)
    return 0 if all(rehearsal.is_well for rehearsal in played) else 1


def _sides(options: argparse.Namespace) -> "Iterator[tuple[str, Graph, Graph]]":
    """Yields what is tried in the working tree, at first nothing, and the stack before and after the change."""
    from eks_inference_tools.commands.diff import recorder
    from eks_inference_tools.program import program
    from eks_inference_tools.simulate.rollout.changes import with_other_images
    from stackgraph.problems import Problem, ProblemsFound
    from stackgraph.revisions.comparing import compare_revisions

    def working(stack: str, tried: str) -> "Graph":
        head = program(stack, options.program, debug=options.debug, answers=options.answers)
        return (rehearse_day.edited(head, tried) if tried else head).record()

    if not options.base:
        for tried in ("", *options.tried):
            graph = working(options.stack, tried)
            yield tried, graph, with_other_images(graph)
        return
    report = compare_revisions(
        [options.stack] if options.stack else [],
        base=options.base,
        program=options.program,
        debug=options.debug,
        answers=options.answers,
        recorder=recorder(),
    )
    if len(report.stacks) > 1:
        raise ProblemsFound([Problem("name the stack to rehearse", allowed=", ".join(stack.stack for stack in report.stacks))])
    (stack,) = report.stacks
    if problems := [problem for side in (stack.base, stack.head) if side for problem in side.problems]:
        raise ProblemsFound(problems)
    if not (stack.base and stack.head and stack.base.graph and stack.head.graph):
        missing = "--base" if stack.head else "the working tree"
        raise ProblemsFound([Problem(f"there is no stack {stack.stack} to change", key=missing, given=options.base)])
    for tried in ("", *options.tried):
        yield tried, stack.base.graph, working(stack.stack, tried) if tried else stack.head.graph
