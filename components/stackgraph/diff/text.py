"""Renders the report for a terminal."""

from collections.abc import Iterator, Sequence
from typing import Unpack

from rich.console import RenderableType
from rich.text import Text

from stackgraph.diff import telling
from stackgraph.diff.contents import COLUMNS, ROTATED, SIGNS, Contents
from stackgraph.graph.values import unique
from stackgraph.graph.wording import first_of
from stackgraph.presentation.output import Drawing
from stackgraph.presentation.terminal import Columns, Paragraph, drawn, words

_STYLES = {"+": "green", "-": "red", "−": "red", "~": "yellow", "±": "magenta", "→": "cyan", "!": "bold red", "#": "bold"}
_MOST_NAMES = 6


def render_text(report: Contents, **drawing: Unpack[Drawing]) -> str:
    """The whole report. It contains no control characters of the programs' values."""
    return drawn(_lines(report), **drawing)


def _line(sign: str, line: str) -> Text:
    return words(line, _STYLES.get(sign, ""))


def _lines(report: Contents) -> Iterator[RenderableType]:
    yield f"{report.project}: {report.base.shown} → {report.head.shown}"
    yield words(report.headline, "bold")
    yield from (f"note: {note}" for note in report.notes)
    for name, side, problem in report.failures:
        yield from (_line("!", line) for line in f"{name}: {side} failed: {problem}".splitlines())
    for title, key, sign in (("Look at this first", "dangers", "!"), ("What avoids it", "avoid", "")):
        said = [f"{report.named(stack)}{what}" for stack in report.stacks for what in getattr(stack, key)]
        yield from _titled(title, [Paragraph(_line(sign, line), "  ", "    ") for line in said])
    yield from _titled("Stacks", list(_table(report)))
    yield from _titled(report.titles.facts, list(_facts(report)))
    yield from _titled(report.titles.findings, list(_findings(report)))
    yield from _titled("Settings", [line for entry in telling.settings(report) for line in _entry(report, entry)])
    for section in telling.sections(report):
        yield from _titled(section.title, [line for entry in section.entries for line in _entry(report, entry)])
    for stack in report.stacks:
        yield from _titled(f"Steps of {stack.stack}", [f"  {line}" for line in stack.steps or ()])
        yield from _titled(f"Outputs of {stack.stack}", [_line(line[0], f"    {line}") for line in stack.outputs])
    yield ""
    if left_out := telling.hidden(report):
        yield f"Not shown: {'; '.join(left_out)}."
    yield report.ending


def _titled(title: str, lines: Sequence[RenderableType]) -> Iterator[RenderableType]:
    if lines:
        yield ""
        yield words(title, "bold")
        yield from lines


def _table(report: Contents) -> Iterator[RenderableType]:
    rows = [(stack.stack, *stack.figures, stack.side) for stack in report.stacks if stack.changed]
    if rows:
        head = ("", *(SIGNS[kind] for kind in COLUMNS), "")
        yield Columns([head, *rows], indent=2, right=range(1, len(COLUMNS) + 1), headings=1)
    told = [(stack.stack, title, what) for stack in report.stacks for title, what in stack.measures.items() if what]
    if told:
        yield Columns(told, indent=2, fold=True)
        yield Paragraph(words(report.titles.measures_note, "dim"), "  ", "  ")
    if report.unchanged:
        yield f"  unchanged: {', '.join(report.unchanged)}"


def _facts(report: Contents) -> Iterator[RenderableType]:
    for stack in report.stacks:
        for row in stack.facts:
            yield f"  {report.named(stack)}{row.about}"
            if row.before:
                yield Paragraph(_line("-", row.before), "    - ", "      ")
            if row.after:
                yield Paragraph(_line("+", row.after), "    + ", "      ")


def _findings(report: Contents) -> Iterator[RenderableType]:
    for stack in report.stacks:
        for finding in stack.new_findings:
            said = f"new {finding.severity}: {report.named(stack)}{finding.rule}: {finding.place}: {finding.message}"
            yield Paragraph(_line("-", said), "  ", "    ")
        for finding in stack.cured_findings:
            said = f"cured: {report.named(stack)}{finding.rule}: {finding.place}: {finding.message}"
            yield Paragraph(_line("+", said), "  ", "    ")
        for key in stack.rotated:
            yield Paragraph(_line("~", f"{report.named(stack)}{ROTATED.format(key)}"), "  ", "    ")


def _entry(report: Contents, entry: telling.Entry) -> Iterator[RenderableType]:
    names = first_of(unique(place.name for place in entry.places), _MOST_NAMES)
    source = entry.places[0].source
    sign = SIGNS[entry.kind]
    stacks = f"  [{', '.join(entry.stacks)}]" if len(report.stacks) > 1 else ""
    yield Paragraph(_line(sign, f"{sign} {entry.type} {names}{stacks}  {source}"), "  ", "      ")
    yield from (f"      ({note})" for note in entry.notes)
    yield from (_line(line[0], f"      {line}") for line in entry.lines)
