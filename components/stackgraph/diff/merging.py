"""Prepares what is told for display: grouped by component, with equal changes of several resources and stacks merged."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from stackgraph.diff.contents import Contents, Told
from stackgraph.diff.graphs import Kind
from stackgraph.graph.values import grouped
from stackgraph.graph.wording import counted

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
