"""Reads figures from untrusted JSON: missing or wrong values are recorded as faults, not raised."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eks_inference_tools.loadtest_report.record import Run, Spread
from stackgraph.graph.values import text

_MAX_SHOWN = 40
_MAX_NUMBER = 1e9


@dataclass(frozen=True)
class Fields:
    """A JSON value and its descendants. ``faults`` collects the problems of the whole file."""

    value: Any
    path: str = ""
    faults: list[str] = field(default_factory=list)

    def at(self, *path: str | int) -> "Fields":
        """Returns the value at a path; its ``value`` is None if there is none."""
        value, shown = self.value, self.path
        for key in path:
            if isinstance(key, int):
                value = value[key] if isinstance(value, list) and key < len(value) else None
                shown += f"[{key}]"
            else:
                value = value.get(key) if isinstance(value, Mapping) else None
                shown += f".{key}" if shown else key
        return Fields(value, shown, self.faults)

    def __iter__(self) -> Iterator["Fields"]:
        """Yields the items of a list."""
        for number in range(len(self.value) if isinstance(self.value, list) else 0):
            yield self.at(number)

    def number(self, *path: str | int) -> float | None:
        """Returns a number, also a quoted one; None for null, NaN or a missing value.

        Other values are faults, as are numbers that cannot be measurements: negative ones, and those above ``_MAX_NUMBER``.
        """
        found = self.at(*path)
        if found.value is None:
            return None
        try:
            if isinstance(found.value, bool):
                raise ValueError
            number = float(found.value)
        except (TypeError, ValueError):
            self.faults.append(f"{found.path}: {_shown(found.value)} is not a number")
            return None
        if math.isnan(number):
            return None
        if not 0 <= number <= _MAX_NUMBER:
            self.faults.append(f"{found.path}: {_shown(found.value)} is not a measurement")
            return None
        return number

    def needed(self, *path: str | int) -> float | None:
        """As ``number``, but a missing value is a fault."""
        noted = len(self.faults)
        number = self.number(*path)
        if number is None and len(self.faults) == noted:
            self.faults.append(f"{self.at(*path).path}: missing")
        return number

    def count(self, *path: str | int) -> int | None:
        """Returns a rounded number; None if there is none."""
        number = self.number(*path)
        return None if number is None else round(number)

    def text(self, *path: str | int) -> str:
        """Returns a string in one line; empty if there is none."""
        value = self.at(*path).value
        return text(value) if isinstance(value, str) else ""

    def spread(self, keys: Mapping[str, str], factor: float = 1) -> Spread:
        """Returns the present statistics by our names; ``keys`` maps these to the file's names."""
        found = {statistic: self.number(key) for statistic, key in keys.items()}
        return {statistic: number * factor for statistic, number in found.items() if number is not None}


class Reader(NamedTuple):
    """Reads the results of one tool. ``files`` names its result files, for error messages."""

    tool: str
    files: str
    recognises: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Fields], Iterator[Run]]


def _shown(value: Any) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= _MAX_SHOWN else shown[:_MAX_SHOWN] + "…"
