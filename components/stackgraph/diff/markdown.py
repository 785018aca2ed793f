"""The report as one comment of a pull request: what matters first, all else folded, never longer than the limit."""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from stackgraph.diff import merging
from stackgraph.diff.report import COLUMNS, NO_STATE, SIGNS, WORDS, Report, StackReport
from stackgraph.graph.values import text
from stackgraph.graph.wording import shorten

_MOST_NAMES = 8
_MOST_DANGERS = 40
_LINE = 240
_ROOM = 400
"""Characters kept for the line that says what was cut."""


def marker(report: Report) -> str:
    """The hidden line by which the comment is found again."""
    project = "" if report.project == report.tool else f": {_plain(report.project)}"
    return f"<!-- {report.tool} diff{project} -->"


def render_markdown(report: Report, limit: int) -> str:
    """The comment, at most ``limit`` UTF-16 code units long. What does not fit is cut section by section, and said."""
    always = [marker(report), f"### {_escaped(report.headline)}", _revisions(report)]
    always += [f"> **Note:** {_escaped(note)}" for note in report.notes]
    parts = [*_failures(report), *_danger(report), *_table(report), *_facts(report), *_findings(report)]
    details = [_settings(report), *(_section(report, section) for section in merging.sections(report)), *_outputs(report)]
    ending = [f"<sub>{_escaped(words)}</sub>" for words in (*_left_out(report), NO_STATE)]
    return _fitted([part for part in always if part], parts, [part for part in details if part], ending, limit)


def _fitted(always: Sequence[str], parts: Sequence[str], details: Sequence[str], ending: Sequence[str], limit: int) -> str:
    room = limit - _length("\n\n".join((*always, *ending))) - _ROOM
    shown: list[str] = []
    cut = 0
    for part in (*parts, *details):
        # A section that is too long loses its folded content before it is left out.
        for form in (part, _folded(part)):
            if form and (size := _length(form) + 2) <= room:
                shown.append(form)
                room -= size
                cut += form is not part
                break
        else:
            cut += 1
    words = f"{cut} sections are shortened or left out to fit {limit:,} characters; the full report has all of it."
    said = [f"> **Cut:** {words}"] if cut else []
    found = "\n\n".join((*always, *shown, *said, *ending)) + "\n"
    return found if _length(found) <= limit else _units(found, limit)


def _folded(part: str) -> str:
    """A folded section with as much of its head as says what it is about."""
    if not part.startswith("<details"):
        return ""
    summary = part[: part.index("</summary>") + len("</summary>")]
    bullets = [line for line in part.splitlines() if line.startswith("**")]
    return "\n\n".join((summary, *bullets[:20], "_Its properties are left out here._", "</details>"))


def _length(value: str) -> int:
    """Code units of UTF-16, which are never fewer than what GitHub counts."""
    return len(value) + sum(ord(letter) > 0xFFFF for letter in value)


def _units(value: str, limit: int) -> str:
    ending = "\n…\n"
    kept = value[: max(limit - len(ending), 0)]
    while _length(kept) + len(ending) > limit and kept:
        kept = kept[:-1]
    return (kept + ending)[:limit]


# -- parts -----------------------------------------------------------------------------------------------------------------------


def _revisions(report: Report) -> str:
    return f"`{_plain(report.project)}`, {_code(report.base.shown)} → {_code(report.head.shown)}"


def _failures(report: Report) -> Iterator[str]:
    lines = []
    for stack in report.stacks:
        for side, name in ((stack.base, "base"), (stack.head, "head")):
            for problem in side.problems if side else ():
                lines += [
                    f"**{_escaped(stack.stack)}** cannot be compared, its {name} failed:",
                    _fence(problem.render().splitlines()[:20], ""),
                ]
    if lines:
        yield "\n\n".join(lines)


def _danger(report: Report) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for stack in report.stacks:
        for danger in stack.dangers:
            found.setdefault(merging.without_stack(danger.what, stack.stack), []).append(stack.stack)
    if not found:
        return
    lines = ["> [!CAUTION]", "> **Look at this first**"]
    for what, stacks in list(found.items())[:_MOST_DANGERS]:
        lines.append(f"> - **{_escaped(', '.join(stacks))}**: {_escaped(shorten(what, _LINE))}")
    if len(found) > _MOST_DANGERS:
        lines.append(f"> - and {len(found) - _MOST_DANGERS} more")
    yield "\n".join(lines)


def _table(report: Report) -> Iterator[str]:
    changed = [stack for stack in report.stacks if stack.changed and stack.diff]
    same = [stack.stack for stack in report.stacks if not stack.changed and not stack.failed]
    lines = []
    if changed:
        heads = [f"{SIGNS[kind]} {WORDS[kind].removeprefix('to ')}" for kind in COLUMNS]
        lines = [f"| stack | {' | '.join(heads)} |", f"|---|{'--:|' * len(COLUMNS)}"]
        lines += [_row(stack) for stack in changed]
    if same:
        lines += ["", f"Unchanged: {', '.join(_code(name) for name in same)}"]
    if lines:
        yield "\n".join(lines).strip()


def _row(stack: StackReport) -> str:
    counts = stack.diff.counts if stack.diff else {}
    ending = "" if stack.base and stack.head else " (new)" if stack.head else " (gone)"
    return f"| {_code(stack.stack)}{ending} | {' | '.join(str(counts.get(kind, 0) or '·') for kind in COLUMNS)} |"


def _facts(report: Report) -> Iterator[str]:
    rows: dict[tuple[str, str, str], list[str]] = {}
    for stack in report.stacks:
        for row in stack.facts:
            # A cluster is called as its stack is, nodes begin with its name: equal rows of several stacks are told once.
            about = merging.without_stack(row.about, stack.stack)
            rows.setdefault((about, row.before, row.after), []).append(stack.stack)
    if rows:
        lines = ["| stack | what | before | after |", "|---|---|---|---|"]
        for (about, before, after), stacks in rows.items():
            cells = (_escaped(shorten(value, _LINE)) for value in (about, before, after))
            lines.append(f"| {_escaped(', '.join(stacks))} | {' | '.join(cells)} |")
        yield "\n".join(lines)


def _findings(report: Report) -> Iterator[str]:
    lines = []
    for stack in report.stacks:
        name = f"**{_escaped(stack.stack)}**"
        for finding in stack.new_findings:
            said = f"{finding.place}: {shorten(finding.message, _LINE)}"
            lines.append(f"- {name}: new {finding.severity} {_code(finding.rule)} {_escaped(said)}")
        for finding in stack.cured_findings:
            lines.append(f"- {name}: cured {_code(finding.rule)} {_escaped(finding.place)}")
        for key in stack.rotated:
            lines.append(f"- {name}: the encrypted value of {_code(key)} is another: rotated, or encrypted again")
    if lines:
        yield "\n".join(("**Findings of `check`, and secrets**", "", *lines))


def _settings(report: Report) -> str:
    entries = merging.settings(report)
    if not entries:
        return ""
    body = [_entry(report, entry) for entry in entries]
    return "\n\n".join(("<details open><summary>Settings</summary>", *body, "</details>"))


def _section(report: Report, section: merging.Section) -> str:
    numbers = " ".join(f"{SIGNS[kind]}{count}" for kind, count in section.counts.items())
    body = [_entry(report, entry) for entry in section.entries]
    return "\n\n".join((f"<details><summary>{_escaped(section.title)} {numbers}</summary>", *body, "</details>"))


def _entry(report: Report, entry: merging.Entry) -> str:
    # Resources that one line of the program makes in several stacks stand before that line together.
    by_source: dict[str, list[str]] = {}
    for place in entry.places:
        names = by_source.setdefault(_source(report, place), [])
        name = _code(merging.without_stack(place.name, place.stack))
        if name not in names:
            names.append(name)
    told = [f"{_listed(names)}{source}" for source, names in by_source.items()]
    stacks = f" in {', '.join(_escaped(name) for name in entry.stacks)}" if len(report.stacks) > 1 else ""
    head = f"**{SIGNS[entry.kind]} {_escaped(entry.type)}** {_listed(told)}{stacks}"
    notes = [f"_{_escaped(note)}_" for note in entry.notes]
    fence = [_fence([shorten(line, _LINE) for line in entry.lines], "diff")] if entry.lines else []
    return "\n\n".join((head, *notes, *fence))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")


def _source(report: Report, place: merging.Place) -> str:
    file, _, line = place.source.rpartition(":")
    if not file:
        return ""
    if report.link and place.path:
        shown = "/".join(place.source.split("/")[-2:])
        return f" ([{_escaped(shown)}]({report.link}/{quote(place.path)}#L{line}))"
    return f" ({_escaped(f'{place.path or file}:{line}')})"


def _outputs(report: Report) -> Iterator[str]:
    for stack in report.stacks:
        if lines := merging.outputs(stack):
            fence = _fence([shorten(line, _LINE) for line in lines], "diff")
            yield "\n\n".join((f"<details><summary>Outputs of {_escaped(stack.stack)}</summary>", fence, "</details>"))


def _left_out(report: Report) -> Iterator[str]:
    if found := merging.hidden(report):
        yield f"Not shown: {'; '.join(found)}."


# -- text in markdown ------------------------------------------------------------------------------------------------------------

# An underscore inside a word begins nothing.
_MARKS = re.compile(r"([\\`*\[\]<>|~#@&]|(?<!\w)_|_(?!\w))")


def _plain(value: str) -> str:
    return re.sub(r"[^\w .:/-]", "", text(value)).replace("--", "-")


def _escaped(value: str) -> str:
    """Text that is no markup, and mentions nobody."""
    return _MARKS.sub(lambda found: f"&#{ord(found[1])};", text(value))


def _code(value: str) -> str:
    """Code in one line, whatever the text has in it."""
    shown = text(value).replace("|", "¦")
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    space = " " if shown[:1] == "`" or shown[-1:] == "`" else ""
    return f"{fence}{space}{shown}{space}{fence}"


def _fence(lines: Sequence[str], language: str) -> str:
    """A block of code that no line of it can end."""
    longest = max((len(found) for line in lines for found in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join((f"{fence}{language}", *map(merging.printable, lines), fence))
