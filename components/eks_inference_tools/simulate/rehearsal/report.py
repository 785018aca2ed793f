"""What happened in the rehearsal of a change, and its JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from eks_inference_tools.simulate.report import PHASE, Phase, phase_document
from eks_inference_tools.simulate.rollout.walk import Refusal, Stall
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
