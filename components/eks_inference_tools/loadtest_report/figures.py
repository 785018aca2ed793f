"""Formats figures for tables and plots."""

from eks_inference_tools.loadtest_report.compared_runs import Comparison, Row
from eks_inference_tools.loadtest_report.record import Run

NONE = "–"
WITH_TTFT = "*"
WITH_TTFT_MEANS = "* including the time to first token"


def figure(value: float | None) -> str:
    """Formats a value with four significant digits, or with all its integer digits."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{value:.{digits}f}"


def whole(value: int | None) -> str:
    return NONE if value is None else str(value)


def ratio(value: float | None) -> str:
    if value is None:
        return NONE
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 4
    return f"x {value:.{digits}f}"


def completed(run: Run) -> str:
    """``44 of 176``: completed of planned requests, or else of launched ones."""
    of = run.asked or run.launched
    return whole(run.completed) + (f" of {of}" if of else "")


def requests(run: Run) -> str:
    """Returns counts and rates of requests in one line."""
    counts = {"planned": run.asked, "launched": run.launched, "completed": run.completed, "failed": run.failed}
    rates = {
        "completed per minute": run.completed_per_min,
        "launched per minute": run.launched_per_min,
        "seconds": run.duration_s,
    }
    told = [f"{count} {words}" for words, count in counts.items() if count is not None]
    return ", ".join([*told, *(f"{figure(value)} {words}" for words, value in rates.items() if value is not None)])


def inter_token(run: Run, statistic: str) -> str:
    """Formats the inter-token latency, marked if it includes the time to first token."""
    value = run.value("itl_ms", statistic)
    return figure(value) + (WITH_TTFT if value is not None and run.itl_includes_ttft else "")


def tool(run: Run) -> str:
    return f"{run.tool} {run.tool_version}".strip()


def overview(run: Run) -> tuple[str, ...]:
    """Returns the cells of a run in the overview: users, completed, failed, latencies, throughput, chips, throughput per chip."""
    return (
        whole(run.users),
        completed(run),
        whole(run.failed),
        figure(run.value("ttft_ms", "p50")),
        inter_token(run, "mean"),
        figure(run.value("e2e_ms", "p50")),
        figure(run.output_tokens_per_s),
        whole(run.chips),
        figure(run.output_tokens_per_s_per_chip),
    )


COMPARED = ("mean", "p50", "p99")
"""Statistics that tables of comparisons show; the JSON document has all."""


def side_by_side(comparison: Comparison) -> list[list[str]]:
    """Returns a row per metric: title, then here, there and ratio of each statistic. Whole-run figures use the first columns."""
    rows: dict[str, dict[str, Row]] = {}
    for row in comparison.rows:
        rows.setdefault(row.title, {})[row.statistic or COMPARED[0]] = row
    cells = []
    for title, of in rows.items():
        if of.keys() & set(COMPARED):
            cells.append([title])
            for row in map(of.get, COMPARED):
                cells[-1] += [figure(row.this), figure(row.other), ratio(row.ratio)] if row else [""] * 3
    return cells
