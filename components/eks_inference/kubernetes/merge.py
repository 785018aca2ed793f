"""Merges a user's values over ours: the escape hatch of charts and add-ons."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from eks_inference.catalog import charts
from eks_inference.faults import Fault, SpecError

_FREE = frozenset({"image", "resources"})
"""Keys whose contents users may replace everywhere: nothing else in a stack relies on them."""


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``ours`` with ``theirs`` merged in, key by key; lists and scalars are replaced."""
    result = dict(ours)
    for key, value in theirs.items():
        mine = result.get(key)
        result[key] = merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return result


def beside(
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    *,
    chart: str = "",
    key: Sequence[str] = ("values",),
    free: Collection[str] = (),
) -> dict[str, Any]:
    """Returns the values of a chart or the configuration of an add-on: ours, and a user's beside them.

    The rest of a stack relies on ours, and on some of the ``chart``'s own. A user may replace only those below ``image`` and
    ``resources``, and those whose dotted path is in ``free``. Raises ``SpecError`` with a fault for each other one below ``key``,
    which is the user's.
    """
    faults = [
        Fault(
            (*key, *path),
            "the stack relies on its own value here",
            given=json.dumps(value, default=str),
            hint="leave it out; where the stack file has a key of its own for it, set that instead",
        )
        for path, value in _replaced(merged(charts.relied(chart), ours), theirs)
        if not _FREE & set(path) and ".".join(path) not in free
    ]
    if faults:
        raise SpecError(faults)
    return merged(ours, theirs)


def _replaced(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yields the paths of our values that a user's replace, with the user's. An empty mapping of ours is to stay empty."""
    for key, value in theirs.items():
        if key not in ours:
            continue
        mine, here = ours[key], (*path, key)
        if isinstance(mine, Mapping) and mine and isinstance(value, Mapping):
            yield from _replaced(mine, value, here)
        elif mine is not value and mine != value:
            yield here, value
