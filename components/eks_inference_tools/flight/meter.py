"""What a flight has cost, and how long it may go on. Pure: seconds are those of a clock that the caller reads."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


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
    return sum(max((now if one.until is None else one.until) - one.since, 0) * one.usd_per_hour / 3600 for one in spans)


def priced(spans: Sequence[Span], now: float, usd_per_hour: float) -> tuple[Span, ...]:
    """Returns the spans with a new price from now on; none with a price of 0."""
    ended = tuple(one if one.until is not None else Span(one.since, one.usd_per_hour, max(now, one.since)) for one in spans)
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
