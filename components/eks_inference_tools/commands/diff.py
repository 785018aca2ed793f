"""``eks-inference diff``: what a branch changes in every stack, from its code alone."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from eks_inference_tools import COMMAND
from eks_inference_tools.commands.options import add_document, add_program, add_stacks, output_file

if TYPE_CHECKING:
    from stackgraph.diff.report import Report
    from stackgraph.graph.document import Graph

HELP = "what a branch changes in every stack, from its code alone"
FORMATS = ("text", "markdown", "json", "html")
FAILING = ("replace", "delete", "danger")
GITHUB_LIMIT = 65_536
"""Characters in a comment on GitHub."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.description = (
        "Runs the programs of two revisions offline and shows what differs, stack by stack: no credentials, no CLI, no plugin, "
        "no network. Two programs are compared, not a program with what is deployed."
    )
    add_stacks(parser, ", or two files of `preview --format json`")
    parser.add_argument("--base", metavar="REV", help="what to compare with (default: where origin's main branch was left)")
    parser.add_argument("--head", metavar="REV", help="what changes (default: the working tree as it is)")
    add_program(parser)
    add_document(parser, FORMATS)
    for name in FORMATS[1:]:
        parser.add_argument(f"--{name}", metavar="FILE", type=output_file, help=f"write the report as {name}, too")
    parser.add_argument(
        "--limit", metavar="CHARACTERS", type=int, default=GITHUB_LIMIT, help="of markdown (default: GitHub's, %(default)s)"
    )
    parser.add_argument("--link", metavar="URL", help="what source files are below in markdown (default: from origin, on GitHub)")
    parser.add_argument("--exit-code", action="store_true", help="exit code 1 when something changes")
    parser.add_argument(
        "--fail-on", metavar="WHAT", type=_failing, default=(), help=f"exit code 1 when it happens: {','.join(FAILING)}"
    )


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code; raises ``ProblemsFound`` when there is nothing to compare."""
    from eks_inference_tools.interrupts import ending_cleanly

    with ending_cleanly():
        report = _of_files(options) if _are_files(options) else _of_revisions(options)
    _write(options, report)
    if report.failed:
        return 2
    return 1 if (options.exit_code and report.changed) or any(_happens(what, report) for what in options.fail_on) else 0


def _failing(given: str) -> tuple[str, ...]:
    found = tuple(given.split(","))
    if wrong := [what for what in found if what not in FAILING]:
        raise argparse.ArgumentTypeError(f"'{wrong[0]}' is none of {', '.join(FAILING)}")
    return found


def _happens(what: str, report: "Report") -> bool:
    if what == "danger":
        return any(stack.dangers for stack in report.stacks)
    return bool(report.counts["replace" if what == "replace" else "delete"])


def _of_revisions(options: argparse.Namespace) -> "Report":
    from eks_inference_tools.revisions.comparing import compare

    return compare(
        options.stacks,
        base=options.base,
        head=options.head,
        program=options.program,
        link=options.link,
        debug=options.debug,
    )


# -- two files -------------------------------------------------------------------------------------------------------------------


def _are_files(options: argparse.Namespace) -> bool:
    return len(options.stacks) == 2 and all(name.endswith(".json") for name in options.stacks)


def _of_files(options: argparse.Namespace) -> "Report":
    from eks_inference_tools.reading.domain import EKS
    from stackgraph.diff.report import Recorded, Report, Revision, StackReport
    from stackgraph.problems import Problem, ProblemsFound

    if options.base or options.head or options.program:
        raise ProblemsFound([Problem("two files are compared as they are", allowed="no --base, --head or --program with them")])
    base, head = (_graph(Path(name)) for name in options.stacks)
    names = [Revision(name) for name in options.stacks]
    stack = StackReport(head.stack, Recorded(base), Recorded(head), EKS)
    return Report(head.project, names[0], names[1], [stack], tool=COMMAND)


def _graph(file: Path) -> "Graph":
    import json

    from stackgraph.graph.saved import read_graph
    from stackgraph.problems import Problem, ProblemsFound

    hint = f"write one with: {COMMAND} preview STACK --format json -o FILE"
    try:
        return read_graph(json.loads(file.read_text(encoding="utf-8")), str(file), hint)
    except OSError as error:
        raise ProblemsFound([Problem(f"cannot be read: {error.strerror}", file=str(file))]) from error
    except ValueError as error:
        raise ProblemsFound([Problem(f"not JSON: {error}", file=str(file))]) from error


# -- output ----------------------------------------------------------------------------------------------------------------------


def _write(options: argparse.Namespace, report: "Report") -> None:
    from eks_inference_tools.presentation.output import colour, write

    wanted: list[tuple[str, Path | None]] = [(options.format, options.output)]
    wanted += [(name, file) for name in FORMATS[1:] if (file := getattr(options, name)) is not None]
    for format_, file in wanted:
        write(_renderers(options, colour=file is None and colour())[format_](report), file)


def _renderers(options: argparse.Namespace, *, colour: bool) -> Mapping[str, Callable[["Report"], str]]:
    from stackgraph.diff.document import render_json
    from stackgraph.diff.markdown import render_markdown
    from stackgraph.diff.page import render_html
    from stackgraph.diff.text import render_text

    return {
        "text": lambda report: render_text(report, colour=colour),
        "markdown": lambda report: render_markdown(report, options.limit),
        "json": render_json,
        "html": render_html,
    }
