"""Figures as people read them, in tables and in plots."""

from eks_inference_tools.loadtest_report.comparing import Comparison, Row
from eks_inference_tools.loadtest_report.record import Run

NONE = "–"
WITH_TTFT = "*"
WITH_TTFT_MEANS = "* with the time to first token in it"


def figure(value: float | None) -> str:
    """Four digits, or all of those before the point."""
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
    """``44 of 176``: of those asked for, or else of those sent."""
    of = run.asked or run.launched
    return whole(run.completed) + (f" of {of}" if of else "")


def requests(run: Run) -> str:
    """What became of the requests, and how fast."""
    counts = {"asked for": run.asked, "launched": run.launched, "completed": run.completed, "failed": run.failed}
    rates = {"completed a minute": run.completed_per_min, "launched a minute": run.launched_per_min, "seconds": run.duration_s}
    told = [f"{count} {words}" for words, count in counts.items() if count is not None]
    return ", ".join([*told, *(f"{figure(value)} {words}" for words, value in rates.items() if value is not None)])


def inter_token(run: Run, statistic: str) -> str:
    """The inter-token latency, marked where it counts more than its name says."""
    value = run.value("itl_ms", statistic)
    return figure(value) + (WITH_TTFT if value is not None and run.itl_includes_ttft else "")


def tool(run: Run) -> str:
    return f"{run.tool} {run.tool_version}".strip()


COMPARED = ("mean", "p50", "p99")
"""Statistics of a comparison that tables show; the JSON document has all."""


def side_by_side(comparison: Comparison) -> list[list[str]]:
    """A row a metric: its title, then here, there and ratio of each statistic. Figures of a whole run stand under the first."""
    rows: dict[str, dict[str, Row]] = {}
    for row in comparison.rows:
        rows.setdefault(row.title, {})[row.statistic or COMPARED[0]] = row
    cells = []
    for title, of in rows.items():
        found = [of.get(statistic) for statistic in COMPARED]
        if any(found):
            cells.append([title])
            for row in found:
                cells[-1] += [figure(row.this), figure(row.other), ratio(row.ratio)] if row else [""] * 3
    return cells
