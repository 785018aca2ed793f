"""Renders the report as one HTML page without scripts."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from urllib.parse import quote

from stackgraph.diff import telling
from stackgraph.diff.contents import COLUMNS, ROTATED, SIGNS, WORDS, Contents
from stackgraph.graph.values import text
from stackgraph.presentation.markup import Markup, Section, asset, element, render_page, together


def render_html(report: Contents) -> str:
    """The page of ``diff --format html`` with all changes. Values of the programs never become markup."""
    return render_page(
        title=f"{text(report.project)} · diff",
        header=[
            element("p", f"Diff · project {text(report.project)}", class_="eyebrow"),
            element("h1", report.headline),
            element("p", f"{text(report.base.shown)} → {text(report.head.shown)}", class_="lede"),
            *(element("p", note, class_="quiet") for note in report.notes),
        ],
        skip="Skip to the changes",
        first="stacks",
        sections=_sections(report),
        footer=[*(element("p", f"Not shown: {words}.") for words in telling.hidden(report)), element("p", report.ending)],
        style=asset("stackgraph.diff", "diff.css"),
    )


def _sections(report: Contents) -> Iterator[Section]:
    yield Section("failed", "Not compared", list(_failures(report)))
    yield Section("danger", "Look at this first", list(_danger(report)))
    yield Section("stacks", "Stacks", [_table(report)])
    yield Section("facts", report.titles.facts, list(_facts(report)))
    yield Section("findings", report.titles.findings, list(_findings(report)))
    yield Section("settings", "Settings", [_entry(report, entry) for entry in telling.settings(report)])
    for number, section in enumerate(telling.sections(report)):
        yield Section(f"changes-{number}", section.title, [_entry(report, entry) for entry in section.entries])
    for number, stack in enumerate(report.stacks):
        yield Section(f"steps-{number}", f"Steps of {text(stack.stack)}", _lines(stack.steps or ()))
        yield Section(f"outputs-{number}", f"Outputs of {text(stack.stack)}", _lines(stack.outputs))


def _failures(report: Contents) -> Iterator[Markup]:
    for name, side, problem in report.failures:
        yield element("p", f"{text(name)}: its {side} failed")
        yield element("pre", problem)


_HEADS = ("what", "before", "after")


def _danger(report: Contents) -> Iterator[Markup]:
    told, avoid = (
        [element("li", element("b", report.named(stack)), what) for stack in report.stacks for what in getattr(stack, key)]
        for key in ("dangers", "avoid")
    )
    if told:
        yield element("div", element("ul", *told), class_="danger")
    if avoid:
        yield element("details", element("summary", "What avoids it"), element("ul", *avoid), open=True)


def _table(report: Contents) -> Markup:
    titles = (*(f"{SIGNS[kind]} {WORDS[kind]}" for kind in COLUMNS), *map(text, report.measures))
    heads = [element("th", title, scope="col") for title in titles]
    rows = []
    for stack in report.stacks:
        if stack.stack in report.unchanged:
            continue
        cells = [element("td", number.strip("·"), data_label=title) for number, title in zip(stack.figures, titles, strict=False)]
        measures = ((title, text(stack.measures.get(title, ""))) for title in report.measures)
        cells += [element("td", what, class_="measure", data_label=title) for title, what in measures]
        side = f" ({stack.side})" if stack.side else ""
        rows.append(element("tr", element("th", text(stack.stack) + side, scope="row"), *cells))
    head = element("thead", element("tr", element("th", "stack", scope="col"), *heads))
    below = [text(report.titles.measures_note)] if report.measures else []
    below += [f"Unchanged: {', '.join(map(text, report.unchanged))}"] if report.unchanged else []
    table = element("div", element("table", head, element("tbody", *rows), class_="figures"), class_="wide")
    return together(table if rows else "", *(element("p", line, class_="quiet") for line in below))


def _facts(report: Contents) -> Iterator[Markup]:
    rows = [
        element(
            "tr",
            element("th", text(stack.stack), scope="row"),
            *(element("td", cell, data_label=title) for cell, title in zip(astuple(row), _HEADS, strict=True)),
        )
        for stack in report.stacks
        for row in stack.facts
    ]
    if rows:
        heads = [element("th", title, scope="col") for title in ("stack", *_HEADS)]
        table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows))
        yield element("div", table, class_="wide facts")


def _findings(report: Contents) -> Iterator[Markup]:
    items = [
        element("li", f"{words} {text(stack.stack)}: {finding.rule} {text(finding.place)}: {text(finding.message)}")
        for stack in report.stacks
        for words, findings in (("new:", stack.new_findings), ("cured:", stack.cured_findings))
        for finding in findings
    ]
    items += [element("li", f"{text(stack.stack)}: {ROTATED.format(key)}") for stack in report.stacks for key in stack.rotated]
    if items:
        yield element("ul", *items)


def _entry(report: Contents, entry: telling.Entry) -> Markup:
    places = [_place(report, place) for place in entry.places]
    head = element("p", element("b", f"{SIGNS[entry.kind]} {entry.type}"), " ", together(*places, by=", "))
    notes = [element("p", note, class_="quiet") for note in entry.notes]
    return element("div", head, *notes, *_lines(entry.lines), class_="entry")


def _place(report: Contents, place: telling.Place) -> Markup:
    name = together(element("code", place.name), f" in {text(place.stack)}" if len(report.stacks) > 1 else "")
    if not place.source:
        return name
    if report.link and place.path:
        line = place.source.rpartition(":")[2]
        return together(name, " (", element("a", place.source, href=f"{report.link}/{quote(place.path)}#L{line}"), ")")
    return together(name, element("span", f" ({place.source})", class_="quiet"))


_CLASSES = {"-": "gone", "+": "fresh"}


def _lines(lines: Sequence[str]) -> list[Markup]:
    return [element("pre", *(element("span", line, class_=_CLASSES.get(line[:1])) for line in lines))] if lines else []
