"""What changes in the terms of a domain: its facts before and after."""

from dataclasses import dataclass

from stackgraph.diff.domain import ComparedDomain
from stackgraph.diff.graphs import StackDiff


@dataclass(frozen=True)
class FactRow:
    """One fact before and after; empty where it is not there."""

    about: str
    before: str
    after: str


def fact_rows(diff: StackDiff, domain: ComparedDomain) -> tuple[FactRow, ...]:
    """The facts that differ, in the order of the head; of a stack that is new, those that it has."""
    before, after = (domain.facts(graph) if graph else {} for graph in (diff.base, diff.head))
    found = (FactRow(about, before.get(about, ""), after.get(about, "")) for about in {**after, **before})
    return tuple(row for row in found if row.before != row.after)
