"""The report for a terminal."""

from collections.abc import Iterator, Sequence

from stackgraph.diff import merging
from stackgraph.diff.report import COLUMNS, NO_STATE, SIGNS, Report

_COLOURS = {"+": "32", "-": "31", "−": "31", "~": "33", "±": "35", "→": "36", "!": "31;1", "#": "1"}
_MOST_NAMES = 6


def render_text(report: Report, *, colour: bool = False) -> str:
    """The whole report, one fact a line. Values of the programs have no control characters in it."""
    return "\n".join(_painted(sign, line, colour).rstrip() for sign, line in _lines(report)) + "\n"


def _painted(sign: str, line: str, colour: bool) -> str:
    line = merging.printable(line)
    return f"\x1b[{_COLOURS[sign]}m{line}\x1b[0m" if colour and sign in _COLOURS else line


def _lines(report: Report) -> Iterator[tuple[str, str]]:
    yield "", f"{report.project}: {report.base.shown} → {report.head.shown}"
    yield "#", report.headline
    yield from (("", f"note: {note}") for note in report.notes)
    for stack in report.stacks:
        for side, name in ((stack.base, "base"), (stack.head, "head")):
            for problem in side.problems if side else ():
                yield from (("!", line) for line in f"{stack.stack}: {name} failed: {problem.render()}".splitlines())
    found = [(stack.stack, danger.what) for stack in report.stacks for danger in stack.dangers]
    yield from _titled("Look at this first", [("!", f"  {name}: {what}") for name, what in found])
    yield from _titled("Stacks", list(_table(report)))
    yield from _titled(report.facts_title, list(_facts(report)))
    yield from _titled("Findings of check", list(_findings(report)))
    yield from _titled("Settings", [line for entry in merging.settings(report) for line in _entry(entry)])
    for section in merging.sections(report):
        yield from _titled(section.title, [line for entry in section.entries for line in _entry(entry)])
    for stack in report.stacks:
        yield from _titled(f"Outputs of {stack.stack}", [(line[0], f"    {line}") for line in merging.outputs(stack)])
    yield "", ""
    if left_out := merging.hidden(report):
        yield "", f"Not shown: {'; '.join(left_out)}."
    yield "", NO_STATE


def _titled(title: str, lines: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    if lines:
        yield "", ""
        yield "#", title
        yield from lines


def _table(report: Report) -> Iterator[tuple[str, str]]:
    changed = [stack for stack in report.stacks if stack.changed and stack.diff]
    width = max((len(stack.stack) for stack in changed), default=0)
    if changed:
        yield "", f"  {'':{width}}  {'  '.join(f'{SIGNS[kind]:>3}' for kind in COLUMNS)}"
    for stack in changed:
        counts = stack.diff.counts if stack.diff else {}
        side = "" if stack.base and stack.head else "  new" if stack.head else "  gone"
        numbers = "  ".join(f"{counts.get(kind, 0) or '·'!s:>3}" for kind in COLUMNS)
        yield "", f"  {stack.stack:{width}}  {numbers}{side}"
    same = [stack.stack for stack in report.stacks if not stack.changed and not stack.failed]
    if same:
        yield "", f"  unchanged: {', '.join(same)}"


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    for stack in report.stacks:
        for row in stack.facts:
            yield "", f"  {stack.stack}: {row.about}"
            if row.before:
                yield "-", f"    - {row.before}"
            if row.after:
                yield "+", f"    + {row.after}"


def _findings(report: Report) -> Iterator[tuple[str, str]]:
    for stack in report.stacks:
        for finding in stack.new_findings:
            yield "-", f"  new {finding.severity}: {stack.stack}: {finding.rule}: {finding.place}: {finding.message}"
        for finding in stack.cured_findings:
            yield "+", f"  cured: {stack.stack}: {finding.rule}: {finding.place}: {finding.message}"
        for key in stack.rotated:
            yield "~", f"  {stack.stack}: the encrypted value of {key} is another: rotated, or encrypted again"


def _entry(entry: merging.Entry) -> Iterator[tuple[str, str]]:
    names = ", ".join(place.name for place in entry.places[:_MOST_NAMES])
    more = f" and {len(entry.places) - _MOST_NAMES} more" if len(entry.places) > _MOST_NAMES else ""
    source = entry.places[0].source
    yield SIGNS[entry.kind], f"  {SIGNS[entry.kind]} {entry.type} {names}{more}  [{', '.join(entry.stacks)}]  {source}"
    yield from (("", f"      ({note})") for note in entry.notes)
    yield from ((line[0], f"      {line}") for line in entry.lines)
