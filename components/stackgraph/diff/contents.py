"""What a report tells, as plain data: everything that a format shows, without the graphs that it comes from.

A comparison makes it (``telling.py``), and so does the JSON of one (``saved.py``). Every format is rendered from it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stackgraph.diff.graphs import Kind
from stackgraph.diff.titles import NO_TITLES, Titles
from stackgraph.graph.values import grouped
from stackgraph.graph.wording import counted

SIGNS: Mapping[Kind, str] = {
    "create": "+",
    "update": "~",
    "replace": "±",
    "delete": "−",
    "move": "→",
    "dependencies": "·",
    "same": "=",
}
WORDS: Mapping[Kind, str] = {
    "create": "to create",
    "update": "to update",
    "replace": "to replace",
    "delete": "to delete",
    "move": "to move",
    "dependencies": "with other dependencies only",
    "same": "unchanged",
}
COLUMNS: tuple[Kind, ...] = ("create", "update", "replace", "delete", "move")
"""The columns of the table of stacks."""
ROTATED = "the encrypted value of {} changed: a new secret, or the same one encrypted again"
NO_STATE = (
    "This compares two programs, not a program with a deployment. It uses no state and no cloud account, so it does not show "
    "drift, or what an earlier deployment left undone."
)


OF_STATE = (
    "This compares a program with an exported state. `pulumi preview` says what providers decide by values of their own, what "
    "differs between state and cloud, and what is inside charts and remote components."
)


@dataclass(frozen=True)
class Revision:
    """One side of the comparison. ``commit`` is empty for a file and for uncommitted work."""

    name: str
    commit: str = ""
    dirty: bool = False

    @property
    def shown(self) -> str:
        words = self.name if not self.commit or self.name == self.commit[: len(self.name)] else f"{self.name} ({self.commit[:9]})"
        return f"{words} with uncommitted changes" if self.dirty else words


@dataclass(frozen=True)
class FindingText:
    """A finding of a rule, as text. ``key`` identifies it within its stack."""

    rule: str
    severity: str
    place: str
    message: str

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.rule, self.place, self.severity)


@dataclass(frozen=True)
class FactRow:
    """One fact of the domain in both revisions; empty in one that does not have it."""

    about: str
    before: str
    after: str


def by_subject(dangers: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Dangers in words, one line for each subject, from pairs of subject and words. Those without a subject stay alone."""
    lines = grouped((subject or what, what) for subject, what in dict.fromkeys(dangers))
    return tuple(
        "; ".join((first, *(other.removeprefix(subject).lstrip(": ") for other in others)))
        for subject, (first, *others) in lines.items()
    )


@dataclass(frozen=True)
class Told:
    """The change of one resource in words.

    ``section`` is the class of the component around the resource; None for a setting, which is a change of a component itself.
    ``source`` is ``file:line`` of the call that makes the resource, ``path`` that file in the head's repository. Each of
    ``lines`` begins with ``- ``, ``+ `` or two spaces.
    """

    urn: str
    kind: Kind
    section: str | None
    type: str
    name: str
    source: str
    path: str
    lines: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class StackContents:
    """What is told of one stack. ``side`` is ``new`` or ``gone`` if only one revision has the stack.

    ``avoid`` says what would avoid some of ``dangers``. ``problems`` are texts by revision (``base``, ``head``) that could not be
    recorded. ``opaque`` is the number of charts and remote components of the head, ``unsure`` that of resources that may be
    replaced, ``outputs`` the lines of changed outputs. ``steps`` are those of an update in its order; None without a state.
    ``measures`` are the domain's figures by title. ``keys`` are those of the stack file that somebody edited.
    """

    stack: str
    side: str = ""
    changed: bool = False
    counts: Mapping[Kind, int] = field(default_factory=dict)
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dangers: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    facts: tuple[FactRow, ...] = ()
    new_findings: tuple[FindingText, ...] = ()
    cured_findings: tuple[FindingText, ...] = ()
    rotated: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    keys: tuple[Told, ...] = ()
    changes: tuple[Told, ...] = ()
    opaque: int = 0
    unsure: int = 0
    steps: tuple[str, ...] | None = None
    measures: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return any(self.problems.values())

    @property
    def figures(self) -> list[str]:
        """The number of changes in each of ``COLUMNS``, as text."""
        return [str(self.counts.get(kind, 0) or "·") for kind in COLUMNS]


@dataclass(frozen=True)
class Contents:
    """The whole report. ``tool`` is the name of the command, ``link`` the base URL of source files, or empty.

    ``only_stack_files`` says that no other file of the repository differs, so that every change comes from their keys.
    """

    project: str
    base: Revision
    head: Revision
    stacks: Sequence[StackContents]
    notes: tuple[str, ...] = ()
    link: str = ""
    tool: str = "stackgraph"
    titles: Titles = NO_TITLES
    only_stack_files: bool = False

    @property
    def failures(self) -> Iterator[tuple[str, str, str]]:
        """Every problem, after the stack it is in and ``base`` or ``head``."""
        for stack in self.stacks:
            for side, problems in stack.problems.items():
                yield from ((stack.stack, side, problem) for problem in problems)

    @property
    def ending(self) -> str:
        """What a reader has to know of every report of the kind."""
        return NO_STATE if all(stack.steps is None for stack in self.stacks) else OF_STATE

    @property
    def measures(self) -> tuple[str, ...]:
        """The titles of the domain's figures that differ in any stack: further columns of the table of stacks."""
        return tuple(title for title in self.titles.measures if any(stack.measures.get(title) for stack in self.stacks))

    @property
    def unchanged(self) -> list[str]:
        return [stack.stack for stack in self.stacks if not stack.changed and not stack.failed]

    @property
    def changed(self) -> bool:
        return any(stack.changed for stack in self.stacks)

    @property
    def failed(self) -> list[str]:
        return [stack.stack for stack in self.stacks if stack.failed]

    def named(self, stack: StackContents) -> str:
        """What stands before a line about a stack: its name, if there are several."""
        return f"{stack.stack}: " if len(self.stacks) > 1 else ""

    def count(self, kind: Kind) -> int:
        """The number of changes of a kind in all stacks."""
        return sum(stack.counts.get(kind, 0) for stack in self.stacks)

    @property
    def headline(self) -> str:
        """``2 of 3 stacks change: +4 ~2 ±1 −1``."""
        changed = sum(stack.changed for stack in self.stacks)
        stacks = counted(len(self.stacks), "stack")
        failed = f", {len(self.failed)} could not be compared" if self.failed else ""
        if not changed:
            same = len(self.stacks) - len(self.failed)
            return f"No change in {counted(same, 'stack')}{failed}" if same or not failed else f"{stacks} could not be compared"
        numbers = " ".join(f"{SIGNS[kind]}{self.count(kind)}" for kind in COLUMNS if self.count(kind))
        verb = "changes" if changed == 1 else "change"
        return f"{changed} of {stacks} {verb}{': ' if numbers else ''}{numbers}{failed}"
