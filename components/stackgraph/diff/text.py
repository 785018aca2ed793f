"""The report for a terminal."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from stackgraph.diff import merging
from stackgraph.diff.report import COLUMNS, NO_STATE, SIGNS, Report
from stackgraph.presentation.terminal import Columns, drawn, words

_STYLES = {"+": "green", "-": "red", "−": "red", "~": "yellow", "±": "magenta", "→": "cyan", "!": "bold red", "#": "bold"}
_MOST_NAMES = 6


def render_text(report: Report, *, colour: bool = False) -> str:
    """The whole report, one fact a line. Values of the programs have no control characters in it."""
    return drawn(_lines(report), colour=colour)


def _line(sign: str, line: str) -> Text:
    return words(line, _STYLES.get(sign, ""))


def _lines(report: Report) -> Iterator[RenderableType]:
    yield f"{report.project}: {report.base.shown} → {report.head.shown}"
    yield words(report.headline, "bold")
    yield from (f"note: {note}" for note in report.notes)
    for stack in report.stacks:
        for side, name in ((stack.base, "base"), (stack.head, "head")):
            for problem in side.problems if side else ():
                yield from (_line("!", line) for line in f"{stack.stack}: {name} failed: {problem.render()}".splitlines())
    found = [(stack.stack, danger.what) for stack in report.stacks for danger in stack.dangers]
    yield from _titled("Look at this first", [_line("!", f"  {name}: {what}") for name, what in found])
    yield from _titled("Stacks", list(_table(report)))
    yield from _titled(report.facts_title, list(_facts(report)))
    yield from _titled("Findings of check", list(_findings(report)))
    yield from _titled("Settings", [line for entry in merging.settings(report) for line in _entry(entry)])
    for section in merging.sections(report):
        yield from _titled(section.title, [line for entry in section.entries for line in _entry(entry)])
    for stack in report.stacks:
        yield from _titled(f"Outputs of {stack.stack}", [_line(line[0], f"    {line}") for line in merging.outputs(stack)])
    yield ""
    if left_out := merging.hidden(report):
        yield f"Not shown: {'; '.join(left_out)}."
    yield NO_STATE


def _titled(title: str, lines: Sequence[RenderableType]) -> Iterator[RenderableType]:
    if lines:
        yield ""
        yield words(title, "bold")
        yield from lines


def _table(report: Report) -> Iterator[RenderableType]:
    changed = [stack for stack in report.stacks if stack.changed and stack.diff]
    rows = [("", *(SIGNS[kind] for kind in COLUMNS), "")]
    for stack in changed:
        counts = stack.diff.counts if stack.diff else {}
        side = "" if stack.base and stack.head else "new" if stack.head else "gone"
        rows.append((stack.stack, *(str(counts.get(kind, 0) or "·") for kind in COLUMNS), side))
    if changed:
        yield Columns(rows, indent=2, right=range(1, len(COLUMNS) + 1))
    same = [stack.stack for stack in report.stacks if not stack.changed and not stack.failed]
    if same:
        yield f"  unchanged: {', '.join(same)}"


def _facts(report: Report) -> Iterator[RenderableType]:
    for stack in report.stacks:
        for row in stack.facts:
            yield f"  {stack.stack}: {row.about}"
            if row.before:
                yield _line("-", f"    - {row.before}")
            if row.after:
                yield _line("+", f"    + {row.after}")


def _findings(report: Report) -> Iterator[RenderableType]:
    for stack in report.stacks:
        for finding in stack.new_findings:
            yield _line("-", f"  new {finding.severity}: {stack.stack}: {finding.rule}: {finding.place}: {finding.message}")
        for finding in stack.cured_findings:
            yield _line("+", f"  cured: {stack.stack}: {finding.rule}: {finding.place}: {finding.message}")
        for key in stack.rotated:
            yield _line("~", f"  {stack.stack}: the encrypted value of {key} is another: rotated, or encrypted again")


def _entry(entry: merging.Entry) -> Iterator[RenderableType]:
    names = ", ".join(place.name for place in entry.places[:_MOST_NAMES])
    more = f" and {len(entry.places) - _MOST_NAMES} more" if len(entry.places) > _MOST_NAMES else ""
    source = entry.places[0].source
    sign = SIGNS[entry.kind]
    yield _line(sign, f"  {sign} {entry.type} {names}{more}  [{', '.join(entry.stacks)}]  {source}")
    yield from (f"      ({note})" for note in entry.notes)
    yield from (_line(line[0], f"      {line}") for line in entry.lines)
