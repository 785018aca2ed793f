"""The report as text, no wider than ``WIDTH`` columns."""

import textwrap
from collections.abc import Iterator, Sequence

from eks_inference_tools.loadtest_report import figures
from eks_inference_tools.loadtest_report.comparing import Comparison, Report
from eks_inference_tools.loadtest_report.published import Published
from eks_inference_tools.loadtest_report.record import METRICS, STATISTICS, Run

WIDTH = 110
_GAP = "  "


def render_table(report: Report) -> str:
    blocks = [_overview(report.runs), *(list(_run(run)) for run in report.runs)]
    blocks += [list(_comparison(each, "the first file")) for each in report.against_first]
    blocks += [list(_comparison(each, "published figures")) for each in report.against_published]
    blocks += [list(_source(each)) for each in report.published]
    if report.notes:
        blocks.append([line for note in report.notes for line in _wrapped(f"{note.level}: {note.line()}")])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _overview(runs: Sequence[Run]) -> list[str]:
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
    return [*_columns(header, rows), "", f"Latencies in milliseconds; tokens are output tokens{marks}."]


def _run(run: Run) -> Iterator[str]:
    about = [figures.tool(run), run.model, run.instance_type, run.file]
    yield from _wrapped(f"{run.label}: {', '.join(part for part in about if part)}")
    rows = [
        (f"{METRICS[name].short}{_mark(run, name)}", *(figures.figure(run.value(name, statistic)) for statistic in STATISTICS))
        for name in METRICS
        if name in run.metrics
    ]
    if rows:
        yield from _columns(("", *STATISTICS), rows)
    if requests := figures.requests(run):
        yield from _wrapped(f"  requests: {requests}", further="    ")


def _mark(run: Run, metric: str) -> str:
    return figures.WITH_TTFT if run.basis.get(metric) == "request_with_ttft" else ""


def _comparison(comparison: Comparison, with_what: str) -> Iterator[str]:
    run, other = comparison.run, comparison.other
    yield from _wrapped(f"{run.label} against {with_what}: {other.label}")
    header = ["", *(cell for statistic in figures.COMPARED for cell in (statistic, "there", "ratio"))]
    rows = figures.side_by_side(comparison)
    yield from _columns(header, rows) if rows else ["  nothing that can be compared"]
    for note in comparison.notes:
        yield from _wrapped(f"  {note.level}: {note.line()}", further="    ")


def _source(published: Published) -> Iterator[str]:
    yield from _wrapped(f"{published.id}: {published.source}; measured: {published.measured}; read: {published.read}")
    for remark in published.remarks:
        yield from _wrapped(f"  {remark}", further="    ")


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned cells; the first column is cut where the line would be too long."""
    widths = [max(len(row[index]) for row in (header, *rows)) for index in range(len(header))]
    widths[0] = min(widths[0], WIDTH - sum(widths[1:]) - len(_GAP) * len(widths))
    lines = []
    for first, *others in (header, *rows):
        cells = [
            figures.cut(first, widths[0]).ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)),
        ]
        lines.append((_GAP + _GAP.join(cells)).rstrip())
    return lines


def _wrapped(text: str, further: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)
