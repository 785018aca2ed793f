"""Renders the report as one HTML page with plots, without network access, further files or scripts.

Each plot has a description in words; tables of the page contain its figures. The style sheet sets colours by class.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from eks_inference_tools.loadtest_report import figures
from eks_inference_tools.loadtest_report.compared_runs import Comparison, Report
from eks_inference_tools.loadtest_report.figures import figure
from eks_inference_tools.loadtest_report.record import BASES, METRICS, STATISTICS, Published, Run, Spread
from stackgraph.domain import Curve, Plot
from stackgraph.graph.wording import counted, shorten
from stackgraph.presentation import markup
from stackgraph.presentation.curves import render_plot
from stackgraph.presentation.markup import Markup, Section, asset, element, render_page, together

_WIDTH = 760
_LABEL_WIDTH = 240  # width of the names on the left
_VALUE_WIDTH = 70  # space for a figure after the longest bar
_ROW_HEIGHT = 28
_AXIS_HEIGHT = 30
_LABEL_LETTERS = 30

_PLOTTED = ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms", "second_token_ms")
_ASIDES = {"gap": " (gaps)", "request_with_ttft": " (with TTFT)"}
_LEGEND = "Line: smallest to largest figure from the tool. Bar: 25th to 75th percentile. Stroke: median. Dot: mean."
_BASIS_NAMES = {"gap": "gaps", "request": "per request", "request_with_ttft": "per request, with TTFT"}


@dataclass(frozen=True)
class Mark:
    """One row of a plot. ``kind`` is a CSS class: ``run`` or ``published``. ``aside`` follows the label and is never cut."""

    label: str
    kind: str
    spread: Spread
    aside: str = ""


def ranges(name: str, title: str, marks: Sequence[Mark]) -> Markup:
    """Draws a line from smallest to largest value, a bar between quartiles, a stroke at the median, a dot at the mean."""
    scale = _Scale(max((value for mark in marks for key, value in mark.spread.items() if key != "stddev"), default=0))
    drawn = [scale.grid(len(marks) * _ROW_HEIGHT)]
    for number, mark in enumerate(marks):
        spread, middle = mark.spread, number * _ROW_HEIGHT + _ROW_HEIGHT / 2
        shown = ", ".join(f"{key} {figure(spread[key])}" for key in STATISTICS if key in spread)
        parts: list[Markup] = [element("title", f"{mark.label}: {shown}"), _name(mark.label, middle, mark.aside)]
        known = [value for key, value in spread.items() if key != "stddev"]
        if known:
            parts.append(markup.line("whisker", scale.x(min(known)), middle, scale.x(max(known)), middle))
        if "p25" in spread and "p75" in spread:
            left, right = scale.x(spread["p25"]), scale.x(spread["p75"])
            parts.append(markup.rect("quartiles", left, middle - 6, max(right - left, 1), 12))
        if "p50" in spread:
            parts.append(markup.line("median", scale.x(spread["p50"]), middle - 9, scale.x(spread["p50"]), middle + 9))
        if "mean" in spread:
            parts.append(
                element("circle", class_="mean", cx=markup.length(scale.x(spread["mean"])), cy=markup.length(middle), r=3)
            )
        drawn.append(element("g", *parts, class_=mark.kind))
    of_each = "; ".join(f"{mark.label}: median {figure(mark.spread.get('p50'))}" for mark in marks)
    return _plot(name, title, of_each, len(marks) * _ROW_HEIGHT + _AXIS_HEIGHT, drawn)


def bars(name: str, title: str, values: Sequence[tuple[str, str, float]]) -> Markup:
    """Draws a bar for each (label, class, value)."""
    scale = _Scale(max((value for _, _, value in values), default=0))
    drawn = [scale.grid(len(values) * _ROW_HEIGHT)]
    for number, (label, kind, value) in enumerate(values):
        middle, end = number * _ROW_HEIGHT + _ROW_HEIGHT / 2, scale.x(value)
        drawn.append(
            element(
                "g",
                element("title", f"{label}: {figure(value)}"),
                _name(label, middle),
                markup.rect("bar", _LABEL_WIDTH, middle - 8, max(end - _LABEL_WIDTH, 1), 16),
                markup.label("value", end + 6, middle + 4, figure(value)),
                class_=kind,
            )
        )
    in_words = "; ".join(f"{label}: {figure(value)}" for label, _, value in values)
    return _plot(name, title, in_words, len(values) * _ROW_HEIGHT + _AXIS_HEIGHT, drawn)


class _Scale:
    """A horizontal scale from 0 to a round number at or above the largest value."""

    def __init__(self, largest: float) -> None:
        self._steps = markup.round_steps(largest)

    def x(self, value: float) -> float:
        return _LABEL_WIDTH + (_WIDTH - _LABEL_WIDTH - _VALUE_WIDTH) * (value / self._steps[-1])

    def grid(self, height: float) -> Markup:
        lines = [markup.line("grid", self.x(step), 0, self.x(step), height) for step in self._steps]
        texts = [markup.label("tick", self.x(step), height + 18, f"{step:g}") for step in self._steps]
        return together(*lines, *texts)


def _plot(name: str, title: str, in_words: str, height: float, drawn: Sequence[Markup]) -> Markup:
    return markup.picture(name, title, in_words, (_WIDTH, height), drawn, class_="plot")


def _name(label: str, middle: float, aside: str = "") -> Markup:
    return markup.label("name", _LABEL_WIDTH - 12, middle + 4, shorten(label, _LABEL_LETTERS - len(aside)) + aside)


def render_html(report: Report) -> str:
    """Returns the page of ``loadtest report --format html``. Equal reports give equal bytes; texts from files are escaped."""
    tools = ", ".join(sorted({run.tool for run in report.runs}))
    return render_page(
        title=f"{_title(report)} · load test",
        header=[
            element("p", "Load test", class_="eyebrow"),
            element("h1", _title(report)),
            element("p", f"{counted(len(report.runs), 'run')}, measured with {tools}", class_="lede"),
        ],
        skip="Skip to the runs",
        first="runs",
        sections=_sections(report),
        footer=[
            element(
                "p", "Latencies in milliseconds. ", *(f"“{_BASIS_NAMES[basis]}”: {words}. " for basis, words in BASES.items())
            )
        ],
        style=asset("eks_inference_tools.loadtest_report", "report.css"),
    )


def _title(report: Report) -> str:
    models = list(dict.fromkeys(run.model for run in report.runs if run.model))
    return models[0] if len(models) == 1 else f"{len(models)} models" if models else "Load test"


def _sections(report: Report) -> Iterator[Section]:
    warnings = [element("li", note.line()) for note in report.notes if note.level == "warning"]
    notes = [element("li", note.line()) for note in report.notes if note.level != "warning"]
    yield Section("warnings", "Warnings", [element("ul", *warnings)] if warnings else [])
    yield Section("runs", "Runs", list(_overview(report.runs)))
    yield Section("latency", "Latency", _latency(report))
    yield Section("throughput", "Throughput", list(_throughput(report)))
    yield Section("users", "By concurrent users", list(_by_users(report)))
    sources = [part for each in report.published for part in _source(each)]
    beside = [part for each in report.against_published for part in _comparison(each)]
    others = "published and predicted" if any(each.id == "predicted" for each in report.published) else "published"
    yield Section("published", f"Against {others} figures", [*sources, *beside])
    yield Section("first", "Against the first file", [part for each in report.against_first for part in _comparison(each)])
    yield Section("figures", "Every figure", [part for run in report.runs for part in _run(run)])
    yield Section("notes", "Notes", [element("ul", *notes)] if notes else [])


def _overview(runs: Sequence[Run]) -> Iterator[Markup]:
    header = (
        "Run",
        "Users",
        "Completed",
        "Failed",
        "TTFT p50",
        "ITL mean",
        "End to end p50",
        "Output tokens/s",
        "Chips",
        "Per chip",
    )
    rows = [
        (
            together(run.label, _below(", ".join(part for part in (figures.tool(run), run.instance_type) if part))),
            *figures.overview(run),
        )
        for run in runs
    ]
    yield _table("Runs", header, rows)
    if any(run.itl_includes_ttft for run in runs):
        yield element("p", figures.WITH_TTFT_MEANS, class_="quiet")


# -- plots ----------------------------------------------------------------------------------------------------------------------


def _shown(report: Report) -> list[tuple[Run, str]]:
    """Returns all runs, then the published ones in comparisons, each with its CSS class."""
    others = {each.other.label: each.other for each in report.against_published}
    return [*((run, "run") for run in report.runs), *((other, "published") for other in others.values())]


def _latency(report: Report) -> Sequence[Markup]:
    drawn = []
    for name in _PLOTTED:
        marks = [
            Mark(run.label, kind, run.metrics[name], _ASIDES.get(run.basis.get(name, "request"), ""))
            for run, kind in _shown(report)
            if name in run.metrics
        ]
        if marks:
            title = METRICS[name].title
            drawn.append(_figure(ranges(f"plot-{name.replace('_', '-')}", title, marks), title))
    return [element("p", _LEGEND, class_="quiet"), *drawn] if drawn else []


def _throughput(report: Report) -> Iterator[Markup]:
    shown = _shown(report)
    a_chip = [(run.label, kind, run.output_tokens_per_s_per_chip) for run, kind in shown]
    totals = [(run.label, kind, run.output_tokens_per_s) for run, kind in shown]
    plotted = [("a-chip", "Output tokens per second and chip", a_chip)]
    if totals != a_chip:
        plotted.append(("all", "Output tokens per second of all chips", totals))
    for name, title, values in plotted:
        known = [(label, kind, value) for label, kind, value in values if value is not None]
        missing = [label for label, _, value in values if value is None]
        if known:
            left_out = f"Omitted, because it is unknown: {', '.join(missing)}." if missing else ""
            yield _figure(bars(f"plot-tokens-{name}", title, known), title, left_out)


def _by_users(report: Report) -> Iterator[Markup]:
    """Yields plots of throughput and first token by number of users, if a series has several."""
    curves = [*_series(report.runs), *((published.id, "published", published.runs) for published in report.published)]
    if all(kind == "published" for _, kind, _ in curves):
        return
    everything = [run for _, _, runs in curves for run in runs]
    per_chip = all(run.chips for run in everything)
    statistic = "p50" if all(run.value("ttft_ms", "p50") is not None for run in everything) else "mean"
    rates = attrgetter("output_tokens_per_s_per_chip" if per_chip else "output_tokens_per_s")
    plotted: list[tuple[str, str, Callable[[Run], float | None]]] = [
        ("rate", f"Output tokens per second{' and chip' if per_chip else ''}", rates),
        ("first-token", f"Time to first token, ms, {statistic}", lambda run: run.value("ttft_ms", statistic)),
    ]
    for name, title, value in plotted:
        drawn = []
        for label, kind, runs in curves:
            points = [(run.users, found) for run in runs if run.users and (found := value(run)) is not None]
            if points:
                drawn.append(Curve(label, sorted(points), kind))
        if drawn:
            yield _figure(
                render_plot(f"plot-users-{name}", Plot(title, "concurrent users", drawn, doubles=True), figures.figure), title
            )


def _series(runs: Sequence[Run]) -> Iterator[tuple[str, str, Sequence[Run]]]:
    """Yields runs that differ only in the number of users: of one file, or of one tool on the same hardware."""
    in_file = Counter(run.file for run in runs)
    found: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        key = (run.file,) if in_file[run.file] > 1 else (run.tool, run.model, run.instance_type, run.chips)
        found.setdefault(key, []).append(run)
    for alike in found.values():
        if len({run.users for run in alike if run.users}) > 1:
            first = alike[0]
            name = first.label.rpartition(", ")[0] if in_file[first.file] > 1 else first.tool
            yield ", ".join(part for part in (name, first.instance_type) if part), "run", alike


def _figure(plot: Markup, title: str, caption: str = "") -> Markup:
    return element(
        "figure", element("h3", title), element("div", plot, class_="wide"), element("figcaption", caption, class_="quiet")
    )


# -- tables ---------------------------------------------------------------------------------------------------------------------


def _comparison(comparison: Comparison) -> Iterator[Markup]:
    run, other = comparison.run, comparison.other
    yield element("h3", f"{run.label} against {other.label}")
    rows = figures.side_by_side(comparison)
    header = ("Metric", *(cell for statistic in figures.COMPARED for cell in (statistic, "there", "ratio")))
    if rows:
        yield _table(f"{run.label} against {other.label}", header, rows)
    else:
        yield element("p", "No comparable figures.")
    if comparison.notes:
        yield element("ul", *(element("li", note.line(), class_=note.level) for note in comparison.notes))


def _source(published: Published) -> Iterator[Markup]:
    about = f"{published.source}. Measured: {published.measured}. Read: {published.read}."
    yield element("p", element("b", published.id), f": {about}")
    yield element("ul", *(element("li", remark) for remark in published.remarks))


def _run(run: Run) -> Iterator[Markup]:
    about: Mapping[str, str] = {
        "File": run.file,
        "Tool": figures.tool(run),
        "Model": run.model,
        "Instance type": run.instance_type,
        "Requests": figures.requests(run),
    }
    terms = [part for term, value in about.items() if value for part in (element("dt", term), element("dd", value))]
    rows = []
    for name in METRICS:
        if name in run.metrics:
            basis = run.basis.get(name)
            title = together(METRICS[name].title, _below(_BASIS_NAMES[basis]) if basis else "")
            rows.append((title, *(figures.figure(run.value(name, statistic)) for statistic in STATISTICS)))
    yield element(
        "details",
        element("summary", element("span", run.label, class_="name")),
        element(
            "div",
            element("dl", *terms),
            _table(f"Figures of {run.label}", ("Metric", *STATISTICS), rows) if rows else "",
            class_="body",
        ),
    )


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """Returns a table of figures, which scrolls if it is wider than the screen."""
    head = element("tr", *(element("th", cell, scope="col") for cell in header))
    lines = [
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in others)) for first, *others in rows
    ]
    table = element("table", element("thead", head), element("tbody", *lines), class_="figures")
    return element("div", table, class_="wide", tabindex=0, role="group", aria_label=title)


def _below(line: str) -> Markup:
    return element("div", line, class_="quiet") if line else Markup()
