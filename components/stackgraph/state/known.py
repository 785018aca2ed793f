"""Gives the inputs of a program the values that a state knows, so that they can be compared with those that were deployed."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stackgraph.diff.comparing import Path
from stackgraph.graph.tokens import REFERENCE, SECRET, UNKNOWN, references

Outputs = Callable[[str], Iterator[Mapping[str, Any]]]
"""By the name of a resource, the outputs that the update will find for the resources of that name."""


def settled(value: Any, outputs: Outputs) -> Any:
    """The value with each reference to an output that is known. Other references stay; between several values nobody decides."""
    if isinstance(value, Mapping):
        made = {key: settled(item, outputs) for key, item in value.items()}
        return type(value)(made) if isinstance(value, dict) else made
    if isinstance(value, list):
        return [settled(item, outputs) for item in value]
    if not isinstance(value, str) or "<" not in value:
        return value
    found = {reference: _found(reference, outputs) for reference in references(value)}
    if any(len(values) > 1 for values in found.values()):
        return UNKNOWN
    if (whole := REFERENCE.fullmatch(value)) and found[whole[1]]:
        return found[whole[1]][0]

    def inside(match: re.Match[str]) -> str:
        (known,) = found[match[1]] or (None,)
        return str(known) if isinstance(known, str | int | float) else match[0]

    return REFERENCE.sub(inside, value)


def unknown(leaf: Any) -> bool:
    """Whether a value, after ``settled``, is one that only the update will know."""
    return leaf == UNKNOWN or (isinstance(leaf, str) and bool(REFERENCE.search(leaf)))


def _found(reference: str, outputs: Outputs) -> list[Any]:
    """The values that a reference has: several if resources of one name differ in it."""
    steps = reference.split(".")
    values: list[Any] = []
    for split in range(1, len(steps)):
        for known in outputs(".".join(steps[:split])):
            value: Any = known
            for step in steps[split:]:
                value = value.get(step) if isinstance(value, Mapping) else None
            if value is not None and value not in values:
                values.append(value)
    return values


def hidden(value: Any, deployed: Any, unchanged: bool) -> tuple[Any, int]:
    """The value with what is deployed in place of what cannot be compared, and how often: secrets, and values that the program
    computes from outputs. Only if ``unchanged``: nothing that they depend on is made anew. Else they are unknown.

    What is computed may have come out as none: the state has nothing in its place (``unsaid``). A secret that it lacks is new.
    """
    if value == UNKNOWN or (value == SECRET and deployed is not None):
        return (deployed, 1) if unchanged else (UNKNOWN, 0)
    if isinstance(value, Mapping) and isinstance(deployed, Mapping):
        pairs = {key: hidden(item, deployed.get(key), unchanged) for key, item in value.items()}
        made = {key: item for key, (item, _) in pairs.items()}
        return (type(value)(made) if isinstance(value, dict) else made), sum(count for _, count in pairs.values())
    if isinstance(value, list) and isinstance(deployed, list) and len(value) == len(deployed):
        items = [hidden(item, other, unchanged) for item, other in zip(value, deployed, strict=True)]
        return [item for item, _ in items], sum(count for _, count in items)
    return value, 0


def unsaid(value: Any, deployed: Any, path: Path = ()) -> Iterator[Path]:
    """Where the program computes a value that the state lacks: it was none, or somebody has added it since."""
    if value == UNKNOWN and deployed is None:
        yield path
    elif isinstance(value, Mapping) and isinstance(deployed, Mapping):
        for key, item in value.items():
            yield from unsaid(item, deployed.get(key), (*path, key))
    elif isinstance(value, list) and isinstance(deployed, list) and len(value) == len(deployed):
        for number, (item, other) in enumerate(zip(value, deployed, strict=True)):
            yield from unsaid(item, other, (*path, number))
