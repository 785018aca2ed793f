"""Compares what ``diff`` said of a change with what happened in its rehearsal."""

from collections.abc import Iterator, Sequence

from eks_inference_tools.reading.kinds import title_of
from eks_inference_tools.simulate.rehearsal.report import Foretold, Line, Rehearsal
from eks_inference_tools.timeline.wording import duration
from stackgraph.diff.domain import Danger
from stackgraph.diff.graphs import StackDiff

_ENDS = ("server-stopped", "server-gone", "server-waits")
_OF_AWS = ("nodes-rolled", "nodes-kept", "nodes-replaced", "nodes-deleted")
_OF_CONTROLLERS = ("job-again", "refused", "without-effect", "capacity-down", "endpoint-gone")
_NEAR = 0.1
"""Of the longer time: a start whose node or image is there already differs by more."""


def lines(dangers: Sequence[Danger], diff: StackDiff, servers: dict[str, str]) -> tuple[Line, ...]:
    """The lines about outages and controllers. ``servers`` are names by URN."""
    return tuple(
        Line(
            one.kind,
            one.what,
            servers.get(one.urn, ""),
            title_of(diff.by_urn[one.urn].resource) if one.urn in diff.by_urn else "",
            one.seconds,
            "outage" in one.effects,
        )
        for one in dangers
        if one.kind in (*_ENDS, *_OF_AWS, *_OF_CONTROLLERS)
    )


def compared(said: Sequence[Line], saw: Rehearsal) -> tuple[Foretold, ...]:
    return (*(_compared(line, saw) for line in said), *_unsaid(said, saw))


def _compared(line: Line, saw: Rehearsal) -> Foretold:
    away = [one for one in saw.away if one.server == line.server]
    stuck = {one.title: one.waits_for for one in saw.stalls} | {one.title: one.message for one in saw.refusals}

    def verdict(holds: bool, words: str) -> Foretold:
        return Foretold(line.what, "agrees" if holds else "differs", words)

    if line.kind == "server-stopped":
        if not away:
            return verdict(False, f"{line.server} answered all the time")
        longest = max((one.seconds for one in away if one.seconds is not None), default=None)
        if longest is None:
            return verdict(False, f"{line.server} did not come back")
        near = abs(longest - line.seconds) <= _NEAR * max(longest, line.seconds)
        return verdict(near, f"{line.server} was away for {duration(longest)}")
    if line.kind == "server-gone":
        return verdict(any(one.seconds is None for one in away), f"{line.server} {'is away for good' if away else 'answers on'}")
    if line.kind in ("server-waits", "refused"):
        return verdict(line.title in stuck, stuck.get(line.title, f"{line.title} went through"))
    if line.kind == "job-again":
        return verdict(line.title in saw.again, f"{line.title} {'ran again' if line.title in saw.again else 'did not run again'}")
    if line.kind == "capacity-down" and line.server:
        pods = [counts.get(line.server, 0) for _, counts in (saw.samples[0], saw.samples[-1])]
        return verdict(pods[1] < pods[0], f"{pods[1]} of {pods[0]} pods answer in the end")
    if line.kind == "without-effect" and line.server:
        return verdict(
            line.server not in saw.renewed,
            f"pods of {line.server} {'are' if line.server in saw.renewed else 'are not'} other ones",
        )
    why = "AWS decides that; it was played as this line says" if line.kind in _OF_AWS else "nothing here shows it"
    return Foretold(line.what, "open", why)


def _unsaid(said: Sequence[Line], saw: Rehearsal) -> Iterator[Foretold]:
    """What happened and no line told."""
    known = {line.server for line in said if line.kind in _ENDS and line.ends}
    for one in saw.away:
        if one.server not in known:
            when = "for good" if one.seconds is None else f"for {duration(one.seconds)}"
            yield Foretold("", "differs", f"{one.server} was away {when}, and diff says nothing of it")
    titles = {line.title for line in said}
    for title in (*saw.again, *(one.title for one in (*saw.stalls, *saw.refusals))):
        if title not in titles:
            yield Foretold(
                "", "differs", f"{title}: {'it ran again' if title in saw.again else 'it got stuck'}, and diff says nothing of it"
            )
