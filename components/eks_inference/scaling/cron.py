"""Times in the form of cron, as KEDA's scaler counts them. Pure.

Source: KEDA 2.20.2, pkg/scalers/cron_scaler.go; robfig/cron 3, parser.go and spec.go.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import merge
from itertools import pairwise

_FIELDS = {"minute": (0, 59), "hour": (0, 23), "day of the month": (1, 31), "month": (1, 12), "day of the week": (0, 6)}
_NAMES = {
    "month": ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    "day of the week": ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}
_LEAP_YEAR = datetime(2028, 1, 1)


def cron(value: str) -> str:
    """Takes what KEDA's parser takes: five fields of numbers, names, ranges, lists and steps."""
    _parsed(value)
    return value


def out_of_turn(start: str, end: str) -> str:
    """Returns in words where start and end do not take turns in a year; empty: they do.

    Pods are there while the next end comes before the next start, whatever came last: from the last of several starts, and to the
    last of several ends. A time that never comes counts as long past.
    """
    for what, value in (("start", start), ("end", end)):
        if not next(_times(value), None):
            return f"{what} {value} never comes"
    turns = merge(((time, "end") for time in _times(end)), ((time, "start") for time in _times(start)))
    for (before, one), (after, other) in pairwise(turns):
        if before == after:
            return f"both come on {after:%a %H:%M}: pods stay until the next end"
        if one == other:
            until = "begin only then" if one == "start" else "stay until then"
            return f"{one} comes on {before:%a %H:%M} and again on {after:%a %H:%M}: pods {until}"
    return ""


def _parsed(value: str) -> list[set[int]]:
    fields = value.split()
    if len(fields) != len(_FIELDS):
        raise ValueError(f"a schedule has five fields, such as 0 8 * * 1-5: {', '.join(_FIELDS)}")
    return [set().union(*(_part(one, name) for one in field.split(","))) for field, name in zip(fields, _FIELDS, strict=True)]


def _part(part: str, name: str) -> range:
    low, high = _FIELDS[name]
    match = re.fullmatch(r"(?:[*?]|(\w+)(?:-(\w+))?)(?:/([1-9]\d*))?", part.lower(), re.ASCII)
    ends = [_number(end, name) for end in match.groups()[:2] if end] if match else [-1]
    if not match or not all(low <= end <= high for end in ends) or ends != sorted(ends):
        raise ValueError(f"{part!r} is no {name} of a schedule; allowed: {low} to {high}, a-b, *, */n, and lists of them")
    first, last = (ends[0], ends[-1]) if ends else (low, high)
    return range(first, (high if match[3] and not match[2] else last) + 1, int(match[3] or 1))


def _number(end: str, name: str) -> int:
    names = _NAMES.get(name, [])
    return int(end) if end.isdecimal() else names.index(end) + (name == "month") if end in names else -1


def _times(value: str) -> Iterator[datetime]:
    """Yields the times of a leap year. Days are those of month and week where one of them is any, else those of either."""
    minutes, hours, days, months, weekdays = _parsed(value)
    every = any(part in ("*", "?") for field in (value.split()[2], value.split()[4]) for part in field.split(","))
    for day in (_LEAP_YEAR + timedelta(days=number) for number in range(366)):
        found = (day.day in days, day.isoweekday() % 7 in weekdays)
        if day.month in months and (all(found) if every else any(found)):
            yield from (day.replace(hour=hour, minute=minute) for hour in sorted(hours) for minute in sorted(minutes))
