"""Figures as people read them, in tables and in plots."""

from eks_inference.loadtest.report.comparing import Comparison, Row
from eks_inference.loadtest.report.record import Run

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
    return NONE if value is None else f"x {value:.3g}" if value < 1000 else f"x {value:.0f}"


def completed(run: Run) -> str:
    """``44 of 176``: of those asked for, or else of those sent."""
    of = run.asked or run.launched
    return whole(run.completed) + (f" of {of}" if of else "")


def inter_token(run: Run, statistic: str) -> str:
    """The inter-token latency, marked where it counts more than its name says."""
    value = run.value("itl_ms", statistic)
    return figure(value) + (WITH_TTFT if value is not None and run.itl_includes_ttft else "")


def tool(run: Run) -> str:
    return f"{run.tool} {run.tool_version}".strip()


def by_metric(comparison: Comparison) -> dict[str, list[Row]]:
    """The rows of each metric under its title."""
    found: dict[str, list[Row]] = {}
    for row in comparison.rows:
        found.setdefault(row.title, []).append(row)
    return found
