"""Renders the report as a pull request comment: what matters first, details folded, never longer than a limit."""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from stackgraph.diff import merging
from stackgraph.diff.report import COLUMNS, NO_STATE, ROTATED, SIGNS, WORDS, Report
from stackgraph.graph.values import grouped, text, unique
from stackgraph.graph.wording import shorten, utf16_length
from stackgraph.plain_text import printable

_MOST_NAMES = 8
_MOST_DANGERS = 40
_LINE = 240
_ROOM = 400
"""Characters reserved for the line that says what was cut."""


def marker(report: Report) -> str:
    """The hidden first line that identifies the comment."""
    project = "" if report.project == report.tool else f": {_plain(report.project)}"
    return f"<!-- {report.tool} diff{project} -->"


def render_markdown(report: Report, limit: int) -> str:
    """The comment, at most ``limit`` UTF-16 code units long. Sections that do not fit are cut, and the comment says so."""
    revisions = f"`{_plain(report.project)}`, {_code(report.base.shown)} → {_code(report.head.shown)}"
    notes = [f"> **Note:** {_escaped(note)}" for note in report.notes]
    always = [marker(report), f"### {_escaped(report.headline)}", revisions, *notes]
    parts = [*_failures(report), *_danger(report), *_table(report), *_facts(report), *_findings(report), *_settings(report)]
    parts += [*(_section(report, section) for section in merging.sections(report)), *_outputs(report)]
    hidden = merging.hidden(report)
    said = [f"Not shown: {'; '.join(hidden)}."] if hidden else []
    ending = [f"<sub>{_escaped(words)}</sub>" for words in (*said, NO_STATE)]
    return _fitted(always, parts, ending, limit)


def _fitted(always: Sequence[str], parts: Sequence[str], ending: Sequence[str], limit: int) -> str:
    room = limit - utf16_length("\n\n".join((*always, *ending))) - _ROOM
    shown: list[str] = []
    cut = 0
    for part in parts:
        # Fold away the content of a section that is too long before leaving the section out.
        for form in (part, _folded(part)):
            if form and (size := utf16_length(form) + 2) <= room:
                shown.append(form)
                room -= size
                cut += form is not part
                break
        else:
            cut += 1
    words = f"{cut} sections are shortened or left out to fit {limit:,} characters; the full report has them all."
    said = [f"> **Cut:** {words}"] if cut else []
    found = "\n\n".join((*always, *shown, *said, *ending)) + "\n"
    return found if utf16_length(found) <= limit else _units(found, limit)


def _folded(part: str) -> str:
    """A folded section reduced to its title and the first lines of its entries; empty if the part cannot be folded."""
    if not part.startswith("<details"):
        return ""
    summary = part[: part.index("</summary>") + len("</summary>")]
    bullets = [line for line in part.splitlines() if line.startswith("**")]
    return "\n\n".join((summary, *bullets[:20], "_Its properties are left out here._", "</details>"))


def _units(value: str, limit: int) -> str:
    ending = "\n…\n"
    kept = value[: max(limit - len(ending), 0)]
    while utf16_length(kept) + len(ending) > limit and kept:
        kept = kept[:-1]
    return (kept + ending)[:limit]


# -- parts -----------------------------------------------------------------------------------------------------------------------


def _failures(report: Report) -> Iterator[str]:
    lines = []
    for stack, side, problem in report.failures:
        lines += [f"**{_escaped(stack)}** cannot be compared, its {side} failed:", _fence(problem.render().splitlines()[:20], "")]
    if lines:
        yield "\n\n".join(lines)


def _danger(report: Report) -> Iterator[str]:
    found = grouped(
        (merging.without_stack(danger.what, stack.stack), stack.stack) for stack in report.stacks for danger in stack.dangers
    )
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
    lines = []
    if changed:
        heads = [f"{SIGNS[kind]} {WORDS[kind].removeprefix('to ')}" for kind in COLUMNS]
        lines = [f"| stack | {' | '.join(heads)} |", f"|---|{'--:|' * len(COLUMNS)}"]
    for stack in changed:
        side = f" ({stack.side})" if stack.side else ""
        lines.append(f"| {_code(stack.stack)}{side} | {' | '.join(stack.figures)} |")
    if report.unchanged:
        lines += ["", f"Unchanged: {', '.join(map(_code, report.unchanged))}"]
    if lines:
        yield "\n".join(lines).strip()


def _facts(report: Report) -> Iterator[str]:
    # Clusters and nodes are named after their stack. Without that name, equal rows of several stacks merge.
    rows = grouped(
        ((merging.without_stack(row.about, stack.stack), row.before, row.after), stack.stack)
        for stack in report.stacks
        for row in stack.facts
    )
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
            lines.append(f"- {name}: {ROTATED.format(_code(key))}")
    if lines:
        yield "\n".join((f"**{_escaped(report.domain.findings_title)}, and secrets**", "", *lines))


def _settings(report: Report) -> Iterator[str]:
    if body := [_entry(report, entry) for entry in merging.settings(report)]:
        yield "\n\n".join(("<details open><summary>Settings</summary>", *body, "</details>"))


def _section(report: Report, section: merging.Section) -> str:
    numbers = " ".join(f"{SIGNS[kind]}{count}" for kind, count in section.counts.items())
    body = [_entry(report, entry) for entry in section.entries]
    return "\n\n".join((f"<details><summary>{_escaped(section.title)} {numbers}</summary>", *body, "</details>"))


def _entry(report: Report, entry: merging.Entry) -> str:
    # One mention of a source line lists all resources that it creates, in whatever stack.
    by_source = grouped((_source(report, place), _code(merging.without_stack(place.name, place.stack))) for place in entry.places)
    told = [f"{_listed(unique(names))}{source}" for source, names in by_source.items()]
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


# -- text in markdown ------------------------------------------------------------------------------------------------------------

# An underscore inside a word starts no emphasis.
_MARKS = re.compile(r"([\\`*\[\]<>|~#@&]|(?<!\w)_|_(?!\w))")


def _plain(value: str) -> str:
    return re.sub(r"[^\w .:/-]", "", text(value)).replace("--", "-")


def _escaped(value: str) -> str:
    """Text without markup and without mentions of users."""
    return _MARKS.sub(lambda found: f"&#{ord(found[1])};", text(value))


def _code(value: str) -> str:
    """Inline code with any content."""
    shown = text(value).replace("|", "¦")
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    space = " " if shown[:1] == "`" or shown[-1:] == "`" else ""
    return f"{fence}{space}{shown}{space}{fence}"


def _fence(lines: Sequence[str], language: str) -> str:
    """A code block that none of its lines can end."""
    longest = max((len(found) for line in lines for found in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join((f"{fence}{language}", *map(printable, lines), fence))
