"""``diff``: shows what a branch changes in every stack, from its code alone."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stackgraph.commands.options import add_document, add_program, add_stacks, number_of, output_file

if TYPE_CHECKING:
    from stackgraph.diff.comparison_domain import ComparedDomain
    from stackgraph.diff.contents import Contents
    from stackgraph.diff.report import Report
    from stackgraph.graph.document import Graph
    from stackgraph.program import Program
    from stackgraph.revisions.recorders import Recorder

HELP = "show what a branch changes in every stack, from its code alone"
EXAMPLES = (
    "diff --base origin/main",
    "diff --base HEAD~1 dev --format markdown",
    "diff before.json after.json",
    "diff --state export.json dev",
)
FORMATS = ("text", "markdown", "json", "html")
FAILING = ("replace", "delete", "danger", "unsure", "outage", "loss", "budget")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs the programs of two revisions offline and shows the differences, stack by stack, without credentials, CLI, plugins "
        "or network. With --state, compares the program with a deployed stack."
    )
    add_stacks(parser, ", or two files of `preview --format json`")
    parser.add_argument("--base", metavar="REV", help="the old revision (default: the merge base with origin's main branch)")
    parser.add_argument("--head", metavar="REV", help="the new revision (default: the working tree)")
    parser.add_argument(
        "--state", metavar="FILE", type=Path, help="say what `pulumi up` does to the stack that `pulumi stack export` wrote"
    )
    add_program(parser)
    add_document(parser, FORMATS)
    for name in FORMATS[1:]:
        parser.add_argument(f"--{name}", metavar="FILE", type=output_file, help=f"also write the report as {name}")
    parser.add_argument(
        "--limit",
        metavar="CHARACTERS",
        type=number_of("characters"),
        help="longest markdown (default: the longest comment on GitHub)",
    )
    parser.add_argument("--link", metavar="URL", help="URL prefix of source files in markdown (default: from origin, on GitHub)")
    parser.add_argument("--exit-code", action="store_true", help="exit with code 1 when something changes")
    parser.add_argument(
        "--fail-on", metavar="WHAT", type=_failing, default=(), help=f"exit with code 1 on these changes: {','.join(FAILING)}"
    )


def run(options: argparse.Namespace) -> int:
    from stackgraph.diff.comparison_domain import NO_DOMAIN
    from stackgraph.program import Program
    from stackgraph.revisions.recorders import OF_ANY_PROGRAM

    return compare(options, NO_DOMAIN, Program, OF_ANY_PROGRAM)


def compare(options: argparse.Namespace, domain: "ComparedDomain", program: "type[Program]", recorder: "Recorder") -> int:
    """Compares what the options name, for a command that knows more of it. Returns the exit code."""
    from stackgraph.diff.telling import contents
    from stackgraph.interrupts import ending_cleanly

    with ending_cleanly():
        if options.state:
            report = _of_state(options, domain, program, recorder.command)
        elif len(options.stacks) == 2 and all(name.endswith(".json") for name in options.stacks):
            report = _of_files(options, domain, recorder.command)
        else:
            from functools import partial

            from stackgraph.presentation.progress import Progress
            from stackgraph.revisions.comparing import compare_revisions

            with Progress() as progress:
                report = compare_revisions(
                    options.stacks,
                    base=options.base,
                    head=options.head,
                    program=options.program,
                    link=options.link,
                    debug=options.debug,
                    answers=options.answers,
                    domain=domain,
                    told=partial(progress.count, "stacks recorded"),
                    recorder=recorder,
                )
    told = contents(report)
    _write(options, report, told)
    if told.failed:
        return 2
    return 1 if (options.exit_code and told.changed) or any(_happens(what, report, told) for what in options.fail_on) else 0


def _failing(given: str) -> tuple[str, ...]:
    found = tuple(given.split(","))
    if wrong := [what for what in found if what not in FAILING]:
        raise argparse.ArgumentTypeError(f"invalid choice: '{wrong[0]}' (choose from {', '.join(FAILING)})")
    return found


def _happens(
    what: Literal["replace", "delete", "danger", "unsure", "outage", "loss", "budget"], report: "Report", told: "Contents"
) -> bool:
    if what in ("outage", "loss", "budget"):
        return any(what in danger.effects for stack in report.stacks for danger in stack.dangers)
    if what == "danger":
        return any(stack.dangers for stack in told.stacks)
    # What may be replaced counts as replaced: no word of comfort that the tables do not support.
    unsure = what in ("unsure", "replace") and any(stack.unsure for stack in told.stacks)
    return unsure or (what != "unsure" and bool(told.count(what)))


def _of_files(options: argparse.Namespace, domain: "ComparedDomain", command: str) -> "Report":
    from stackgraph.diff.contents import Revision
    from stackgraph.diff.report import Recorded, Report, StackReport
    from stackgraph.problems import Problem, ProblemsFound

    if options.base or options.head or options.program:
        raise ProblemsFound([Problem("two files take no --base, --head or --program")])
    base, head = (_graph(Path(name), command) for name in options.stacks)
    names = [Revision(name) for name in options.stacks]
    stack = StackReport(head.stack, Recorded(base), Recorded(head), domain)
    return Report(head.project, names[0], names[1], [stack], tool=command)


def _of_state(options: argparse.Namespace, domain: "ComparedDomain", program: "type[Program]", command: str) -> "Report":
    from stackgraph.problems import Problem, ProblemsFound
    from stackgraph.revisions.comparing import compare_deployed

    if options.base or options.head or len(options.stacks) > 1:
        raise ProblemsFound([Problem("--state takes at most one stack, and no --base or --head", key="--state")])
    name = options.stacks[0] if options.stacks else None
    return compare_deployed(
        options.state,
        name,
        folder=options.program,
        program=program,
        command=command,
        domain=domain,
        link=options.link or "",
        debug=options.debug,
        answers=options.answers,
    )


def _graph(file: Path, command: str) -> "Graph":
    import json

    from stackgraph.graph.document import read_graph
    from stackgraph.problems import Problem, ProblemsFound, content

    hint = f"write one with: {command} preview STACK --format json -o FILE"
    try:
        return read_graph(json.loads(content(file)), str(file), hint)
    except (ValueError, RecursionError) as error:
        raise ProblemsFound([Problem(f"not JSON: {error}", file=str(file))]) from error


def _write(options: argparse.Namespace, report: "Report", told: "Contents") -> None:
    from stackgraph.diff.document import render_json
    from stackgraph.diff.markdown import render_markdown
    from stackgraph.diff.page import render_html
    from stackgraph.diff.text import render_text
    from stackgraph.github import LONGEST_BODY
    from stackgraph.presentation.output import drawing, write

    limit = LONGEST_BODY if options.limit is None else options.limit
    renderers = {
        "text": lambda: render_text(told, **drawing(options.output)),
        "markdown": lambda: render_markdown(told, limit),
        "json": lambda: render_json(report),
        "html": lambda: render_html(told),
    }
    write(renderers[options.format](), options.output)
    for name in FORMATS[1:]:
        if file := getattr(options, name):
            write(renderers[name](), file)
