"""Compares what ``diff`` said of a change with what happened in its rehearsal."""

from collections.abc import Iterator, Mapping, Sequence

from eks_inference_tools.reading.kinds import title_of
from eks_inference_tools.simulate.rehearsal.report import Foretold, Line, Rehearsal, Verdict
from eks_inference_tools.simulate.world.objects import opaque_of
from eks_inference_tools.timeline.wording import duration
from stackgraph.diff.domain import Danger
from stackgraph.diff.graphs import StackDiff
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import STACK_TYPE

_MAY = ("server-may-stop", "pods-may-move")
_ENDS = ("server-stopped", "server-gone", "server-waits", "service-empty", "nodes-stuck", "pods-move", *_MAY)
_OF_AWS = ("nodes-rolled", "nodes-kept", "nodes-replaced", "nodes-deleted")
_OF_CONTROLLERS = ("job-again", "refused", "without-effect", "capacity-down", "deleted-with", "endpoint-gone")
_NEAR = 0.1
"""Two times agree within this share of the longer one. Starts whose node or image is there already differ by more."""


def lines(dangers: Sequence[Danger], diff: StackDiff, servers: dict[str, str]) -> tuple[Line, ...]:
    """The lines about outages and controllers. ``servers`` are names by URN."""
    titles = {change.urn: title_of(change.resource) for change in diff.changes if is_kubernetes_object(change.resource)}
    titles |= {opaque.urn: opaque.title for opaque in opaque_of(diff.head)} if diff.head else {}
    found = [danger for danger in dangers if danger.kind in (*_ENDS, *_OF_AWS, *_OF_CONTROLLERS)]
    return tuple(Line(one.kind, one.what, *_away(one, diff, servers), titles.get(one.urn, ""), one.seconds) for one in found)


def _away(danger: Danger, diff: StackDiff, servers: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The server of a line, and all that are away by it: what else its component has without a model, or whose pods move."""
    if danger.kind in ("pods-move", "pods-may-move"):
        return "", tuple(name for name in servers.values() if name in danger.what)
    name, of = servers.get(danger.urn, ""), diff.by_urn.get(danger.urn)
    if not name or of is None or "outage" not in danger.effects:
        return name, ()
    above = diff.by_urn.get(of.resource.parent)
    beside = [one for urn in servers if above and above.resource.type != STACK_TYPE and (one := diff.by_urn.get(urn))]
    return name, (name, *(title_of(one.resource) for one in beside if one.resource.parent == of.resource.parent))


def compared(said: Sequence[Line], saw: Rehearsal) -> tuple[Foretold, ...]:
    verdicts: Mapping[bool | None, Verdict] = {True: "agrees", False: "differs", None: "open"}
    found = ((line, *_compared(line, saw)) for line in said)
    return (*(Foretold(line.what, verdicts[holds], words) for line, holds, words in found), *_unsaid(said, saw))


def _compared(line: Line, saw: Rehearsal) -> tuple[bool | None, str]:
    """Whether a line holds, None if nothing shows it, and what was seen."""
    server, title = line.server, line.title
    times = [away.seconds for away in saw.away if away.server == server]
    longest = max((seconds for seconds in times if seconds is not None), default=0)
    if line.kind in _MAY and not any(away.server in line.away for away in saw.away):
        return None, f"{', '.join(line.away)} answered on"
    if line.kind in ("pods-move", "pods-may-move"):
        moved = [away.server for away in saw.away if away.server in line.away]
        return bool(moved), f"{', '.join(moved) or 'none of them'} did not answer for a while"
    if line.kind in ("server-stopped", "server-gone") and (None in times or not times):
        return not line.seconds and bool(times), f"{server} {'is away for good' if times else 'answers on'}"
    if line.kind in ("server-stopped", "server-may-stop"):
        near = not line.seconds or abs(longest - line.seconds) <= _NEAR * max(longest, line.seconds)
        return near, f"{server} was away for {duration(longest)}"
    if line.kind == "server-gone":
        return False, f"{server} came back"
    if line.kind in ("server-waits", "service-empty", "nodes-stuck", "refused") and title:
        stuck = {stall.title: stall.waits_for for stall in saw.stalls} | {one.title: one.message for one in saw.refusals}
        return title in stuck, stuck.get(title, f"{title} went through")
    if line.kind == "job-again" and any(title in part.unreached for phase in saw.phases for part in phase.parts):
        return None, f"pulumi up fails before it comes to {title}"
    if line.kind == "job-again":
        return title in saw.again, f"{title} {'ran' if title in saw.again else 'did not run'} again"
    if line.kind == "deleted-with" and title:
        return bool(saw.gone), f"{', '.join(saw.gone) or 'nothing'} went with it"
    if line.kind == "capacity-down" and server:
        before, after = (counts.get(server, 0) for _, counts in (saw.samples[0], saw.samples[-1]))
        return after < before, f"{after} of {before} pods answer in the end"
    if line.kind == "without-effect" and server:
        return server not in saw.renewed, f"pods of {server} are {'others' if server in saw.renewed else 'those from before'}"
    if any(line.kind == "nodes-rolled" and line.what.startswith(f"{name} ") for name in saw.drifted):
        return True, "Karpenter exchanged them"
    return (
        None,
        "AWS decides that: it was played as this line says, on nodes that were there"
        if line.kind in _OF_AWS
        else "nothing shows it",
    )


def _unsaid(said: Sequence[Line], saw: Rehearsal) -> Iterator[Foretold]:
    """What happened and no line told."""
    known, titles = {name for line in said for name in line.away}, {line.title for line in said}
    found = [
        *(f"{away.server} was away" for away in saw.away if away.server not in known),
        *(f"{title} ran again" for title in saw.again if title not in titles),
        *(f"{one.title} got stuck" for one in (*saw.stalls, *saw.refusals) if one.title not in titles),
    ]
    yield from (Foretold("", "differs", f"{words}, and diff does not mention it") for words in found)
