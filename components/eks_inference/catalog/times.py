"""Typical times: loads ``times.toml``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from eks_inference.catalog.instances import Accelerator
from eks_inference.catalog.tables import table

Pass = Literal["low", "p50", "high"]
PASSES: tuple[Pass, ...] = ("low", "p50", "high")

Action = Literal["create", "delete"]

_NEITHER = "none"
_LOG = re.compile(r"\b[Ll]og ([A-Z])\b")


@dataclass(frozen=True)
class Typical:
    """How long something typically takes: seconds, or seconds for each ``unit``.

    ``p50`` is the median of what was seen, ``low`` the least, ``high`` the most. ``samples`` is how often it was seen. ``read``
    (YYYY-MM) is when it was published or read.
    """

    p50: float
    low: float
    high: float
    samples: int
    source: str
    read: str

    def at(self, which: Pass) -> float:
        return {"low": self.low, "p50": self.p50, "high": self.high}[which]

    def times(self, amount: float, but_at_least: float = 0) -> "Typical":
        """Returns the time for so many units, which a disk or a network may bound below."""
        low, p50, high = (max(self.at(which) * amount, but_at_least) for which in PASSES)
        return Typical(p50, low, high, self.samples, self.source, self.read)

    def by(self, factor: "Typical") -> "Typical":
        """Returns this time multiplied by a ratio."""
        low, p50, high = (self.at(which) * factor.at(which) for which in PASSES)
        return Typical(p50, low, high, min(self.samples, factor.samples), f"{self.source}; {factor.source}", self.read)


INSTANT = Typical(0, 0, 0, 0, "", "")
"""What takes no time: components, providers, resources that are only looked up."""


@dataclass(frozen=True)
class PhaseRow:
    """A phase of the start of pods. What is None fits anything; the row that asks for most wins."""

    phase: str
    time: Typical
    accelerator: str | None = None
    """An ``Accelerator``, or ``none`` for nodes without one."""
    billions: tuple[float, float] | None = None
    """Bounds of the model's parameters, in billions."""
    instance_type: str | None = None


def resource_time(action: Action, type_: str, what: str) -> Typical | None:
    """Returns the time of an action on a resource: by its type and ``what`` it is, by its type, or by its package."""
    rows = _resources().get(action, {})  # a bundle may have any
    package = type_.partition(":")[0]
    return next((found for key in ((type_, what), (type_, ""), (package, "")) if (found := rows.get(key))), None)


def phase_time(
    phase: str, accelerator: Accelerator | None = None, billions: float | None = None, instance_type: str = ""
) -> Typical | None:
    """Returns the time of a phase. A model of unknown size fits only rows for any size."""
    fitting = [
        row
        for row in _phases()
        if row.phase == phase
        and row.accelerator in (None, accelerator or _NEITHER)
        and row.instance_type in (None, instance_type)
        and (row.billions is None or (billions is not None and row.billions[0] <= billions <= row.billions[1]))
    ]
    return max(fitting, key=_specific).time if fitting else None


def instance_types_of(phase: str, accelerator: Accelerator | None, billions: float | None) -> frozenset[str]:
    """Returns the instance types that have a time of their own in a phase, for models of that size."""
    return frozenset(
        row.instance_type
        for row in _phases()
        if row.instance_type and row.phase == phase and phase_time(phase, accelerator, billions, row.instance_type) is row.time
    )


def _specific(row: PhaseRow) -> int:
    return sum(value is not None for value in (row.accelerator, row.billions, row.instance_type))


def logs() -> Mapping[str, str]:
    """The logs that rows cite by a letter."""
    return {letter: log["source"] for letter, log in _document()["logs"].items()}


def _document() -> Mapping[str, Any]:
    return table("times.toml")


@cache
def _resources() -> Mapping[Action, Mapping[tuple[str, str], Typical]]:
    actions: tuple[Action, ...] = ("create", "delete")
    return {action: {(row["type"], row.get("what", "")): _typical(row) for row in _document()[action]} for action in actions}


@cache
def _phases() -> tuple[PhaseRow, ...]:
    return tuple(
        PhaseRow(
            row["phase"],
            _typical(row),
            row.get("accelerator"),
            tuple(row["billions"]) if "billions" in row else None,
            row.get("instance_type"),
        )
        for row in _document()["phase"]
    )


def _typical(row: Mapping[str, Any]) -> Typical:
    source = _LOG.sub(lambda found: f"log {found[1]} ({logs()[found[1]]})", row["source"])
    return Typical(row["p50"], row["low"], row["high"], row["samples"], source, row["read"])
