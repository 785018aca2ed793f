"""What follows an update of a property: the rows of ``after_update.toml``, which explains them. Pure."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from eks_inference_tools.reading.scalars import quantity
from stackgraph.diff.comparing import Path, PropertyChange, path_text
from stackgraph.diff.graphs import ResourceChange
from stackgraph.diff.replacements import covers, pattern_of
from stackgraph.graph.values import at, leaves, text

Then = Literal["nothing", "scale", "restart", "roll", "refused", "ignored"]


@dataclass(frozen=True, eq=False)
class Row:
    """A row of the table. ``of`` are paths by kind."""

    package: str
    of: Mapping[str, Sequence[Path]]
    then: Then
    source: str
    says: str = ""
    only: str = ""
    when: Mapping[str, str] = field(default_factory=dict)

    def paths(self, type_: str) -> tuple[Path, ...]:
        """The paths of a type that the row names."""
        kind = type_.rpartition(":")[2]
        found = (*self.of.get(kind, ()), *self.of.get("*", ()))
        return found if type_.partition(":")[0] == self.package else ()

    def named(self, change: ResourceChange, one: PropertyChange) -> str:
        """The path of the row that names a changed property. Empty if none does."""
        return next((path_text(path) for path in self.paths(change.resource.type) if covers(path, one.path)), "")

    def applies(self, change: ResourceChange, one: PropertyChange) -> bool:
        return (
            bool(self.named(change, one))
            and _is(self.only, one)
            and all(_has(change.resource.inputs, *asked) for asked in self.when.items())
        )


@cache
def rows() -> tuple[Row, ...]:
    """The rows in their order."""
    text_ = files("eks_inference_tools.reading").joinpath("after_update.toml").read_text(encoding="utf-8")
    return tuple(Row(row.pop("in"), _of(row.pop("of")), **row) for row in tomllib.loads(text_)["row"])


def follows(change: ResourceChange) -> Iterator[tuple[Row, PropertyChange]]:
    """Yields each changed property of an update with its row. A property without one is left out."""
    for one in change.properties if change.kind == "update" else ():
        if row := next((row for row in rows() if row.applies(change, one)), None):
            yield row, one


def _of(given: str) -> Mapping[str, Sequence[Path]]:
    """``Kind path path Kind path`` by kind: a kind begins with a capital letter, or is ``*``."""
    found: dict[str, list[Path]] = {}
    paths: list[Path] = []
    for word in given.split():
        if word == "*" or word[0].isupper():
            paths = found.setdefault(word, [])
        else:
            paths.append(pattern_of(word))
    return found


def _has(inputs: Any, path: str, value: str) -> bool:
    found = text(at(inputs, *path.split(".")))
    return found not in ("", "0") if value == "+" else found == value


def _is(only: str, one: PropertyChange) -> bool:
    if only == "less":
        before, after = (quantity(side) for side in (one.before, one.after))
        return before is not None and after is not None and after < before
    before, after = ({text(leaf) for leaf in leaves(side)} for side in (one.before, one.after))
    return not only or not before <= after
