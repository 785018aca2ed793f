"""The changes as they are told: by component, equal ones of several resources and stacks once."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stackgraph.diff.comparing import ABSENT, JsonText, PropertyChange
from stackgraph.diff.graphs import Kind, ResourceChange, components
from stackgraph.diff.report import Report, StackReport
from stackgraph.graph.describe import describe, identity, short_component_type, short_type
from stackgraph.graph.document import STACK_TYPE, is_component
from stackgraph.graph.tokens import Sealed
from stackgraph.graph.values import at, items, plain, text
from stackgraph.graph.wording import shorten

NO_COMPONENT = "Outside of components"
_ORDER: tuple[Kind, ...] = ("replace", "delete", "create", "update", "move")
_MOST_LINES = 60
_WIDEST = 200


@dataclass(frozen=True)
class Place:
    """One resource that changes: its stack, what it is called, and where the program makes it."""

    stack: str
    name: str
    urn: str
    source: str = ""
    path: str = ""
    """The file in the repository, of the head; empty where it is not known."""


@dataclass(frozen=True)
class Entry:
    """One change, of one resource or of several alike. ``lines`` begin with ``- ``, ``+ `` or two spaces."""

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
    """All changes inside components of one type."""

    title: str
    entries: tuple[Entry, ...]

    @property
    def counts(self) -> Mapping[Kind, int]:
        found: dict[Kind, int] = {}
        for kind in _ORDER:
            count = sum(len(entry.places) for entry in self.entries if entry.kind == kind)
            found |= {kind: count} if count else {}
        return found


@dataclass(frozen=True)
class _One:
    section: str
    entry: Entry
    key: tuple[Any, ...]


def settings(report: Report) -> tuple[Entry, ...]:
    """What changes in the inputs of the outermost components: what somebody edited. Equal edits of several stacks once."""
    return _merged(one for stack in report.stacks for one in _settings(stack))


def sections(report: Report) -> tuple[Section, ...]:
    """The changes of all stacks by type of component, worst first."""
    found: dict[str, list[_One]] = {}
    for stack in report.stacks:
        for one in _changes(stack):
            found.setdefault(one.section, []).append(one)
    merged = [Section(title, _merged(ones)) for title, ones in found.items()]
    return tuple(sorted(merged, key=lambda section: (_rank(section), section.title)))


def _rank(section: Section) -> int:
    return min(_ORDER.index(entry.kind) for entry in section.entries)


def _merged(ones: Iterator[_One] | Sequence[_One]) -> tuple[Entry, ...]:
    found: dict[tuple[Any, ...], list[Entry]] = {}
    for one in ones:
        found.setdefault(one.key, []).append(one.entry)
    entries = [replace(alike[0], places=tuple(place for entry in alike for place in entry.places)) for alike in found.values()]
    return tuple(sorted(entries, key=lambda e: (_ORDER.index(e.kind), e.type, e.places[0].name)))


def _changes(stack: StackReport) -> Iterator[_One]:
    if stack.diff is None:
        return
    around = components(stack.diff)
    whole_stack = stack.base is None or stack.head is None
    for change in stack.diff.changes:
        if change.kind not in _ORDER or not change.counts or whole_stack:
            continue
        chain = around.get(change.urn, ())
        section = short_component_type(chain[-1].type) if chain else NO_COMPONENT
        yield _One(section, *_entry(stack, change))


def _settings(stack: StackReport) -> Iterator[_One]:
    if stack.diff is None:
        return
    around = components(stack.diff)
    edited = {c.urn for c in stack.diff.changes if c.kind == "update" and is_component(c.resource) and c.properties}
    for urn in sorted(edited):
        if not edited & {component.urn for component in around.get(urn, ())}:
            yield _One("", *_entry(stack, stack.diff.by_urn[urn]))


def _entry(stack: StackReport, change: ResourceChange) -> tuple[Entry, tuple[Any, ...]]:
    resource = change.resource
    side = stack.head if change.after is not None else stack.base
    file = resource.source.rpartition(":")[0]
    path = side.places.get(file, "") if side and change.after is not None else ""
    place = Place(stack.stack, identity(resource), resource.urn, resource.source, path)
    lines, notes = tuple(_lines(stack, change)), tuple(_notes(change))
    type_ = short_component_type(resource.type) if is_component(resource) else short_type(resource.type)
    key = (change.kind, type_, *(_nameless(line, stack.stack) for line in (*lines, *notes)))
    if change.kind in ("create", "delete"):
        # Resources are merged when they change alike; what comes or goes is told one by one, but once for several stacks.
        key = (*key, _nameless(place.name, stack.stack))
    return Entry(change.kind, type_, (place,), lines, notes), key


def without_stack(name: str, stack: str) -> str:
    """A name without the name of its stack in front: ``nodes core`` for ``nodes demo-core`` of stack ``demo``."""
    return name.removesuffix(f" {stack}").replace(f"{stack}-", "")


def _nameless(line: str, stack: str) -> str:
    """The line without the stack's own name, so that equal changes of several stacks are found."""
    return line.replace(stack, "{stack}")


def _notes(change: ResourceChange) -> Iterator[str]:
    if change.moved and change.before is not None:
        yield f"moved: was {short_type(change.before.type)} {text(change.before.name)}, found again by its alias"
    pulled = [reason for reason in change.because if " of " in reason or reason.startswith("provider ")]
    if pulled:
        yield f"replaced because of {', '.join(pulled[:3])}, which is replaced"
    if change.refused:
        yield f"the service refuses another {', '.join(change.refused)}"
    if change.kind == "update" and not change.certain:
        yield "replacement is not ruled out: this type is not in the table"
    if change.opaque and change.kind == "update":
        yield "a remote component: what this changes inside is known to its plugin"
    if change.ignored:
        yield f"ignored by ignoreChanges: {', '.join(one.name for one in change.ignored[:5])}"


def _lines(stack: StackReport, change: ResourceChange) -> Iterator[str]:
    if change.kind in ("create", "delete"):
        words = describe(change.resource, stack.domain.words)
        if words:
            yield f"{'+' if change.kind == 'create' else '-'} {words}"
        return
    for one in change.properties:
        yield from property_lines(one, "  # replaces" if change.forces(one) else "")
    for one in change.options:
        yield from property_lines(PropertyChange(("option", *one.path), one.before, one.after), "")


def property_lines(change: PropertyChange, ending: str = "") -> Iterator[str]:
    """One changed property in lines that begin with ``- `` or ``+ ``; of long texts and lists only what differs."""
    name, before, after = change.name, change.before, change.after
    if isinstance(before, str) and isinstance(after, str) and ("\n" in before or "\n" in after):
        yield f"  {name}:{ending}"
        yield from _between(before.splitlines(), after.splitlines())
    elif isinstance(before, list) and isinstance(after, list):
        yield f"  {name}:{ending}"
        yield from _between([value_text(item) for item in before], [value_text(item) for item in after])
    elif isinstance(before, Sealed) and isinstance(after, Sealed):
        yield f"- {name}: {before}"
        yield f"+ {name}: {after} (another one){ending}"
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


def printable(line: str) -> str:
    """The line without control characters: what a program hands over cannot steer a terminal, nor end a line."""
    return line if line.isprintable() else "".join(letter if letter.isprintable() else " " for letter in line)


def value_text(value: Any) -> str:
    """A value in one line."""
    if isinstance(value, JsonText):
        value = value[""]
    if isinstance(value, str):
        return shorten(text(value), _WIDEST) if text(value) else '""'
    return shorten(json.dumps(plain(value), ensure_ascii=False, sort_keys=True), _WIDEST)


def hidden(report: Report) -> tuple[str, ...]:
    """What is left out, in words."""
    found = []
    if count := report.counts["dependencies"]:
        found.append(f"{count} with other dependencies only")
    opaque = sum(len(stack.diff.head.opaque) for stack in report.stacks if stack.diff and stack.diff.head)
    if opaque:
        kinds = "chart or remote component" if opaque == 1 else "charts and remote components"
        found.append(f"{opaque} {kinds} whose inside only a plugin or a cluster knows")
    return tuple(found)


def outputs(stack: StackReport) -> tuple[str, ...]:
    """The lines of changed stack outputs."""
    return tuple(line for one in (stack.diff.outputs if stack.diff else ()) for line in property_lines(one))


def default_providers(report: Report) -> tuple[str, ...]:
    """``aws 7.51.1 → 7.52.0`` for providers that the programs do not make themselves."""
    found = []
    for stack in report.stacks:
        if stack.diff is None or stack.diff.base is None or stack.diff.head is None:
            continue
        versions = [
            {
                resource.type.rpartition(":")[2]: text(at(resource.inputs, "version"))
                for resource in items(list(graph.resources))
                if resource.is_default_provider and resource.type != STACK_TYPE
            }
            for graph in (stack.diff.base, stack.diff.head)
        ]
        for package in sorted(versions[0].keys() & versions[1].keys()):
            if versions[0][package] != versions[1][package]:
                found.append(f"{package} {versions[0][package]} → {versions[1][package]}")
    return tuple(dict.fromkeys(found))
