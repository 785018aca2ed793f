"""What follows an update of a property: the rows of ``after_update.toml``, which explains them. Pure."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Literal

from eks_inference_tools.reading.scalars import quantity
from stackgraph.diff.comparing import ABSENT, Path, PropertyChange
from stackgraph.diff.graphs import ResourceChange
from stackgraph.diff.replacements import covers, pattern_of
from stackgraph.graph.document import Resource
from stackgraph.graph.values import at, leaves, text

Then = Literal["nothing", "scale", "restart", "roll", "refused", "ignored", "final"]


@dataclass(frozen=True, eq=False)
class Row:
    """A row of the table. ``of`` are paths by kind."""

    of: Mapping[str, Sequence[Path]]
    then: Then
    source: str
    says: str = ""
    only: str = ""
    when: Mapping[str, str] = field(default_factory=dict)

    def named(self, type_: str, path: Path) -> Path | None:
        """The path of the row that names a property of a type, if any does."""
        prefix = f"{type_.partition(':')[0]}:".removeprefix("kubernetes:")
        own = (path for kind in (type_.rpartition(":")[2], "*") for path in self.of.get(prefix + kind, ()))
        return next((one for one in own if covers(one, path)), None)

    def applies(self, resource: Resource, one: PropertyChange) -> bool:
        has = (text(at(resource.inputs, *path.split("."))) == value for path, value in self.when.items())
        return self.named(resource.type, one.path) is not None and _is(self.only, one) and all(has)


@cache
def rows() -> tuple[Row, ...]:
    """The rows in their order."""
    text_ = files("eks_inference_tools.reading").joinpath("after_update.toml").read_text(encoding="utf-8")
    return tuple(Row(_of(row.pop("of")), **row) for row in tomllib.loads(text_)["row"])


def follows(change: ResourceChange) -> Iterator[tuple[Row, PropertyChange]]:
    """Yields each changed property of an update with its row. A property without one is left out."""
    for property_change in change.properties if change.kind == "update" else ():
        if row := next((row for row in rows() if row.applies(change.resource, property_change)), None):
            yield row, property_change


def _of(given: str) -> Mapping[str, Sequence[Path]]:
    """``Kind path path aws:Kind`` by kind: those of Kubernetes have no prefix. One without paths has all."""
    kinds = re.split(r"(?:^|\s+)(?=[A-Z*]|aws:|eks:)", given.strip())
    named = (kind.split() for kind in kinds if kind)
    return {kind: tuple(map(pattern_of, paths)) or ((),) for kind, *paths in named}


def _is(only: str, one: PropertyChange) -> bool:
    if only == "less":
        before, after = (quantity(side) for side in (one.before, one.after))
        return before is not None and after is not None and after < before
    if only == "mode":
        return ABSENT in (one.before, one.after)
    before, after = ({text(leaf) for leaf in leaves(side)} for side in (one.before, one.after))
    # Of requirements, one that is gone asks for less.
    return not only or (one.after is not ABSENT and not before <= after)
