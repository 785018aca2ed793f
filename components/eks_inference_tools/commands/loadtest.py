"""``eks-inference loadtest report``: results of load tests, of whatever tool, beside each other and beside published figures."""

import argparse
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from eks_inference_tools.commands.options import add_document

# The parser is built for every command; what a report needs is imported when one is made.
if TYPE_CHECKING:
    from eks_inference_tools.loadtest_report.comparing import Report
    from eks_inference_tools.loadtest_report.record import Run
    from stackgraph.problems import Problem

T = TypeVar("T")

HELP = "results of load tests side by side, and beside published figures"
FORMATS = ("text", "json", "html")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the sub-commands of ``loadtest`` and their options."""
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
    report.add_argument(
        "--label", metavar="TEXT", action="append", default=[], help="name of a file's runs (default: the file's)"
    )
    report.add_argument(
        "--published",
        metavar="ID",
        help="compare with these published figures, whatever the model, or with 'none' (default: those of the model)",
    )
    add_document(report, FORMATS)


def run(options: argparse.Namespace) -> int:
    """Makes the report; raises ``ProblemsFound`` with everything that is wrong with what was given."""
    from eks_inference_tools.presentation.output import write

    write(_render(_report(options), options.format), options.output)
    return 0


def _report(options: argparse.Namespace) -> "Report":
    from eks_inference_tools.loadtest_report.comparing import compare
    from eks_inference_tools.loadtest_report.published import published
    from eks_inference_tools.loadtest_report.readers.detection import read_all
    from stackgraph.problems import ProblemsFound

    known = published()
    problems = list(_wrong_options(options, known))
    read: list[list[Run]] = []
    try:
        read = read_all(options.files)
    except ProblemsFound as error:
        problems += error.problems
    if problems:
        raise ProblemsFound(problems)
    figures = {} if options.published == "none" else {options.published: known[options.published]} if options.published else known
    return compare(_named(read, options), figures, any_model=bool(options.published))


def _wrong_options(options: argparse.Namespace, known: Collection[str]) -> "list[Problem]":
    from stackgraph.problems import Problem

    files = len(options.files)
    found = [
        Problem(f"--{name} is given {given} times for {files} files", allowed="once, or once for each file")
        for name in ("chips", "instance", "label")
        if (given := len(getattr(options, name))) not in (0, 1, files)
    ]
    if len({path.resolve() for path in options.files}) < files:
        found.append(Problem("a file is given twice", given=" ".join(map(str, options.files))))
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
        named.append(
            [replace(run, label=label, **told) for run, label in zip(runs, _run_labels(labels[number], runs), strict=True)]
        )
    return named


def _run_labels(file: str, runs: "Sequence[Run]") -> list[str]:
    """The file's label, and of several runs what tells them apart: the server, the users, the place."""
    if len(runs) == 1:
        return [file]
    servers = len({run.label for run in runs}) > 1
    parts = [(file, *([run.label] if servers else []), *([f"{run.users} users"] if run.users else [])) for run in runs]
    again = len(set(parts)) < len(parts)
    return [", ".join((*part, *([f"run {place}"] if again else []))) for place, part in enumerate(parts, start=1)]


def _of(values: Sequence[T], number: int) -> T | None:
    """The value for a file: its own, or the one for all."""
    return values[0 if len(values) == 1 else number] if values else None


def _labels(paths: Sequence[Path], prefix: Sequence[str]) -> list[str]:
    """Each file by its own name, or by that of its nearest folder that no other file has in this place."""
    parts = [(path.stem, *reversed(path.resolve().parent.parts)) for path in paths]
    taken = Counter(place for part in parts for place in enumerate(part))
    labels = [next((name for depth, name in enumerate(part) if taken[depth, name] == 1), part[0]) for part in parts]
    if len(set(labels)) < len(labels):
        labels = list(map(str, paths))
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
        from eks_inference_tools.loadtest_report.page import render_html

        return render_html(report)
    from eks_inference_tools.loadtest_report.table import render_table

    return render_table(report)
