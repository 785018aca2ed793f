"""Renders the report as text for a terminal."""

from collections.abc import Iterator, Sequence
from typing import Unpack

from rich.console import RenderableType

from eks_inference_tools.loadtest_report import figures
from eks_inference_tools.loadtest_report.compared_runs import Comparison, Report
from eks_inference_tools.loadtest_report.record import METRICS, STATISTICS, Published, Run
from stackgraph.presentation.output import Drawing
from stackgraph.presentation.terminal import Columns, Paragraph, drawn, words

Lines = Iterator[RenderableType]


def render_table(report: Report, **drawing: Unpack[Drawing]) -> str:
    blocks = [_overview(report.runs), *(_run(run) for run in report.runs)]
    blocks += [_comparison(each, "the first file") for each in report.against_first]
    blocks += [
        _comparison(each, "predictions" if each.other.tool == "prediction" else "published figures")
        for each in report.against_published
    ]
    blocks += [_source(each) for each in report.published]
    if report.notes:
        blocks.append(_paragraph(f"{note.level}: {note.line()}") for note in report.notes)
    first, *further = blocks
    return drawn([*first, *(line for block in further for line in ("", *block))], **drawing)


def _overview(runs: Sequence[Run]) -> Lines:
    header = ("run", "users", "completed", "failed", "TTFT p50", "ITL mean", "e2e p50", "tokens/s", "chips", "per chip")
    rows = [(run.label, *figures.overview(run)) for run in runs]
    marks = f"; {figures.WITH_TTFT_MEANS}" if any(run.itl_includes_ttft for run in runs) else ""
    yield from (_columns(header, rows), "", f"Latencies in milliseconds; tokens are output tokens{marks}.")


def _run(run: Run) -> Lines:
    about = [figures.tool(run), run.model, run.instance_type, run.file]
    yield _paragraph(f"{run.label}: {', '.join(part for part in about if part)}")
    rows = [
        (
            METRICS[name].short + (figures.WITH_TTFT if run.basis.get(name) == "request_with_ttft" else ""),
            *(figures.figure(run.value(name, statistic)) for statistic in STATISTICS),
        )
        for name in METRICS
        if name in run.metrics
    ]
    if rows:
        yield _columns(("", *STATISTICS), rows)
    if requests := figures.requests(run):
        yield _paragraph(f"requests: {requests}", indent=2)


def _comparison(comparison: Comparison, with_what: str) -> Lines:
    run, other = comparison.run, comparison.other
    yield _paragraph(f"{run.label} against {with_what}: {other.label}")
    header = ["", *(cell for statistic in figures.COMPARED for cell in (statistic, "there", "ratio"))]
    rows = figures.side_by_side(comparison)
    yield _columns(header, rows) if rows else "  no comparable figures"
    yield from (_paragraph(f"{note.level}: {note.line()}", indent=2) for note in comparison.notes)


def _source(published: Published) -> Lines:
    yield _paragraph(f"{published.id}: {published.source}; measured: {published.measured}; read: {published.read}")
    yield from (_paragraph(remark, indent=2) for remark in published.remarks)


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Columns:
    return Columns(map(tuple, (header, *rows)), indent=2, right=range(1, len(header)), headings=1)


def _paragraph(text: str, *, indent: int = 0) -> Paragraph:
    return Paragraph(words(text), " " * indent, " " * (indent + 2))
