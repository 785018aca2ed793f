"""The report as text, no wider than ``WIDTH`` columns."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from eks_inference_tools.loadtest_report import figures
from eks_inference_tools.loadtest_report.comparing import Comparison, Report
from eks_inference_tools.loadtest_report.published import Published
from eks_inference_tools.loadtest_report.record import METRICS, STATISTICS, Run
from stackgraph.presentation.terminal import WIDTH, Columns, Paragraph, drawn, words

Lines = Iterator[RenderableType]


def render_table(report: Report) -> str:
    blocks = [_overview(report.runs), *(_run(run) for run in report.runs)]
    blocks += [_comparison(each, "the first file") for each in report.against_first]
    blocks += [_comparison(each, "published figures") for each in report.against_published]
    blocks += [_source(each) for each in report.published]
    if report.notes:
        blocks.append(_said(f"{note.level}: {note.line()}") for note in report.notes)
    first, *further = blocks
    return drawn([*first, *(line for block in further for line in ("", *block))], width=WIDTH)


def _overview(runs: Sequence[Run]) -> Lines:
    header = ("run", "users", "completed", "failed", "TTFT p50", "ITL mean", "e2e p50", "tokens/s", "chips", "a chip")
    rows = [
        (
            run.label,
            figures.whole(run.users),
            figures.completed(run),
            figures.whole(run.failed),
            figures.figure(run.value("ttft_ms", "p50")),
            figures.inter_token(run, "mean"),
            figures.figure(run.value("e2e_ms", "p50")),
            figures.figure(run.output_tokens_per_s),
            figures.whole(run.chips),
            figures.figure(run.output_tokens_per_s_per_chip),
        )
        for run in runs
    ]
    with_ttft = any(run.itl_includes_ttft for run in runs)
    marks = f"; {figures.WITH_TTFT_MEANS}" if with_ttft else ""
    yield from (_figures(header, rows), "", f"Latencies in milliseconds; tokens are output tokens{marks}.")


def _run(run: Run) -> Lines:
    about = [figures.tool(run), run.model, run.instance_type, run.file]
    yield _said(f"{run.label}: {', '.join(part for part in about if part)}")
    rows = [
        (f"{METRICS[name].short}{_mark(run, name)}", *(figures.figure(run.value(name, statistic)) for statistic in STATISTICS))
        for name in METRICS
        if name in run.metrics
    ]
    if rows:
        yield _figures(("", *STATISTICS), rows)
    if requests := figures.requests(run):
        yield _said(f"requests: {requests}", indent=2)


def _mark(run: Run, metric: str) -> str:
    return figures.WITH_TTFT if run.basis.get(metric) == "request_with_ttft" else ""


def _comparison(comparison: Comparison, with_what: str) -> Lines:
    run, other = comparison.run, comparison.other
    yield _said(f"{run.label} against {with_what}: {other.label}")
    header = ["", *(cell for statistic in figures.COMPARED for cell in (statistic, "there", "ratio"))]
    rows = figures.side_by_side(comparison)
    yield _figures(header, rows) if rows else "  nothing that can be compared"
    yield from (_said(f"{note.level}: {note.line()}", indent=2) for note in comparison.notes)


def _source(published: Published) -> Lines:
    yield _said(f"{published.id}: {published.source}; measured: {published.measured}; read: {published.read}")
    yield from (_said(remark, indent=2) for remark in published.remarks)


def _figures(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Columns:
    return Columns(map(tuple, (header, *rows)), indent=2, right=range(1, len(header)))


def _said(text: str, *, indent: int = 0) -> Paragraph:
    return Paragraph(words(text), " " * indent, " " * (indent + 2))
