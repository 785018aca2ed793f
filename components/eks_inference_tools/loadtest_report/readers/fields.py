"""Reading figures out of JSON of which nothing is certain: whatever is missing or of another kind is noted, not raised."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from eks_inference_tools.loadtest_report.record import Run, Spread
from stackgraph.graph.values import text

_LONGEST = 40
_MOST = 1e9


class Fields:
    """A JSON value and what is below it. ``faults`` collects what a reader needed and did not find, of the whole file."""

    def __init__(self, value: Any, path: str = "", faults: list[str] | None = None) -> None:
        self.value = value
        self._path = path
        self.faults: list[str] = [] if faults is None else faults

    def at(self, *path: str | int) -> "Fields":
        """What is at a path; a value of None where there is nothing."""
        value, shown = self.value, self._path
        for key in path:
            if isinstance(key, int):
                value = value[key] if isinstance(value, list) and key < len(value) else None
                shown += f"[{key}]"
            else:
                value = value.get(key) if isinstance(value, Mapping) else None
                shown += f".{key}" if shown else key
        return Fields(value, shown, self.faults)

    def __iter__(self) -> Iterator["Fields"]:
        """The items, when it is a list."""
        for number in range(len(self.value) if isinstance(self.value, list) else 0):
            yield self.at(number)

    def number(self, *path: str | int) -> float | None:
        """A number, also one in quotes; None for null, NaN, or nothing there.

        Anything else is a fault, and so is what no measurement gives: less than nothing, or more than ``_MOST``.
        """
        found = self.at(*path)
        if found.value is None:
            return None
        try:
            if isinstance(found.value, bool):
                raise ValueError
            number = float(found.value)
        except (TypeError, ValueError):
            self.faults.append(f"{found._path}: {_shown(found.value)} is no number")
            return None
        if math.isnan(number):
            return None
        if not 0 <= number <= _MOST:
            self.faults.append(f"{found._path}: {_shown(found.value)} is no measurement")
            return None
        return number

    def needed(self, *path: str | int) -> float | None:
        """As ``number``; a fault where there is none."""
        noted = len(self.faults)
        number = self.number(*path)
        if number is None and len(self.faults) == noted:
            self.faults.append(f"{self.at(*path)._path}: missing")
        return number

    def count(self, *path: str | int) -> int | None:
        """A whole number; None where there is none."""
        number = self.number(*path)
        return None if number is None else round(number)

    def text(self, *path: str | int) -> str:
        """A text in one line; empty where there is none."""
        value = self.at(*path).value
        return text(value) if isinstance(value, str) else ""

    def spread(self, keys: Mapping[str, str], factor: float = 1) -> Spread:
        """The statistics that are there, by their own name: ``keys`` tells how the file calls each."""
        found = {statistic: self.number(key) for statistic, key in keys.items()}
        return {statistic: number * factor for statistic, number in found.items() if number is not None}


class Reader(NamedTuple):
    """How to read the results of one tool. ``files`` says which of its files, for who gave another."""

    tool: str
    files: str
    recognises: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Fields], Iterator[Run]]


def _shown(value: Any) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"
