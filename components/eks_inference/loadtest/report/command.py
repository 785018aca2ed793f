"""``eks-inference loadtest report``: results of load tests, of whatever tool, beside each other and beside published figures.

Exit codes: 0 done; 2 a file cannot be read, or what was given cannot be used.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

# The parser is built for every command; what a report needs is imported when one is made.
if TYPE_CHECKING:
    from eks_inference.loadtest.report.comparing import Report
    from eks_inference.loadtest.report.record import Run
    from eks_inference.preview.errors import Problem

FORMATS = ("table", "json", "html")

Write = Callable[[str, Path | None], None]
"""Takes a text to a file, or to standard output."""


def configure(parser: argparse.ArgumentParser, write: Write) -> None:
    """Adds the sub-commands of ``loadtest`` and what runs them."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    report = commands.add_parser(
        "report",
        help="results of load tests side by side",
        description="Reads results of LLMPerf (patched or not), genai-perf, aiperf, vllm bench serve, GuideLLM and the library's "
        "own load test, and puts them beside each other and beside the figures the sources published. The first file is the "
        "baseline of the others. Throughput is compared chip by chip. Options that are given several times, once for each file, "
        "go to the files in order; given once, they are for all.",
    )
    report.add_argument("files", nargs="+", metavar="FILE", type=Path, help="a summary as the tool wrote it")
    report.add_argument(
        "--chips",
        metavar="N",
        type=_chips,
        action="append",
        default=[],
        help="Neuron devices or GPUs that served, all together (default: what the file tells)",
    )
    report.add_argument(
        "--instance", metavar="TYPE", action="append", default=[], help="instance type that served, e.g. inf2.48xlarge"
    )
    report.add_argument("--label", metavar="TEXT", action="append", default=[], help="name of a file's runs (default: the file's)")
    report.add_argument(
        "--published",
        metavar="ID",
        help="compare with these published figures, whatever the model, or with 'none' (default: those of the model)",
    )
    report.add_argument("--format", choices=FORMATS, default="table", help="default: %(default)s")
    report.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to a file instead of standard output")
    report.set_defaults(run=lambda options: run(options, write))


def run(options: argparse.Namespace, write: Write) -> int:
    """Makes the report; raises ``PreviewError`` with everything that is wrong with what was given."""
    write(_render(_report(options), options.format), options.output)
    return 0


def _report(options: argparse.Namespace) -> "Report":
    from eks_inference.loadtest.report.comparing import compare
    from eks_inference.loadtest.report.published import published
    from eks_inference.loadtest.report.reading import read_all
    from eks_inference.preview.errors import PreviewError

    known = published()
    problems = list(_wrong_options(options, known))
    try:
        read = read_all(options.files)
    except PreviewError as error:
        problems += error.problems
    if problems:
        raise PreviewError(problems)
    figures = {} if options.published == "none" else {options.published: known[options.published]} if options.published else known
    return compare(_named(read, options), figures, any_model=bool(options.published))


def _wrong_options(options: argparse.Namespace, known: Sequence[str]) -> "list[Problem]":
    from eks_inference.preview.errors import Problem

    files = len(options.files)
    found = [
        Problem(f"--{name} is given {given} times for {files} files", allowed="once, or once for each file")
        for name in ("chips", "instance", "label")
        if (given := len(getattr(options, name))) not in (0, 1, files)
    ]
    if options.published not in (None, "none", *known):
        found.append(
            Problem("--published names no published figures", given=options.published, allowed=", ".join((*known, "none")))
        )
    return found


def _named(files: "Sequence[Sequence[Run]]", options: argparse.Namespace) -> "list[list[Run]]":
    """The runs with what was told of them, each with a label of its own."""
    labels = options.label if len(options.label) == len(files) else _labels(options.files, options.label)
    named = []
    for number, runs in enumerate(files):
        chips, instance = _of(options.chips, number), _of(options.instance, number)
        told = ({"chips": chips} if chips else {}) | ({"instance_type": instance} if instance else {})
        label = labels[number]
        named.append(
            [
                replace(run, label=label if len(runs) == 1 else f"{label}, {run.users or place} users", **told)
                for place, run in enumerate(runs, start=1)
            ]
        )
    return named


def _of(values: Sequence, number: int):
    return values[0 if len(values) == 1 else number] if values else None


def _labels(paths: Sequence[Path], prefix: Sequence[str]) -> list[str]:
    """Names of files, with as many folders before them as it takes to tell them apart."""
    parts = [(*path.resolve().parent.parts[1:], path.stem) for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        labels = ["/".join(part[-depth:]) for part in parts]
        if len(set(labels)) == len(labels):
            break
    return [f"{prefix[0]}, {label}" for label in labels] if prefix else labels


def _chips(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of chips, e.g. 4")
    return number


def _render(report: "Report", format_: str) -> str:
    if format_ == "json":
        import json

        return json.dumps(report.document(), indent=2, ensure_ascii=False) + "\n"
    if format_ == "html":
        from eks_inference.loadtest.report.page import render_page

        return render_page(report)
    from eks_inference.loadtest.report.table import render_table

    return render_table(report)
