"""Prepares the changes for display: grouped by component, with equal changes of several resources and stacks merged."""

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stackgraph.diff.comparing import ABSENT, JsonText, PropertyChange
from stackgraph.diff.graphs import Kind, ResourceChange
from stackgraph.diff.report import Report, StackReport
from stackgraph.graph.describe import describe, identity, kind, short_component_type, short_type
from stackgraph.graph.document import is_component, is_opaque
from stackgraph.graph.tokens import Sealed
from stackgraph.graph.values import grouped, plain, text
from stackgraph.graph.wording import counted, shorten

NO_COMPONENT = "Outside of components"
_ORDER: tuple[Kind, ...] = ("replace", "delete", "create", "update", "move")
_MOST_LINES = 60
_WIDEST = 200


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

    @property
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


def settings(report: Report) -> tuple[Entry, ...]:
    """The changed inputs of the outermost components, which is what somebody edited. Equal edits of several stacks are merged."""
    return _merged(keyed for stack in report.stacks for keyed in _settings(stack))


def sections(report: Report) -> tuple[Section, ...]:
    """The changes of all stacks by type of component, worst first."""
    found = grouped(one for stack in report.stacks for one in _changes(stack))
    merged = [Section(title, _merged(keyed)) for title, keyed in found.items()]
    return tuple(sorted(merged, key=lambda section: (_ORDER.index(section.entries[0].kind), section.title)))


def _merged(keyed: Iterable[_Keyed]) -> tuple[Entry, ...]:
    """One entry for each key, worst first."""
    same = grouped(keyed).values()
    entries = [replace(alike[0], places=tuple(place for entry in alike for place in entry.places)) for alike in same]
    return tuple(sorted(entries, key=lambda e: (_ORDER.index(e.kind), e.type, e.places[0].name)))


def _changes(stack: StackReport) -> Iterator[tuple[str, _Keyed]]:
    """The changes of a stack that is in both revisions, after the titles of their sections."""
    if stack.diff is None or stack.side:
        return
    for change in stack.diff.changes:
        if change.kind in _ORDER and change.counts:
            chain = stack.diff.components.get(change.urn)
            yield short_component_type(chain[-1].type) if chain else NO_COMPONENT, _entry(stack, change)


def _settings(stack: StackReport) -> Iterator[_Keyed]:
    if stack.diff is None:
        return
    edited = {c.urn for c in stack.diff.changes if c.kind == "update" and is_component(c.resource) and c.properties}
    for urn in sorted(edited):
        if not edited & {component.urn for component in stack.diff.components.get(urn, ())}:
            yield _entry(stack, stack.diff.by_urn[urn])


def _entry(stack: StackReport, change: ResourceChange) -> _Keyed:
    resource, type_ = change.resource, kind(change.resource)
    path = stack.head.places.get(resource.source.rpartition(":")[0], "") if stack.head and change.after else ""
    place = Place(stack.stack, identity(resource), resource.source, path)
    lines, notes = tuple(_lines(stack, change)), tuple(_notes(change))
    # Updates of several resources merge. A created or deleted resource merges only with its namesakes in other stacks.
    names = (place.name,) if change.kind in ("create", "delete") else ()
    key = (change.kind, type_, *(line.replace(stack.stack, "{stack}") for line in (*lines, *notes, *names)))
    return key, Entry(change.kind, type_, (place,), lines, notes)


def without_stack(name: str, stack: str) -> str:
    """The name without that of its stack: ``nodes core`` for ``nodes demo-core`` in stack ``demo``."""
    return name.removesuffix(f" {stack}").replace(f"{stack}-", "")


def _notes(change: ResourceChange) -> Iterator[str]:
    if change.moved and change.before is not None:
        yield f"moved: was {short_type(change.before.type)} {text(change.before.name)}, matched by its alias"
    causes = [reason for reason in change.because if " of " in reason or reason.startswith("provider ")]
    if causes:
        yield f"replaced because of {', '.join(causes[:3])}, which is replaced"
    if change.refused:
        yield f"the service refuses to change {', '.join(change.refused)}"
    if change.kind == "update" and not change.certain:
        yield "replacement is not ruled out: this type is not in the table"
    if change.kind == "update" and is_opaque(change.resource):
        yield "a remote component: only its plugin knows what this changes inside"
    if change.ignored:
        yield f"ignored by ignoreChanges: {', '.join(one.name for one in change.ignored[:5])}"


def _lines(stack: StackReport, change: ResourceChange) -> Iterator[str]:
    if change.kind in ("create", "delete"):
        if words := describe(change.resource, stack.domain.words):
            yield f"{'+' if change.kind == 'create' else '-'} {words}"
        return
    for one in change.properties:
        yield from property_lines(one, "  # replaces" if change.forces(one) else "")
    for one in change.options:
        yield from property_lines(PropertyChange(("option", *one.path), one.before, one.after), "")


def property_lines(change: PropertyChange, ending: str = "") -> Iterator[str]:
    """The lines of one changed property. Of long texts and lists, only the items that differ."""
    name, before, after = change.name, change.before, change.after
    if isinstance(before, str) and isinstance(after, str) and ("\n" in before or "\n" in after):
        yield f"  {name}:{ending}"
        yield from _between(before.splitlines(), after.splitlines())
    elif isinstance(before, list) and isinstance(after, list):
        yield f"  {name}:{ending}"
        yield from _between([value_text(item) for item in before], [value_text(item) for item in after])
    elif isinstance(before, Sealed) and isinstance(after, Sealed):
        yield f"- {name}: {before}"
        yield f"+ {name}: {after} (a different one){ending}"
    else:
        if before is not ABSENT:
            yield f"- {name}: {value_text(before)}{ending if after is ABSENT else ''}"
        if after is not ABSENT:
            yield f"+ {name}: {value_text(after)}{ending}"


def _between(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    found = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
    shown = [f"{line[0]}   {line[1:]}" for line in found if not line.startswith("@@")]
    yield from (shorten(line, _WIDEST) for line in shown[:_MOST_LINES])
    if len(shown) > _MOST_LINES:
        yield f"  … {len(shown) - _MOST_LINES} more lines"


def value_text(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, JsonText):
        value = value[""]
    if isinstance(value, str):
        return shorten(text(value), _WIDEST) if text(value) else '""'
    return shorten(json.dumps(plain(value), ensure_ascii=False, sort_keys=True), _WIDEST)


def hidden(report: Report) -> tuple[str, ...]:
    """Phrases for what the report leaves out."""
    found = []
    if count := report.counts["dependencies"]:
        found.append(f"{counted(count, 'resource')} with changed dependencies only")
    if opaque := sum(len(stack.diff.head.opaque) for stack in report.stacks if stack.diff and stack.diff.head):
        kinds = counted(opaque, "chart or remote component", "charts and remote components")
        found.append(f"the contents of {kinds}, which only a plugin or a cluster knows")
    return tuple(found)


def outputs(stack: StackReport) -> tuple[str, ...]:
    """The lines of changed stack outputs."""
    return tuple(line for one in (stack.diff.outputs if stack.diff else ()) for line in property_lines(one))
