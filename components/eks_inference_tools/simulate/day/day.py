"""Plays a bad day on a simulated cluster, in real time: requests come, something is lost, and controllers do what they do."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eks_inference_tools.placing.nodes import managed_nodes
from eks_inference_tools.reading.kinds import DEPLOYMENTS, ENDPOINT_SLICES, NODES, PODS
from eks_inference_tools.reading.live_objects import (
    Object,
    condition_of,
    identity_of,
    is_leaving,
    is_ready,
    labels_of,
    name_of,
    node_of,
)
from eks_inference_tools.simulate.control_plane.api import Api
from eks_inference_tools.simulate.control_plane.control_plane import kubelets
from eks_inference_tools.simulate.control_plane.processes import ComponentError
from eks_inference_tools.simulate.day.loss import Kind, Loss, chosen
from eks_inference_tools.simulate.day.requests import Requests, bad_until
from eks_inference_tools.simulate.day.subjects import Subject
from eks_inference_tools.simulate.simulation import Simulation
from stackgraph.graph.values import at, items, text
from stackgraph.problems import Problem

AUTOSCALERS = "horizontalpodautoscalers.autoscaling"
_SETTLE_SECONDS = 120
_PERIOD_SECONDS = 1.0
_GOOD_SECONDS = 60
"""Without a lost or late request, and with every pod Ready: the day is over."""


@dataclass(frozen=True)
class Moment:
    """The pods of one server at one time, in seconds of the day: those there should be, those that answer."""

    at: float
    server: str
    wanted: int
    answering: int


@dataclass(frozen=True)
class Course:
    """What became of a server. ``bad_seconds`` from the loss to the last request that was lost or late.

    ``recovered``: whether requests have been served in time since, long enough to tell.
    """

    subject: Subject
    came: int
    served: int
    late: int
    lost: int
    bad_seconds: float
    recovered: bool
    moments: tuple[Moment, ...]


@dataclass(frozen=True)
class Day:
    """``lost`` is what was lost at ``lost_at`` seconds, of ``seconds`` in all. ``waiting`` are pods without a node at the end,
    with the scheduler's words.
    """

    stack: str
    loss: Loss
    lost_at: float
    seconds: float
    courses: tuple[Course, ...]
    waiting: tuple[tuple[str, str], ...]

    @property
    def recovers(self) -> bool:
        return all(course.recovered for course in self.courses) and not self.waiting


def played(simulated: Simulation, subjects: Sequence[Subject], kind: Kind, *, at_seconds: float, most_seconds: float) -> Day:
    """Loses something after ``at_seconds``, and plays on until all is well for a minute, or ``most_seconds`` have passed.

    Raises ``ComponentError`` when the stack does not stand before.
    """
    api = simulated.plane.api
    created = simulated.settled("create", simulated.create())
    if not created.is_complete:
        hint = f"eks-inference simulate {simulated.graph.stack} shows what waits"
        raise ComponentError([Problem("the stack does not stand before anything is lost", hint=hint)])
    simulated.plane.processes.wait_until(lambda: _scaled(api), seconds=_SETTLE_SECONDS, what="the fewest pods of each autoscaler")
    pods = api.list(PODS)
    stood = [pod for pod in pods if any(owns(one, pod) for one in subjects)]
    loss = chosen(kind, api.list(NODES), stood, managed_nodes(simulated.graph))
    flows = {one.name: Requests(one.takes.times, one.takes.limits, one.load, one.takes.routing, one.copies) for one in subjects}
    later = {node.name: time.time() + at_seconds + after for after, node in loss.due}
    kubelets(simulated.plane, _starts(subjects, stood, api.list(NODES), later))
    began, struck, now = time.monotonic(), False, 0.0
    moments: list[Moment] = []
    well_since: float | None = None
    while now < most_seconds and (well_since is None or now - well_since < _GOOD_SECONDS):
        simulated.ensure_alive()
        pods, nodes = api.list(PODS), api.list(NODES)
        listed = _listed(api.list(ENDPOINT_SLICES))
        now = time.monotonic() - began
        if struck:
            loss.follow(now - at_seconds, nodes, api)
        elif now >= at_seconds:
            loss.strike(api)
            struck = True
        standing = {name_of(node) for node in nodes} - (loss.nodes if struck else frozenset())
        well = struck
        for one in subjects:
            flow, own = flows[one.name], [pod for pod in pods if owns(one, pod)]
            alive = {name_of(pod) for pod in own if node_of(pod) in standing and at(pod, "status", "phase") == "Running"}
            flow.advance(now, sorted(listed & {name_of(pod) for pod in own}), alive)
            wanted = [pod for pod in own if not is_leaving(pod)]
            answering = [pod for pod in wanted if is_ready(pod) and name_of(pod) in alive]
            moments.append(Moment(now, one.name, len(wanted), len(answering)))
            last = bad_until(flow.fates, at_seconds)
            well = well and len(answering) == len(wanted) and now - last >= _GOOD_SECONDS / 2
        well_since = (now if well_since is None else well_since) if well else None
        simulated.tell(_told(now, at_seconds, loss, moments[-len(subjects) :]))
        time.sleep(max(0.0, began + now + _PERIOD_SECONDS - time.monotonic()))
    for flow in flows.values():
        flow.finish()
    return Day(
        stack=simulated.graph.stack,
        loss=loss,
        lost_at=at_seconds,
        seconds=now,
        courses=tuple(_course(one, flows[one.name], moments, at_seconds, well_since is not None) for one in subjects),
        waiting=tuple(_waiting(api.list(PODS))),
    )


def _scaled(api: Api) -> bool:
    """Whether autoscalers have their fewest pods, and these are Ready. Nothing waits for what they add to a Deployment."""
    least = [at(one, "spec", "minReplicas") or 1 for one in api.list(AUTOSCALERS)]
    there = [at(one, "status", "currentReplicas") or 0 for one in api.list(AUTOSCALERS)]
    ready = all(at(one, "status", "readyReplicas") == at(one, "spec", "replicas") for one in api.list(DEPLOYMENTS))
    return ready and all(few <= now for few, now in zip(least, there, strict=False))


def owns(subject: Subject, pod: Object) -> bool:
    return subject.owns(identity_of(pod)[0], labels_of(pod))


def _listed(slices: Sequence[Object]) -> set[str]:
    """The pods that Services send requests to."""
    return {
        text(at(one, "targetRef", "name"))
        for item in slices
        for one in items(item.get("endpoints"))
        if at(one, "conditions", "ready") is not False
    }


def _starts(subjects: Sequence[Subject], pods: Sequence[Object], nodes: Sequence[Object], later: Mapping[str, float]) -> str:
    """Returns an expression of jq: when a pod is ready, by its server and by when its node has the image.

    ``later`` are nodes that come, with the time of it. An image that a DaemonSet brings is there a pull later. Others are pulled
    for a pod, where none of the server has been.
    """
    chain = "null"
    for one in subjects:
        if one.prefetched:
            there = {name_of(node): 0 for node in nodes}
            there |= {name: round(comes + one.pull_seconds) for name, comes in later.items()}
        else:
            there = {node_of(pod): 0 for pod in pods if owns(one, pod)}
        is_it = " and ".join(
            [f".metadata.namespace == {json.dumps(one.template.namespace)}"]
            + [f".metadata.labels[{json.dumps(key)}] == {json.dumps(value)}" for key, value in one.template.labels.items()]
        )
        image = f"({json.dumps(there)}[.spec.nodeName] // ($at + {round(one.pull_seconds)}))"
        chain = f"if {is_it} then ([$at, {image}] | max) + {round(one.seconds)} else {chain} end"
    scheduled = 'first(.status.conditions[]? | select(.type == "PodScheduled") | .lastTransitionTime | fromdate)'
    return f'({scheduled}) as $at | ({chain}) | if . then todate else "0s" end'


def _told(now: float, at_seconds: float, loss: Loss, moments: Sequence[Moment]) -> str:
    said = ", ".join(f"{one.server} {one.answering} of {one.wanted}" for one in moments)
    when = f"{loss.kind} {loss.what} lost {now - at_seconds:.0f} s ago" if now >= at_seconds else "before the loss"
    return f"{when}; pods that answer: {said}"


def _course(subject: Subject, flow: Requests, moments: Sequence[Moment], since: float, well: bool) -> Course:
    counts = flow.counts()
    last = bad_until(flow.fates, since)
    return Course(
        subject=subject,
        came=flow.came,
        served=counts["served"],
        late=counts["late"],
        lost=counts["lost"] + flow.unanswered,
        bad_seconds=last - since,
        recovered=well,
        moments=tuple(one for one in moments if one.server == subject.name),
    )


def _waiting(pods: Sequence[Object]) -> Iterator[tuple[str, str]]:
    for pod in pods:
        said: Mapping[str, object] = condition_of(pod, "PodScheduled") or {}
        if said.get("status") == "False" and not is_leaving(pod):
            yield "/".join(identity_of(pod)), str(said.get("message", ""))
