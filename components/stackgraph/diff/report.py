"""The comparison of all stacks of two revisions, and the keys and lines of stack files that differ. ``telling.py`` puts it into
words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from stackgraph.diff.comparison_domain import NO_DOMAIN, ComparedDomain, Danger
from stackgraph.diff.contents import FactRow, FindingText, Revision
from stackgraph.diff.dangers import dangers
from stackgraph.diff.differences import Path, PropertyChange, differences, path_text
from stackgraph.diff.graphs import KINDS, Kind, StackDiff, compare
from stackgraph.graph.document import Graph
from stackgraph.problems import Problem

ENCRYPTED = "[secret]"
"""Stands for every encrypted value, so that none of them differs here."""


@dataclass(frozen=True)
class StackFile:
    """The configuration of a stack file. ``path`` is its place in the repository; ``lines`` has the line of every key."""

    path: str
    config: Mapping[str, Any]
    lines: Mapping[Path, int]

    def source(self, path: Path) -> str:
        """``file:line`` of a key, or of its nearest ancestor in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.path}:{self.lines.get(path, 1)}"


def changed_keys(base: StackFile | None, head: StackFile | None) -> tuple[PropertyChange, ...]:
    """The innermost keys that differ. None where one of the files is not known."""
    return tuple(differences(base.config, head.config)) if base and head else ()


def key_text(path: Path) -> str:
    """A key as messages about stack files show it: ``eks-inference:stack.pools.core.size``."""
    inner = path_text(path[1:])
    return f"{path[0]}{'' if inner[:1] in ('', '[') else '.'}{inner}"


@dataclass(frozen=True)
class Recorded:
    """One stack at one revision. ``problems`` explain why it has no graph. ``findings`` is None if no rules were run.

    ``places`` maps source files, as the graph names them, to paths in the repository. ``sealed_config`` holds digests of
    encrypted values by configuration key. ``file`` is the stack's file, where there is one.
    """

    graph: Graph | None = None
    problems: tuple[Problem, ...] = ()
    findings: tuple[FindingText, ...] | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    sealed_config: Mapping[str, str] = field(default_factory=dict)
    file: StackFile | None = None

    @property
    def failed(self) -> bool:
        return bool(self.problems)


@dataclass(frozen=True)
class StackReport:
    """One stack in both revisions; None stands for a revision without it. ``domain`` is what the caller knows about resources.

    ``planned`` are the changes where the base is a deployed stack; ``steps`` then says in words what an update does, in its
    order, and ``found`` are dangers that only the state shows.
    """

    stack: str
    base: Recorded | None
    head: Recorded | None
    domain: ComparedDomain = NO_DOMAIN
    planned: StackDiff | None = None
    steps: tuple[str, ...] | None = None
    found: tuple[Danger, ...] = ()

    @property
    def failed(self) -> bool:
        return any(side is not None and side.failed for side in (self.base, self.head))

    @property
    def side(self) -> str:
        """``new`` or ``gone`` if only one revision has the stack, else empty."""
        return "new" if self.base is None else "gone" if self.head is None else ""

    @cached_property
    def diff(self) -> StackDiff | None:
        """None if a revision failed."""
        if self.failed or self.planned:
            return self.planned
        base, head = (side.graph if side else None for side in (self.base, self.head))
        return compare(base, head)

    @cached_property
    def dangers(self) -> tuple[Danger, ...]:
        found = dangers(self.diff, self.domain) if self.diff else ()
        return tuple(sorted((*self.found, *found), key=lambda danger: danger.weight))

    @cached_property
    def facts(self) -> tuple[FactRow, ...]:
        """The facts that differ, in the order of the head. For a new stack, all of its facts."""
        graphs = (self.diff.base, self.diff.head) if self.diff else (None, None)
        before, after = (self.domain.facts(graph) if graph else {} for graph in graphs)
        found = (FactRow(about, before.get(about, ""), after.get(about, "")) for about in {**after, **before})
        return tuple(row for row in found if row.before != row.after)

    @cached_property
    def measures(self) -> Mapping[str, str]:
        """The domain's figures of the stack, by title. Empty for a stack without a change."""
        diff = self.diff
        if not diff or not diff.changed:
            return {}
        return {title: measure(diff.base, diff.head) for title, measure in self.domain.measures.items()}

    @property
    def changed(self) -> bool:
        return bool((self.diff and self.diff.changed) or self.found or self.rotated or self.new_findings or self.cured_findings)

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
    """The whole comparison. ``tool`` is the name of the command, ``link`` the base URL of source files, or empty.

    ``only_stack_files`` says that the revisions differ in no other file.
    """

    project: str
    base: Revision
    head: Revision
    stacks: Sequence[StackReport]
    notes: Sequence[str] = ()
    link: str = ""
    tool: str = "stackgraph"
    only_stack_files: bool = False

    @property
    def domain(self) -> ComparedDomain:
        return self.stacks[0].domain if self.stacks else NO_DOMAIN

    @cached_property
    def counts(self) -> Mapping[Kind, int]:
        found = [report.diff.counts for report in self.stacks if report.diff]
        return {kind: sum(counts[kind] for counts in found) for kind in KINDS}
