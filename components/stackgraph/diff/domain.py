"""What a caller who knows what resources are for adds to a comparison, beside what it adds to the views."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from stackgraph.diff.graphs import StackDiff
from stackgraph.domain import Domain
from stackgraph.graph.document import Graph


class Weight(IntEnum):
    """What a danger is about, worst first."""

    REPLACED = 1
    DELETED = 2
    REFUSED = 3
    UNPROTECTED = 4
    OPENED = 5
    CHANGED = 6


@dataclass(frozen=True)
class Danger:
    """One thing to look at. ``kind`` is a word for programs, ``what`` a line for people, ``urn`` the resource it is about."""

    kind: str
    what: str
    urn: str = ""
    weight: Weight = Weight.CHANGED


@dataclass(frozen=True)
class ComparedDomain(Domain):
    """A domain that compares. ``facts`` are what somebody compares in two graphs: texts by what they are about, under the title
    ``facts_title``. ``dangers`` are findings about a change of a stack that is on both sides; a replaced or deleted resource that
    one of them names is not listed among the others.
    """

    facts_title: str = "Facts"
    facts: Callable[[Graph], Mapping[str, str]] = lambda graph: {}
    dangers: Callable[[StackDiff], Iterable[Danger]] = lambda diff: ()


NO_DOMAIN = ComparedDomain()
