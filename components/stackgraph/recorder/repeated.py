"""Spares the SDK work that it repeats for each property of each resource: a tenth of a recording.

It asks the same types again and again what they hold, and looks for unknowns in texts and numbers, which hold none.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from pulumi import _types, output
from pulumi.runtime import rpc

from stackgraph.recorder.replaced import replaced

_OF_TYPES = ("_is_optional_type", "_is_union_type", "unwrap_optional_type", "unwrap_type")
"""Functions of ``pulumi._types`` whose results depend on nothing but the type they are given."""

_PLAIN = (str, int, float, type(None))

# By function, and by id of a type, which is kept as well. Unions in another order are equal, but not for the SDK.
_known: dict[str, dict[int, tuple[Any, Any]]] = {name: {} for name in _OF_TYPES}


def repetition_spared() -> contextlib.AbstractContextManager[None]:
    """Makes those functions remember their results, and others return at once."""
    look = rpc.contains_unknowns

    def contains_unknowns(value: Any) -> bool:
        return not isinstance(value, _PLAIN) and look(value)

    remembering = [(_types, name, partial(_remembered, _known[name], getattr(_types, name))) for name in _OF_TYPES]
    return replaced(
        [*remembering, (rpc, "contains_unknowns", contains_unknowns), (output, "contains_unknowns", contains_unknowns)]
    )


def _remembered(known: dict[int, tuple[Any, Any]], function: Callable[[Any], Any], type_: Any) -> Any:
    found = known.get(id(type_))
    if found is None:
        found = known[id(type_)] = (type_, function(type_))
    return found[1]
