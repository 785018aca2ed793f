"""Renders the report as a pull request comment: what matters first, details folded, never longer than a limit."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from stackgraph.diff import telling
from stackgraph.diff.contents import COLUMNS, ROTATED, SIGNS, WORDS, Contents
from stackgraph.graph.values import grouped, text, unique
from stackgraph.graph.wording import first_of, shorten, utf16_length
from stackgraph.problems import printable

_MOST_NAMES = 8
_MOST_DANGERS = 12
_MOST_FOLDED = 60
_LONGEST_DANGER = 400
_LINE = 240
_MOST_LINES = 20
_MOST_HEADS = 20
_MOST_OF_A_NOTE = 600
_ROOM = 400
"""Characters reserved for the line that says what was cut."""


@dataclass(frozen=True)
class Part:
    """One part of the comment; ``short`` takes its place where it does not fit, and is empty if it is then left out."""

    whole: str
    short: str = ""


def marker(report: Contents) -> str:
    """The hidden first line that identifies the comment."""
    project = "" if report.project == report.tool else f": {_plain(report.project)}"
    return f"<!-- {report.tool} diff{project} -->"


def render_markdown(report: Contents, limit: int, origin: str = "") -> str:
    """The comment, at most ``limit`` UTF-16 code units long. Sections that do not fit are cut, and the comment says so.

    Whatever the report contains, it is inert: it is neither markup nor a mention, and no command or mark for a bot. ``origin`` is
    markdown of the caller's that stands right below the headline, before every text of the report, and is never cut.
    """
    revisions = f"`{_plain(report.project)}`, " + " → ".join(
        _code(shorten(side.shown, _LINE)) for side in (report.base, report.head)
    )
    notes = [f"> **Note:** {_escaped(shorten(note, _MOST_OF_A_NOTE))}" for note in report.notes]
    always = [marker(report), f"### {_escaped(report.headline)}", *filter(None, [origin]), revisions]
    found = [*notes, *_failures(report), *_danger(report), *_table(report), *_facts(report), *_findings(report)]
    parts = [Part(whole) for whole in found]
    parts += [*_settings(report), *(_section(report, section) for section in telling.sections(report)), *_ends(report)]
    hidden = telling.hidden(report)
    said = [f"Not shown: {'; '.join(hidden)}."] if hidden else []
    ending = [f"<sub>{_escaped(words)}</sub>" for words in (*said, report.ending)]
    return _fitted(always, parts, ending, limit)


def _fitted(always: Sequence[str], parts: Sequence[Part], ending: Sequence[str], limit: int) -> str:
    room = limit - utf16_length("\n\n".join((*always, *ending))) - _ROOM
    shown: list[str] = []
    cut = 0
    for part in parts:
        for form in (part.whole, part.short):
            if form and (size := utf16_length(form) + 2) <= room:
                shown.append(form)
                room -= size
                cut += form is not part.whole
                break
        else:
            cut += 1
    words = f"{cut} sections are shortened or left out to fit {limit:,} characters; the full report has them all."
    said = [f"> **Cut:** {words}"] if cut else []
    found = "\n\n".join((*always, *shown, *said, *ending)) + "\n"
    return found if utf16_length(found) <= limit else _units(found, limit)


def _units(value: str, limit: int) -> str:
    ending = "\n…\n"
    kept = value.encode("utf-16-le", "surrogatepass")[: 2 * max(limit - len(ending), 0)]
    return (kept.decode("utf-16-le", "ignore") + ending)[:limit]


# -- parts -----------------------------------------------------------------------------------------------------------------------


def _failures(report: Contents) -> Iterator[str]:
    lines = []
    for stack, side, problem in report.failures:
        lines += [f"**{_escaped(stack)}** cannot be compared, its {side} failed:", _fence(problem.splitlines()[:_MOST_LINES], "")]
    if lines:
        yield "\n\n".join(lines)


def _danger(report: Contents) -> Iterator[str]:
    told, avoid = (
        [
            f"- {_stacks(report, stacks)}{_prose(shorten(what, _LONGEST_DANGER))}"
            for stacks, (what,) in telling.shared(
                (stack.stack, (what,)) for stack in report.stacks for what in getattr(stack, key)
            )
        ]
        for key in ("dangers", "avoid")
    )
    if told:
        yield "\n".join(("> [!CAUTION]", "> **Look at this first**", *(f"> {line}" for line in told[:_MOST_DANGERS])))
    more = told[_MOST_DANGERS:_MOST_FOLDED]
    for title, lines in ((f"And {len(told) - _MOST_DANGERS} more", more), ("What avoids it", avoid[:_MOST_FOLDED])):
        if lines:
            yield "\n".join((f"<details><summary>{title}</summary>", "", *lines, "", "</details>"))


def _stacks(report: Contents, names: Sequence[str]) -> str:
    return f"**{_escaped(', '.join(names))}**: " if len(report.stacks) > 1 else ""


def _table(report: Contents) -> Iterator[str]:
    changed = [stack for stack in report.stacks if stack.changed]
    lines = []
    if changed:
        heads = [*(f"{SIGNS[kind]} {WORDS[kind].removeprefix('to ')}" for kind in COLUMNS), *map(_escaped, report.measures)]
        lines = [f"| stack | {' | '.join(heads)} |", f"|---|{'--:|' * len(COLUMNS)}{'---|' * len(report.measures)}"]
    for stack in changed:
        side = f" ({stack.side})" if stack.side else ""
        measures = (_escaped(shorten(stack.measures.get(title) or "·", 2 * _LINE)) for title in report.measures)
        lines.append(f"| {_code(stack.stack)}{side} | {' | '.join((*stack.figures, *measures))} |")
    if changed and report.measures:
        lines += ["", f"<sub>{_escaped(report.titles.measures_note)}</sub>"]
    if report.unchanged:
        lines += ["", f"Unchanged: {', '.join(map(_code, report.unchanged))}"]
    if lines:
        yield "\n".join(lines).strip()


def _facts(report: Contents) -> Iterator[str]:
    # Clusters and nodes are named after their stack. Without that name, equal rows of several stacks merge.
    said = ((stack.stack, (row.about, row.before, row.after)) for stack in report.stacks for row in stack.facts)
    if rows := [*telling.shared(said)]:
        lines = ["| stack | what | before | after |", "|---|---|---|---|"]
        for stacks, texts in rows:
            cells = (_escaped(shorten(value, _LINE)) for value in texts)
            lines.append(f"| {_escaped(', '.join(stacks))} | {' | '.join(cells)} |")
        yield "\n".join(lines)


def _findings(report: Contents) -> Iterator[str]:
    lines = []
    for stack in report.stacks:
        name = _stacks(report, [stack.stack])
        for finding in stack.new_findings:
            said = f"{finding.place}: {shorten(finding.message, _LINE)}"
            lines.append(f"- {name}new {_escaped(finding.severity)} {_code(finding.rule)} {_escaped(said)}")
        for finding in stack.cured_findings:
            lines.append(f"- {name}cured {_code(finding.rule)} {_escaped(finding.place)}")
        for key in stack.rotated:
            lines.append(f"- {name}{ROTATED.format(_code(key))}")
    if lines:
        yield "\n".join((f"**{_escaped(report.titles.findings)}, and secrets**", "", *lines))


def _settings(report: Contents) -> Iterator[Part]:
    if entries := telling.settings(report):
        yield _details(report, "<details open><summary>Settings</summary>", entries)


def _section(report: Contents, section: telling.Section) -> Part:
    numbers = " ".join(f"{SIGNS[kind]}{count}" for kind, count in section.counts.items())
    return _details(report, f"<details><summary>{_escaped(section.title)} {numbers}</summary>", section.entries)


def _details(report: Contents, opening: str, entries: Sequence[telling.Entry]) -> Part:
    heads = [_head(report, entry) for entry in entries]
    bodies = ("\n\n".join((head, *_body(entry))) for head, entry in zip(heads, entries, strict=True))
    short = (opening, *heads[:_MOST_HEADS], "_Its properties are left out here._", "</details>")
    return Part("\n\n".join((opening, *bodies, "</details>")), "\n\n".join(short))


def _head(report: Contents, entry: telling.Entry) -> str:
    # One mention of a source line lists all resources that it creates, in whatever stack.
    by_source = grouped(
        (_source(report, place), _code(place.name.replace(f"{place.stack}-", "") if entry.stacks[1:] else place.name))
        for place in entry.places
    )
    told = [f"{first_of(unique(names), _MOST_NAMES)}{source}" for source, names in by_source.items()]
    stacks = f" in {', '.join(_escaped(name) for name in entry.stacks)}" if len(report.stacks) > 1 else ""
    return f"**{SIGNS[entry.kind]} {_escaped(entry.type)}** {first_of(told, _MOST_NAMES)}{stacks}"


def _body(entry: telling.Entry) -> Iterator[str]:
    yield from (f"_{_escaped(note)}_" for note in entry.notes)
    if entry.lines:
        yield _fence(entry.lines, "diff")


def _source(report: Contents, place: telling.Place) -> str:
    file, _, line = place.source.rpartition(":")
    if not file:
        return ""
    if report.link and place.path:
        shown = "/".join(place.source.split("/")[-2:])
        return f" ([{_escaped(shown)}]({report.link}/{quote(place.path)}#L{quote(line)}))"
    return f" ({_escaped(f'{place.path or file}:{line}')})"


def _ends(report: Contents) -> Iterator[Part]:
    for stack in report.stacks:
        if stack.steps:
            opening = f"<details><summary>Steps of {_escaped(stack.stack)}</summary>"
            yield Part("\n\n".join((opening, _fence(stack.steps, "text"), "</details>")))
        if stack.outputs:
            opening = f"<details><summary>Outputs of {_escaped(stack.stack)}</summary>"
            yield Part("\n\n".join((opening, _fence(stack.outputs, "diff"), "</details>")))


# -- text in markdown ------------------------------------------------------------------------------------------------------------
#
# A report quotes programs, and whoever writes one may address the readers of its comment: people, GitHub and bots. GitHub finds
# mentions, references and addresses in the rendered text, where an entity is its character again (html-pipeline), so an entity is
# not enough. Bots read the raw text, also inside code. A character without width parts what either looks for.

_PARTING = "\u200b"
_PARTED = f"&#{ord(_PARTING)};"

# An underscore inside a word starts no emphasis.
_MARKS = re.compile(r"[\\`*\[\]<>|~#@&$]|(?<!\w)_|_(?!\w)|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=GH)(?=-\d)", re.IGNORECASE)

# Mentions but not digests of images, which shall be copied as they are; beginnings of HTML comments.
_CALLS = re.compile(r"(?<=@)(?!sha256:)(?=\w)|(?<=<)(?=!--)")
_COMMAND = re.compile(r"^\s*(?=/)")
_COMMANDS = re.compile(r"(?<![\w`])`([^`]+)`(?![\w`])")


def _plain(value: str) -> str:
    return re.sub(r"[^\w .:/-]", "", text(value)).replace("--", "-")


def _escaped(value: str) -> str:
    """Text without markup, addresses, mentions of users and references to issues."""
    return _unmarked(text(value))


def _unmarked(value: str) -> str:
    return _MARKS.sub(lambda found: _entity(found[0]), value)


def _prose(value: str) -> str:
    """Text whose commands, between two backticks, are code."""
    return "".join(_code(one) if number % 2 else _unmarked(one) for number, one in enumerate(_COMMANDS.split(text(value))))


def _entity(mark: str) -> str:
    if mark == "$":
        # GitHub takes a dollar for mathematics unless it is alone in an element ("Writing mathematical expressions").
        return "<span>&#36;</span>"
    return f"&#{ord(mark)};{_PARTED if mark in '@#' else ''}" if mark else _PARTED


def _code(value: str) -> str:
    """Inline code with any content."""
    # Nothing between two fences would make them one fence, which ends where another value begins.
    shown = _inert(text(value).replace("|", "¦")) or " "
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    space = " " if shown[:1] == "`" or shown[-1:] == "`" else ""
    return f"{fence}{space}{shown}{space}{fence}"


def _fence(lines: Sequence[str], language: str) -> str:
    """A code block that none of its lines can end."""
    fence = "`" * max((3, *(len(found) + 1 for line in lines for found in re.findall("`+", line))))
    return "\n".join((f"{fence}{language}", *(_inert(printable(shorten(line, _LINE))) for line in lines), fence))


def _inert(line: str) -> str:
    """A line of code in which no bot finds its name, its mark or a command."""
    return _COMMAND.sub(lambda found: found[0] + _PARTING, _CALLS.sub(_PARTING, line))
