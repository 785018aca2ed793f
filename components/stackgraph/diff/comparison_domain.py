"""What a caller can add to a comparison, on top of what it adds to the views."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from stackgraph.diff.graphs import StackDiff
from stackgraph.diff.titles import NO_TITLES, Titles
from stackgraph.domain import Domain
from stackgraph.graph.document import Graph


class Weight(IntEnum):
    """The category of a danger, worst first."""

    REPLACED = 1
    DELETED = 2
    UNSURE = 3
    REFUSED = 4
    UNPROTECTED = 5
    OPENED = 6
    CHANGED = 7


Effect = Literal["outage", "loss", "budget"]


@dataclass(frozen=True)
class Danger:
    """One change that a reviewer must see. ``kind`` is an identifier for programs, ``what`` a line for people.

    Dangers of one ``subject``, with which ``what`` begins, are told in one line. ``effects`` says whether something does not
    answer for a while (``seconds``; 0: nobody knows), is lost for good or costs more than it may, ``avoid`` what would avoid it.
    """

    kind: str
    what: str
    urn: str = ""
    weight: Weight = Weight.CHANGED
    subject: str = ""
    effects: tuple[Effect, ...] = ()
    seconds: int = 0
    avoid: str = ""


@dataclass(frozen=True)
class ComparedDomain(Domain):
    """A domain for comparisons.

    ``facts`` returns texts of a graph to compare, by subject. ``dangers`` returns dangers of a stack that is in both revisions; a
    replaced or deleted resource that one of them names is not listed again. ``measures`` say what a change does to figures of a
    whole stack, such as its cost, by their title; an empty text is no change.
    """

    titles: Titles = NO_TITLES
    facts: Callable[[Graph], Mapping[str, str]] = lambda graph: {}
    dangers: Callable[[StackDiff], Iterable[Danger]] = lambda diff: ()
    measures: Mapping[str, Callable[[Graph | None, Graph | None], str]] = field(default_factory=dict)


NO_DOMAIN = ComparedDomain()
