"""The data of the report: all stacks of two revisions, independent of the output format."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from stackgraph.diff.dangers import dangers
from stackgraph.diff.domain import NO_DOMAIN, ComparedDomain, Danger
from stackgraph.diff.graphs import KINDS, Kind, StackDiff, compare
from stackgraph.graph.document import Graph
from stackgraph.graph.wording import counted
from stackgraph.problems import Problem

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


@dataclass(frozen=True)
class Recorded:
    """One stack at one revision. ``problems`` explain why it has no graph. ``findings`` is None if no rules were run.

    ``places`` maps source files, as the graph names them, to paths in the repository. ``sealed_config`` holds digests of
    encrypted values by configuration key.
    """

    graph: Graph | None = None
    problems: tuple[Problem, ...] = ()
    findings: tuple[FindingText, ...] | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    sealed_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return bool(self.problems)


@dataclass(frozen=True)
class StackReport:
    """One stack in both revisions; None stands for a revision without it. ``domain`` is what the caller knows about resources."""

    stack: str
    base: Recorded | None
    head: Recorded | None
    domain: ComparedDomain = NO_DOMAIN

    @property
    def failed(self) -> bool:
        return any(side is not None and side.failed for side in (self.base, self.head))

    @property
    def side(self) -> str:
        """``new`` or ``gone`` if only one revision has the stack, else empty."""
        return "new" if self.base is None else "gone" if self.head is None else ""

    @property
    def figures(self) -> list[str]:
        """The number of changes in each of ``COLUMNS``, as text."""
        counts = self.diff.counts if self.diff else {}
        return [str(counts.get(kind, 0) or "·") for kind in COLUMNS]

    @cached_property
    def diff(self) -> StackDiff | None:
        """None if a revision failed."""
        if self.failed:
            return None
        base, head = (side.graph if side else None for side in (self.base, self.head))
        return compare(base, head)

    @cached_property
    def dangers(self) -> tuple[Danger, ...]:
        return dangers(self.diff, self.domain) if self.diff else ()

    @cached_property
    def facts(self) -> tuple[FactRow, ...]:
        """The facts that differ, in the order of the head. For a new stack, all of its facts."""
        graphs = (self.diff.base, self.diff.head) if self.diff else (None, None)
        before, after = (self.domain.facts(graph) if graph else {} for graph in graphs)
        found = (FactRow(about, before.get(about, ""), after.get(about, "")) for about in {**after, **before})
        return tuple(row for row in found if row.before != row.after)

    @property
    def changed(self) -> bool:
        return bool((self.diff and self.diff.changed) or self.rotated or self.new_findings or self.cured_findings)

    @property
    def new_findings(self) -> tuple[FindingText, ...]:
        return self._only(self.head, self.base)

    @property
    def cured_findings(self) -> tuple[FindingText, ...]:
        return self._only(self.base, self.head)

    @property
    def rotated(self) -> tuple[str, ...]:
        """Configuration keys whose encrypted value changed: a new secret, or the same one encrypted again."""
        if self.base is None or self.head is None:
            return ()
        base, head = self.base.sealed_config, self.head.sealed_config
        return tuple(sorted(key for key in base.keys() & head.keys() if base[key] != head[key]))

    @staticmethod
    def _only(this: Recorded | None, other: Recorded | None) -> tuple[FindingText, ...]:
        if this is None or other is None or this.findings is None or other.findings is None:
            return ()
        known = {finding.key for finding in other.findings}
        return tuple(finding for finding in this.findings if finding.key not in known)


@dataclass(frozen=True)
class Report:
    """The whole comparison. ``tool`` is the name of the command, ``link`` the base URL of source files, or empty."""

    project: str
    base: Revision
    head: Revision
    stacks: Sequence[StackReport]
    notes: Sequence[str] = ()
    link: str = ""
    tool: str = "stackgraph"

    @property
    def domain(self) -> ComparedDomain:
        return self.stacks[0].domain if self.stacks else NO_DOMAIN

    @property
    def failures(self) -> Iterator[tuple[str, str, Problem]]:
        """Every problem, after the stack it is in and ``base`` or ``head``."""
        for stack in self.stacks:
            for side, name in ((stack.base, "base"), (stack.head, "head")):
                yield from ((stack.stack, name, problem) for problem in (side.problems if side else ()))

    @property
    def unchanged(self) -> list[str]:
        return [report.stack for report in self.stacks if not report.changed and not report.failed]

    @cached_property
    def counts(self) -> Mapping[Kind, int]:
        found = [report.diff.counts for report in self.stacks if report.diff]
        return {kind: sum(counts[kind] for counts in found) for kind in KINDS}

    @property
    def changed(self) -> bool:
        return any(report.changed for report in self.stacks)

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(report.stack for report in self.stacks if report.failed)

    @property
    def headline(self) -> str:
        """``2 of 3 stacks change: +4 ~2 ±1 −1``."""
        changed = sum(report.changed for report in self.stacks)
        stacks = counted(len(self.stacks), "stack")
        failed = f", {len(self.failed)} could not be compared" if self.failed else ""
        if not changed:
            return f"No change in {stacks}{failed}"
        numbers = " ".join(f"{SIGNS[kind]}{n}" for kind, n in self.counts.items() if n and kind not in ("same", "dependencies"))
        verb = "changes" if changed == 1 else "change"
        return f"{changed} of {stacks} {verb}{': ' if numbers else ''}{numbers}{failed}"
