"""What happened in the rehearsal of a change, beside what ``diff`` had said of it, and its JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from eks_inference_tools.reading.object_kinds import title_of
from eks_inference_tools.simulate.report import PHASE, Phase, phase_document
from eks_inference_tools.simulate.rollout.walk import Refusal, Stall
from eks_inference_tools.simulate.world.api_objects import opaque_of
from eks_inference_tools.timeline.durations import duration
from stackgraph.diff.comparison_domain import Danger
from stackgraph.diff.graphs import StackDiff
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import STACK_TYPE
from stackgraph.presentation.output import json_text

SCHEMA = 1
Verdict = Literal["agrees", "differs", "open"]
_SHAPE = {
    "stack": str,
    "kubernetes": str,
    "well": bool,
    "endsSeconds": float,
    "pods": [{"seconds": float, "answering": {"*": int}}],
    "away": [{"server": str, "beganSeconds": float, "seconds": float | None, "untimed": [str], "lostRequests": int}],
    **{key: [str] for key in ("renewed", "jobsAgain", "gone")},
    "pulumiWaits": [{"object": str, "seconds": float}],
    "phases": [PHASE],
    "diff": [{"line": str, "verdict": Verdict, "saw": str}],
}
SHAPE = {**_SHAPE, "tried": [{"with": str, **_SHAPE}]}

REQUESTS_A_SECOND = 1
"""Each server gets this constant load, which comes from no model. Requests that come while no pod is ready are lost."""

BASE, CHANGE, NODES_AFTER, DESTROY = "base", "change", "nodes", "destroy"
"""The phases: the base is applied, then the change, Karpenter exchanges nodes afterwards, and in the end all is deleted."""

_MAY = ("server-may-stop", "pods-may-move")
_ENDS = ("server-stopped", "server-gone", "server-waits", "service-empty", "nodes-stuck", "pods-move", *_MAY)
_OF_AWS = ("nodes-rolled", "nodes-kept", "nodes-replaced", "nodes-deleted")
_OF_CONTROLLERS = ("job-again", "refused", "without-effect", "capacity-down", "deleted-with", "endpoint-gone")
_NEAR = 0.1
"""Two times agree within this share of the longer one. Starts whose node or image is there already differ by more."""


@dataclass(frozen=True)
class Away:
    """A time in which no pod of a server is ready. ``seconds`` is None where it does not come back. ``untimed`` are phases of
    its start without a typical time, which count nothing.
    """

    server: str
    began_s: float
    seconds: float | None
    untimed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """A line of ``diff`` about outages and controllers, written down before. ``away`` are those who do not answer by it."""

    kind: str
    what: str
    server: str = ""
    away: tuple[str, ...] = ()
    title: str = ""
    seconds: int = 0


@dataclass(frozen=True)
class Foretold:
    """A line, whether it agrees with what happened, and what that was. ``open``: the rehearsal cannot show it."""

    what: str
    verdict: Verdict
    saw: str


@dataclass(frozen=True)
class Rehearsal:
    """``samples`` are pods that answer by server, at each change, from the beginning of the change. ``renewed`` are servers of
    which not all pods are those from before, ``gone`` objects of the head that the change has removed with something else,
    ``drifted`` the "nodes of POOL" that Karpenter exchanged. ``tried`` is the value in the stack file that it was played with.
    """

    stack: str
    kubernetes: str
    phases: tuple[Phase, ...]
    samples: tuple[tuple[float, Mapping[str, int]], ...] = ()
    untimed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    renewed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    drifted: tuple[str, ...] = ()
    ends_s: float = 0.0
    foretold: tuple[Foretold, ...] = ()
    tried: str = ""

    @property
    def away(self) -> tuple[Away, ...]:
        return tuple(self._away())

    def _away(self) -> Iterator[Away]:
        first = self.samples[0][1] if self.samples else {}
        for server in (name for name, pods in first.items() if pods):
            since: float | None = None
            for when, pods in self.samples:
                if not pods.get(server) and since is None:
                    since = when
                elif pods.get(server) and since is not None:
                    yield Away(server, since, when - since, self.untimed.get(server, ()))
                    since = None
            if since is not None:
                yield Away(server, since, None)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        return tuple(refusal for phase in self.phases for part in phase.parts for refusal in part.refusals)

    @property
    def stalls(self) -> tuple[Stall, ...]:
        return tuple(stall for phase in self.phases for part in phase.parts for stall in part.stalls)

    @property
    def again(self) -> tuple[str, ...]:
        """Jobs that run a second time."""
        steps = (step for phase in self.phases if phase.name == CHANGE for step in phase.outcome.steps)
        return tuple(step.title for step in steps if step.action == "replace" and step.title.startswith("Job "))

    @property
    def waits(self) -> tuple[tuple[str, float], ...]:
        """What `pulumi up` waits for, the longest first, in simulated seconds."""
        steps = (step for phase in self.phases if phase.name == CHANGE for step in phase.outcome.steps)
        return tuple(sorted(((step.title, step.took_s) for step in steps if step.took_s), key=lambda one: -one[1]))

    @property
    def is_well(self) -> bool:
        """Whether nothing stopped answering, and nothing got stuck or lost."""
        return not (self.away or self.refusals or self.stalls or self.gone)


def lost(away: Away, ends_s: float) -> int:
    """Requests that come meanwhile; of a server that does not come back, until the end of the rehearsal."""
    return round(REQUESTS_A_SECOND * (ends_s - away.began_s if away.seconds is None else away.seconds))


def render_json(rehearsal: Rehearsal, *tried: Rehearsal) -> str:
    """Times are in simulated seconds from the beginning of the change."""
    return json_text(
        {"schema": SCHEMA, **_document(rehearsal), "tried": [{"with": one.tried, **_document(one)} for one in tried]}
    )


def _document(rehearsal: Rehearsal) -> dict[str, Any]:
    return {
        "stack": rehearsal.stack,
        "kubernetes": rehearsal.kubernetes,
        "well": rehearsal.is_well,
        "endsSeconds": rehearsal.ends_s,
        "pods": [{"seconds": when, "answering": dict(pods)} for when, pods in rehearsal.samples],
        "away": [
            {
                "server": away.server,
                "beganSeconds": away.began_s,
                "seconds": away.seconds,
                "untimed": away.untimed,
                "lostRequests": lost(away, rehearsal.ends_s),
            }
            for away in rehearsal.away
        ],
        "renewed": rehearsal.renewed,
        "jobsAgain": rehearsal.again,
        "gone": rehearsal.gone,
        "pulumiWaits": [{"object": title, "seconds": seconds} for title, seconds in rehearsal.waits],
        "phases": [phase_document(phase) for phase in rehearsal.phases],
        "diff": [{"line": foretold.what, "verdict": foretold.verdict, "saw": foretold.saw} for foretold in rehearsal.foretold],
    }


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
