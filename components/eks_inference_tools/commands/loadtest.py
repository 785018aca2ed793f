"""``eks-inference loadtest report``: compares results of several load test tools with each other and with published figures."""

import argparse
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from eks_inference_tools.commands.wishes import refuse
from stackgraph.commands.options import add_document, add_program, number_of

if TYPE_CHECKING:
    from eks_inference.serving.facts import ServingFacts
    from eks_inference_tools.loadtest_report.compared_runs import Report
    from eks_inference_tools.loadtest_report.record import Run
    from stackgraph.problems import Problem

T = TypeVar("T")

HELP = "compare results of load tests with each other and with published figures"
EXAMPLES = (
    "loadtest report baseline.json pair.json --chips 16 --chips 32",
    "loadtest report result.json --format html -o report.html",
    "loadtest report summary.jsonl --stack inf2-llama2",
)


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    report = commands.add_parser(
        "report",
        help="compare results of load tests",
        description="Reads results of genai-perf, aiperf, vllm bench serve, GuideLLM and the library's "
        "own load test, and compares them with each other and with published figures. The first file is the baseline of the "
        "others. Throughput is compared per chip. An option that is given once applies to all files; one that is given for each "
        "file applies to the files in order.",
    )
    report.add_argument(
        "files", nargs="*", metavar="FILE", type=Path, help="a summary as the tool wrote it (default: the figures of --stack)"
    )
    report.add_argument(
        "--stack",
        dest="measured",
        metavar="STACK",
        help="the stack that was measured: what is predicted for it, and why the result is slower (docs/traffic.md)",
    )
    add_program(report)
    report.add_argument(
        "--chips",
        metavar="N",
        type=number_of("chips"),
        action="append",
        default=[],
        help="total number of Neuron devices or GPUs that served (default: as stated in the file)",
    )
    report.add_argument(
        "--instance", metavar="TYPE", action="append", default=[], help="instance type that served, e.g. inf2.48xlarge"
    )
    report.add_argument(
        "--label", metavar="TEXT", action="append", default=[], help="name for a file's runs (default: the file's name)"
    )
    report.add_argument(
        "--published",
        metavar="ID",
        help="published figures to compare with, whatever the model, or 'none' (default: those of the model)",
    )
    add_document(report, ("text", "json", "html"))


def run(options: argparse.Namespace) -> int:
    from stackgraph.presentation.output import write

    write(_render(_report(options), options), options.output)
    return 0


def _report(options: argparse.Namespace) -> "Report":
    from eks_inference_tools.loadtest_report.compared_runs import compare
    from eks_inference_tools.loadtest_report.readers.detection import read_all
    from eks_inference_tools.loadtest_report.record import published
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
    named = _named(read, options)
    if options.measured is None:
        return compare(named, figures, any_model=bool(options.published))
    from eks_inference_tools.loadtest_report.predicted import predicted

    name, servers = _stack(options)
    if not named:
        if name not in known:
            refuse("no published figures of this stack", "--stack", name, ", ".join(known))
        named, figures = [known[name].runs], {}
    expected, slow = predicted(servers, named)
    return compare(named, figures, any_model=bool(options.published), predicted=expected, slow=slow)


def _stack(options: argparse.Namespace) -> "tuple[str, list[ServingFacts]]":
    """The name of the stack and its servers. Raises ``ProblemsFound`` for a program without a stack object."""
    from eks_inference.serving.facts import ServingFacts
    from eks_inference.stack.facts import stack_facts
    from eks_inference_tools.program import REGION_KEY, program

    found = program(options.measured, options.program, debug=options.debug, answers=options.answers)
    spec, region = found.spec(), found.config.values.get(REGION_KEY)
    if spec is None or region is None:
        refuse("has no stack object with a region", "--stack", found.document.shown)
    return found.stack, [stack_fact for stack_fact in stack_facts(spec, region) if isinstance(stack_fact, ServingFacts)]


def _wrong_options(options: argparse.Namespace, known: Collection[str]) -> "list[Problem]":
    from stackgraph.problems import Problem, real

    files = len(options.files)
    if not files and options.measured is None:
        return [Problem("name a file, or a stack with published figures", key="--stack")]
    found = [
        Problem(f"--{name} is given {given} times for {files} files", allowed="once, or once for each file")
        for name in ("chips", "instance", "label")
        if (given := len(getattr(options, name))) not in (0, 1, files)
    ]
    if len({real(path) for path in options.files}) < files:
        found.append(Problem("a file is given twice", given=" ".join(map(str, options.files))))
    if options.published not in (None, "none", *known):
        found.append(
            Problem("--published names no published figures", given=options.published, allowed=", ".join((*known, "none")))
        )
    return found


def _named(files: "Sequence[Sequence[Run]]", options: argparse.Namespace) -> "list[list[Run]]":
    """The runs with unique labels, and with the chips and instance types that the options give."""
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
    """The file's label; for several runs, followed by what distinguishes them: server, users, position."""
    if len(runs) == 1:
        return [file]
    servers = len({run.label for run in runs}) > 1
    parts = [(file, *([run.label] if servers else []), *([f"{run.users} users"] if run.users else [])) for run in runs]
    again = len(set(parts)) < len(parts)
    return [", ".join((*part, *([f"run {place}"] if again else []))) for place, part in enumerate(parts, start=1)]


def _of(values: Sequence[T], number: int) -> T | None:
    """The value of an option for a file. A single value is for all files."""
    return values[0 if len(values) == 1 else number] if values else None


def _labels(paths: Sequence[Path], prefix: Sequence[str]) -> list[str]:
    """Labels each file by its name, or by its nearest folder whose name no other file has at the same depth."""
    parts = [(path.stem, *reversed(path.resolve().parent.parts)) for path in paths]
    taken = Counter(place for part in parts for place in enumerate(part))
    labels = [next((name for depth, name in enumerate(part) if taken[depth, name] == 1), part[0]) for part in parts]
    if len(set(labels)) < len(labels):
        labels = list(map(str, paths))
    return [f"{prefix[0]}, {label}" for label in labels] if prefix else labels


def _render(report: "Report", options: argparse.Namespace) -> str:
    if options.format == "json":
        from stackgraph.presentation.output import json_text

        return json_text(report.document())
    if options.format == "html":
        from eks_inference_tools.loadtest_report.page import render_html

        return render_html(report)
    from eks_inference_tools.loadtest_report.table import render_table
    from stackgraph.presentation.output import drawing

    return render_table(report, **drawing(options.output))
