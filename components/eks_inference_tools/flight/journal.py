"""What a flight remembers between two commands: one JSON file in its work directory, replaced as a whole at every step."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from eks_inference_tools.flight.rungs import RUNGS, RungName
from stackgraph.presentation.output import json_text, write
from stackgraph.problems import Problem, ProblemsFound


@dataclass(frozen=True)
class Caps:
    """The most that a flight may cost, in USD, and last, in minutes. None: not given."""

    usd: float | None = None
    minutes: float | None = None

    @property
    def both(self) -> bool:
        return self.usd is not None and self.minutes is not None


@dataclass(frozen=True)
class Span:
    """A time at one price. ``until`` is None while it goes on."""

    since: float
    usd_per_hour: float
    until: float | None = None


def spent(spans: Sequence[Span], now: float) -> float:
    """Returns the USD of all spans. A clock that was put back costs nothing, and gives nothing back."""
    return sum(max((now if span.until is None else span.until) - span.since, 0) * span.usd_per_hour / 3600 for span in spans)


def priced(spans: Sequence[Span], now: float, usd_per_hour: float) -> tuple[Span, ...]:
    """Returns the spans with a new price from now on; none with a price of 0."""
    ended = tuple(span if span.until is not None else Span(span.since, span.usd_per_hour, max(now, span.since)) for span in spans)
    return (*ended, Span(now, usd_per_hour)) if usd_per_hour else ended


@dataclass(frozen=True)
class Meter:
    """The caps at one moment. ``spent_usd`` is of the whole flight, ``lasted_s`` of this command."""

    caps: Caps
    spent_usd: float
    lasted_s: float

    def left_s(self, usd_per_hour: float, descent_s: float) -> float:
        """Returns how many seconds may pass at a price until the way down has to begin, so that it ends below both caps.

        Infinite without caps; negative where it should have begun before.
        """
        by_usd = by_minutes = math.inf
        if self.caps.usd is not None and usd_per_hour:
            by_usd = (self.caps.usd - self.spent_usd) / usd_per_hour * 3600
        elif self.caps.usd is not None and self.spent_usd > self.caps.usd:
            by_usd = -math.inf
        if self.caps.minutes is not None:
            by_minutes = self.caps.minutes * 60 - self.lasted_s
        return min(by_usd, by_minutes) - descent_s


SCHEMA = 1
Phase = Literal["climbing", "down", "gone"]
"""``climbing``: the stack may exist and goes on. ``down``: it is being destroyed. ``gone``: nothing is left."""

_MOST_BYTES = 32 << 20


@dataclass(frozen=True)
class Passed:
    """How a rung went. ``seconds`` are from its beginning to its verdict."""

    rung: str
    outcome: str
    seconds: float
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Journal:
    """``reached`` is the last rung that was verified, ``at`` the one that was begun last. ``rows`` are what was measured.

    ``backend`` is the address of Pulumi's backend: in another one the stack would seem to be gone.
    """

    stack: str
    backend: str = ""
    phase: Phase = "climbing"
    reached: RungName | None = None
    at: RungName | None = None
    spans: tuple[Span, ...] = ()
    passed: tuple[Passed, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = field(default=())

    def document(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **dataclasses.asdict(self)}


def read_journal(file: Path, stack: str) -> Journal | None:
    """Returns the journal of a stack; None without one. Raises ``ProblemsFound`` for a file that this program did not write."""
    try:
        with file.open("rb") as opened:
            text = opened.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ProblemsFound([Problem(f"cannot be read: {error.strerror}", file=str(file))]) from None
    try:
        if len(text) > _MOST_BYTES:
            raise ValueError
        found = _journal(json.loads(text))
        json.dumps(found.document(), ensure_ascii=False).encode()  # half a character could not be written back
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        hint = "look at what stands with `pulumi stack`, and destroy it; then remove this file"
        raise ProblemsFound([Problem("not the journal of a flight", file=str(file), hint=hint)]) from None
    if found.stack != stack:
        raise ProblemsFound([Problem("this is the journal of another stack", file=str(file), given=found.stack, allowed=stack)])
    return found


def write_journal(file: Path, journal: Journal) -> None:
    write(json_text(journal.document()), file)


def _journal(given: Mapping[str, Any]) -> Journal:
    if given["schema"] != SCHEMA or given["phase"] not in get_args(Phase):
        raise ValueError
    for rung in (given["reached"], given["at"]):
        if rung not in (None, *RUNGS):
            raise ValueError
    return Journal(
        str(given["stack"]),
        str(given["backend"]),
        given["phase"],
        given["reached"],
        given["at"],
        tuple(_span(one) for one in given["spans"]),
        tuple(_passed(one) for one in given["passed"]),
        tuple(dict(one) for one in given["rows"]),
    )


def _span(given: Mapping[str, Any]) -> Span:
    until = given["until"]
    return Span(_amount(given["since"]), _amount(given["usd_per_hour"]), None if until is None else _amount(until))


def _amount(given: Any) -> float:
    """A number. With one that is infinite or none, a cap of dollars would never be reached."""
    if not 0 <= (found := float(given)) < math.inf:
        raise ValueError
    return found


def _passed(given: Mapping[str, Any]) -> Passed:
    words: Sequence[Any] = given["words"]
    return Passed(str(given["rung"]), str(given["outcome"]), _amount(given["seconds"]), tuple(map(str, words)))
