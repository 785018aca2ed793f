"""All stacks of two revisions side by side: what every format of the report shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from stackgraph.diff.dangers import dangers
from stackgraph.diff.domain import NO_DOMAIN, ComparedDomain, Danger
from stackgraph.diff.graphs import KINDS, Kind, StackDiff, compare
from stackgraph.diff.rows import FactRow, fact_rows
from stackgraph.graph.document import Graph
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
"""What the table of stacks counts."""
NO_STATE = (
    "Two programs are compared, not a program with a deployment: there is no state and no cloud account behind this, so drift, "
    "and what an earlier deployment left undone, is not shown."
)


@dataclass(frozen=True)
class Revision:
    """One side of the comparison. ``commit`` is empty for a file or for what is not committed."""

    name: str
    commit: str = ""
    dirty: bool = False

    @property
    def shown(self) -> str:
        words = self.name if not self.commit or self.name == self.commit[: len(self.name)] else f"{self.name} ({self.commit[:9]})"
        return f"{words} with uncommitted changes" if self.dirty else words


@dataclass(frozen=True)
class FindingText:
    """What a rule has against a stack, as text. ``key`` tells it from others of the stack."""

    rule: str
    severity: str
    place: str
    message: str

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.rule, self.place, self.severity)


@dataclass(frozen=True)
class Recorded:
    """What one revision says of one stack. ``problems`` say why it has no graph; ``findings`` is None where nothing was judged.

    ``places`` has, by source file as the graph names it, the path in the repository. ``sealed_config`` has a digest of the
    encrypted value by configuration key.
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
    """One stack on both sides. A side is None where the stack is not there. ``domain`` is what the caller knows of resources."""

    stack: str
    base: Recorded | None
    head: Recorded | None
    domain: ComparedDomain = NO_DOMAIN

    @property
    def failed(self) -> bool:
        return any(side is not None and side.failed for side in (self.base, self.head))

    @cached_property
    def diff(self) -> StackDiff | None:
        """None where a side failed."""
        if self.failed:
            return None
        base, head = (side.graph if side else None for side in (self.base, self.head))
        return compare(base, head)

    @cached_property
    def dangers(self) -> tuple[Danger, ...]:
        return dangers(self.diff, self.domain) if self.diff else ()

    @cached_property
    def facts(self) -> tuple[FactRow, ...]:
        """What differs in the terms of the domain."""
        return fact_rows(self.diff, self.domain) if self.diff else ()

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
        """Configuration keys whose encrypted value is another text: another secret, or the same encrypted again."""
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
    """The whole comparison. ``tool`` is the command that makes it; ``notes`` say what else a reader must know; ``link`` is what
    source places are below, if anything.
    """

    project: str
    base: Revision
    head: Revision
    stacks: Sequence[StackReport]
    notes: Sequence[str] = ()
    link: str = ""
    tool: str = "stackgraph"

    @property
    def facts_title(self) -> str:
        return self.stacks[0].domain.facts_title if self.stacks else ""

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
        changed = [report for report in self.stacks if report.changed]
        total = len(self.stacks)
        stacks = "stack" if total == 1 else "stacks"
        failed = f", {len(self.failed)} could not be compared" if self.failed else ""
        if not changed:
            return f"No change in {total} {stacks}{failed}"
        numbers = " ".join(f"{SIGNS[kind]}{n}" for kind, n in self.counts.items() if n and kind not in ("same", "dependencies"))
        verb = "changes" if len(changed) == 1 else "change"
        return f"{len(changed)} of {total} {stacks} {verb}{': ' if numbers else ''}{numbers}{failed}"
