"""Puts a comparison into words: what each change of a resource is, line by line, grouped by component, with equal changes of
several resources and stacks merged.
"""

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from stackgraph.diff.contents import Contents, StackContents, Told, by_subject
from stackgraph.diff.differences import ABSENT, JsonText, PropertyChange
from stackgraph.diff.graphs import KINDS, Kind, ResourceChange, StackDiff
from stackgraph.diff.report import Recorded, Report, StackReport, changed_keys, key_text
from stackgraph.graph.describe import describe, identity, kind, short_component_type, short_type
from stackgraph.graph.document import is_component
from stackgraph.graph.values import Sealed, grouped, plain, text, unique
from stackgraph.graph.wording import counted, shorten

NO_COMPONENT = "Outside of components"
_MOST_LINES = 60
_WIDEST = 200


def contents(report: Report) -> Contents:
    """Everything that a format shows of a comparison."""
    return Contents(
        project=report.project,
        base=report.base,
        head=report.head,
        stacks=tuple(map(_stack, report.stacks)),
        notes=tuple(report.notes),
        link=report.link,
        tool=report.tool,
        titles=report.domain.titles,
        only_stack_files=report.only_stack_files,
    )


def _stack(stack: StackReport) -> StackContents:
    diff = stack.diff
    counts = diff.counts if diff else {}
    return StackContents(
        stack.stack,
        side="" if stack.failed else stack.side,
        changed=stack.changed,
        counts={kind: counts[kind] for kind in KINDS if counts.get(kind) and kind != "same"},
        problems={name: _problems(side) for name, side in (("base", stack.base), ("head", stack.head))},
        dangers=by_subject((danger.subject, danger.what) for danger in stack.dangers),
        avoid=unique(danger.avoid for danger in stack.dangers),
        facts=stack.facts,
        new_findings=stack.new_findings,
        cured_findings=stack.cured_findings,
        rotated=stack.rotated,
        outputs=tuple(line for output in (diff.outputs if diff else ()) for line in property_lines(output)),
        unsure=len(diff.unsure) if diff and not stack.side else 0,
        steps=stack.steps,
        measures=stack.measures,
        keys=tuple(_keys(stack.base, stack.head)) if stack.changed else (),
        changes=tuple(_told(stack, diff)) if diff and not stack.side else (),
        opaque=len(diff.head.opaque) if diff and diff.head else 0,
    )


def _problems(side: Recorded | None) -> tuple[str, ...]:
    return tuple(problem.render() for problem in side.problems) if side else ()


def _keys(base: Recorded | None, head: Recorded | None) -> Iterator[Told]:
    if not base or not head or not head.file:
        return
    for change in changed_keys(base.file, head.file):
        kind: Kind = "create" if change.before is ABSENT else "delete" if change.after is ABSENT else "update"
        name = str(change.path[-1]).rpartition(":")[2]
        lines = tuple(property_lines(PropertyChange((name,), change.before, change.after)))
        yield Told("", kind, None, "key", key_text(change.path), head.file.source(change.path), head.file.path, lines, ())


def _told(stack: StackReport, diff: StackDiff) -> Iterator[Told]:
    """The changes of resources that a deployment touches, and of the outermost components that somebody edited."""
    edited = {c.urn for c in diff.changes if c.kind == "update" and is_component(c.resource) and c.properties}
    for change in diff.changes:
        around = diff.components.get(change.urn, ())
        if change.counts and (change.kind not in ("dependencies", "same")):
            section = short_component_type(around[-1].type) if around else NO_COMPONENT
        elif change.urn in edited and not edited & {component.urn for component in around}:
            section = None
        else:
            continue
        resource = change.resource
        places = stack.head.places if stack.head and change.after else {}
        yield Told(
            change.urn,
            change.kind,
            section,
            kind(resource),
            identity(resource),
            resource.source,
            places.get(resource.source.rpartition(":")[0], ""),
            tuple(_lines(stack, change)),
            tuple(_notes(change)),
        )


def _notes(change: ResourceChange) -> Iterator[str]:
    if change.moved and change.before is not None:
        yield f"moved: was {short_type(change.before.type)} {text(change.before.name)}, matched by its alias"
    causes = [reason for reason in change.because if " of " in reason or reason.startswith("provider ")]
    if causes:
        yield f"replaced because of {', '.join(causes[:3])}, which is replaced"
    yield from (f"replaced: {reason}" for reason in change.because if reason.startswith("region "))
    if change.refused:
        yield f"the service refuses to change {', '.join(change.refused)}"
    if change.unsure:
        yield f"may be replaced because of {', '.join(change.unsure[:5])}: {change.doubt}"
    if change.kind == "update" and change.resource.remote:
        yield "a remote component: only its plugin knows what this changes inside"
    if change.ignored:
        yield f"ignored by ignoreChanges: {', '.join(property_change.name for property_change in change.ignored[:5])}"


def _lines(stack: StackReport, change: ResourceChange) -> Iterator[str]:
    if change.kind in ("create", "delete"):
        if words := describe(change.resource, stack.domain.words):
            yield f"{'+' if change.kind == 'create' else '-'} {words}"
        return
    for one in change.properties:
        why = "  # replaces" if change.forces(one) else ""
        yield from [f"~ {one.name}: hidden by hideDiffs{why}"] if change.hides(one) else property_lines(one, why)
    for option in change.options:
        yield from property_lines(PropertyChange(("option", *option.path), option.before, option.after), "")


def property_lines(change: PropertyChange, ending: str = "") -> Iterator[str]:
    """The lines of one changed property. Long texts and lists show only the items that differ."""
    name, before, after = change.name, change.before, change.after
    if isinstance(before, str) and isinstance(after, str) and ("\n" in before or "\n" in after):
        yield f"  {name}:{ending}"
        yield from _between(before.splitlines(), after.splitlines())
    elif isinstance(before, list) and isinstance(after, list):
        yield f"  {name}:{ending}"
        yield from _between([_value(item) for item in before], [_value(item) for item in after])
    elif isinstance(before, Sealed) and isinstance(after, Sealed):
        yield f"- {name}: {before}"
        yield f"+ {name}: {after} (a different one){ending}"
    else:
        if before is not ABSENT:
            yield f"- {name}: {_value(before)}{ending if after is ABSENT else ''}"
        if after is not ABSENT:
            yield f"+ {name}: {_value(after)}{ending}"


def _between(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    found = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
    shown = [f"{line[0]}   {line[1:]}" for line in found if not line.startswith("@@")]
    yield from (shorten(line, _WIDEST) for line in shown[:_MOST_LINES])
    if len(shown) > _MOST_LINES:
        yield f"  … {len(shown) - _MOST_LINES} more lines"


def _value(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, JsonText):
        value = value[""]
    if isinstance(value, str):
        return shorten(text(value), _WIDEST) if text(value) else '""'
    return shorten(json.dumps(plain(value), ensure_ascii=False, sort_keys=True), _WIDEST)


_ORDER: tuple[Kind, ...] = ("replace", "delete", "create", "update", "move")


@dataclass(frozen=True)
class Place:
    """One changed resource. ``source`` is ``file:line`` of the call that makes it, ``path`` its file in the head's repository."""

    stack: str
    name: str
    source: str = ""
    path: str = ""


@dataclass(frozen=True)
class Entry:
    """One change, shared by one or more resources. Each of ``lines`` begins with ``- ``, ``+ `` or two spaces."""

    kind: Kind
    type: str
    places: tuple[Place, ...]
    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def stacks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(place.stack for place in self.places))


@dataclass(frozen=True)
class Section:
    """The changes inside components of one type."""

    title: str
    entries: tuple[Entry, ...]

    @property
    def counts(self) -> Mapping[Kind, int]:
        counts = Counter(entry.kind for entry in self.entries for _ in entry.places)
        return {kind: counts[kind] for kind in _ORDER if counts[kind]}


_Keyed = tuple[tuple[str, ...], Entry]
"""An entry of one resource, after a key that is equal for entries to merge."""


def settings(contents: Contents) -> tuple[Entry, ...]:
    """What somebody edited: keys of stack files, and inputs of the outermost components unless they only follow from these keys.

    Equal edits of several stacks are merged.
    """
    keys = [_entry(stack.stack, told) for stack in contents.stacks for told in stack.keys]
    inputs = (_entry(stack.stack, told) for stack in contents.stacks for told in stack.changes if told.section is None)
    return _merged(keys if contents.only_stack_files else [*keys, *inputs])


def sections(contents: Contents) -> tuple[Section, ...]:
    """The changes of all stacks by type of component, worst first. They name no line of a program that did not change."""
    found = ((stack.stack, told) for stack in contents.stacks for told in stack.changes)
    pairs = (
        (told.section, _entry(stack, replace(told, source="", path="") if contents.only_stack_files else told))
        for stack, told in found
    )
    merged = [Section(title, _merged(keyed)) for title, keyed in grouped(pairs).items() if title is not None]
    return tuple(sorted(merged, key=lambda section: (_ORDER.index(section.entries[0].kind), section.title)))


def _merged(keyed: Iterable[_Keyed]) -> tuple[Entry, ...]:
    """One entry for each key, worst first."""
    same = grouped(keyed).values()
    entries = [replace(alike[0], places=tuple(place for entry in alike for place in entry.places)) for alike in same]
    return tuple(sorted(entries, key=lambda e: (_ORDER.index(e.kind), e.type, e.places[0].name)))


def _entry(stack: str, told: Told) -> _Keyed:
    place = Place(stack, told.name, told.source, told.path)
    # Updates of several resources merge. A created or deleted resource merges only with its namesakes in other stacks.
    names = (told.name,) if told.kind in ("create", "delete") else ()
    key = (told.kind, told.type, *(line.replace(stack, "{stack}") for line in (*told.lines, *told.notes, *names)))
    return key, Entry(told.kind, told.type, (place,), told.lines, told.notes)


def shared(said: Iterable[tuple[str, tuple[str, ...]]]) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Yields texts with the stacks that say the same. Names of several stacks are without that of their stack.

    So ``nodes demo-core`` is ``nodes core``. What only one stack says keeps its names whole, as does what ends in ``of demo``.
    """
    told = grouped((tuple(_without_stack(text, stack) for text in texts), (stack, texts)) for stack, texts in said)
    for short, same in told.items():
        yield [stack for stack, _ in same], short if len(same) > 1 else same[0][1]


def _without_stack(name: str, stack: str) -> str:
    head = name.removesuffix(f" {stack}")
    return (name if head.endswith(" of") else head).replace(f"{stack}-", "")


def hidden(contents: Contents) -> tuple[str, ...]:
    """Phrases for what the report leaves out."""
    found = []
    if count := contents.count("dependencies"):
        found.append(f"{counted(count, 'resource')} with changed dependencies only")
    if opaque := sum(stack.opaque for stack in contents.stacks):
        kinds = counted(opaque, "chart or remote component", "charts and remote components")
        found.append(f"the contents of {kinds}, which only a plugin or a cluster knows")
    return tuple(found)
