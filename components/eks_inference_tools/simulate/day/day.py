"""Plays a bad day on a simulated cluster, in real time: requests come, something is lost, and controllers do what they do."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from eks_inference_tools.cost.price_book import PriceBook, prices_of
from eks_inference_tools.reading.live_objects import (
    Object,
    condition_of,
    identity_of,
    is_leaving,
    is_ready,
    name_of,
    node_of,
)
from eks_inference_tools.reading.object_kinds import AUTOSCALERS, DEPLOYMENTS, ENDPOINT_SLICES, NODES, PODS
from eks_inference_tools.simulate.control_plane.control_plane import kubelets
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api
from eks_inference_tools.simulate.control_plane.processes import ComponentError
from eks_inference_tools.simulate.day.dollars import Bill, Dollars
from eks_inference_tools.simulate.day.loss import OF_NODES, Loss, World, chosen
from eks_inference_tools.simulate.day.metrics import blind, metric_of, scalers_of, seeing
from eks_inference_tools.simulate.day.requests import Requests, bad_until
from eks_inference_tools.simulate.day.striking import Striking
from eks_inference_tools.simulate.day.subjects import Subject
from eks_inference_tools.simulate.simulation import Simulation
from stackgraph.graph.values import at, items, text
from stackgraph.problems import Problem, ProblemsFound

_SETTLE_SECONDS = 120
_PERIOD_SECONDS = 1.0
_GRACE_SECONDS = 30
"""Of pods that say none (Kubernetes API, terminationGracePeriodSeconds)."""
_GOOD_SECONDS = 60
"""Without a lost or late request, and with every pod Ready: the day is over."""


@dataclass(frozen=True)
class Moment:
    """The pods of one server at one time, in seconds of the day: those there should be, those that answer.

    ``metric`` is what its autoscaler sees on average of a pod.
    """

    at: float
    server: str
    wanted: int
    answering: int
    metric: float | None = None


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
    """``losses`` come at ``lost_at`` seconds, of ``seconds`` in all; what others serve is back ``back`` seconds later.

    ``waiting`` are pods without a node at the end, with the scheduler's words.
    """

    stack: str
    losses: tuple[Loss, ...]
    lost_at: float
    back: float
    seconds: float
    courses: tuple[Course, ...]
    waiting: tuple[tuple[str, str], ...]
    dollars: Dollars
    blind: tuple[str, ...] = ()
    """Autoscalers that see nothing, and why."""

    @property
    def recovers(self) -> bool:
        return all(course.recovered for course in self.courses) and not self.waiting


@dataclass
class _Cluster:
    """What was last seen of it: while the API server is away, all goes on as it was."""

    nodes: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    listed: Set[str] = frozenset()
    autoscalers: Sequence[Object] = ()

    def look(self, api: Api) -> None:
        # Before the pods: one that becomes Ready in between would be listed and not run.
        self.listed = _listed(api.list(ENDPOINT_SLICES))
        self.pods, self.nodes, self.autoscalers = api.list(PODS), api.list(NODES), api.list(AUTOSCALERS)


def played(
    simulated: Simulation,
    subjects: Sequence[Subject],
    kinds: Sequence[str],
    *,
    at_seconds: float,
    back_seconds: float,
    most_seconds: float,
) -> Day:
    """Loses things after ``at_seconds``, and plays on until all is well for a minute, or ``most_seconds`` have passed.

    Raises ``ComponentError`` when the stack does not stand before, and ``ProblemsFound`` when nothing of a kind does.
    """
    api = simulated.plane.api
    created = simulated.settled("create", simulated.create())
    if not created.is_complete:
        hint = f"eks-inference simulate {simulated.graph.stack} shows what waits"
        raise ComponentError([Problem("the stack does not stand before anything is lost", hint=hint)])
    with seeing(simulated) as pages:
        scalers, fewest = scalers_of(simulated.graph), "the fewest pods of each autoscaler"
        simulated.plane.processes.wait_until(lambda: _scaled(api, scalers), seconds=_SETTLE_SECONDS, what=fewest)
        seen = _Cluster()
        seen.look(api)
        world = World(simulated.graph, subjects, seen.nodes, [pod for pod in seen.pods if any(one.owns(pod) for one in subjects)])
        striking = Striking(simulated, chosen(kinds, world), back_seconds)
        if none := [loss.what for loss in striking.losses if loss.kind in OF_NODES and not loss.nodes]:
            raise ProblemsFound([Problem(f"no node of stack {simulated.graph.stack} runs on {', '.join(none)} now")])
        flows = {
            one.name: Requests(one.takes.times, one.takes.limits, one.load, one.takes.routing, one.copies) for one in subjects
        }
        # Without a loss, requests that are lost or late count from the beginning.
        at_seconds = at_seconds if kinds else 0.0
        kubelets(simulated.plane, starts(world, striking, time.time() + at_seconds))
        bill = Bill(PriceBook((prices_of(simulated.graph),)))
        changes = max(start for subject in subjects for start, _ in subject.load.rates)
        now, moments = 0.0, list[Moment]()
        well_since: float | None = None
        began = time.monotonic()
        while now < most_seconds and (well_since is None or now - well_since < _GOOD_SECONDS):
            simulated.ensure_alive()
            before = {name_of(pod): pod for pod in seen.pods}
            if not striking.away:
                seen.look(api)
            last, now = now, time.monotonic() - began
            bill.add(seen.nodes, now - last)
            since = now - at_seconds
            if striking.struck:
                striking.follow(since, seen.nodes)
            elif since >= 0:
                striking.strike()
            standing = {name_of(node) for node in seen.nodes} - striking.gone(since)
            ended = before.keys() - {name_of(pod) for pod in seen.pods}
            graces = {name: _grace(before[name]) for name in ended if node_of(before[name]) in standing}
            well, shown = striking.is_over(since) and now >= changes, list[tuple[Object, Requests]]()
            for subject in subjects:
                flow, own = flows[subject.name], [pod for pod in seen.pods if subject.owns(pod)]
                running = [pod for pod in own if node_of(pod) in standing and at(pod, "status", "phase") == "Running"]
                alive = {name_of(pod) for pod in running}
                flow.picked = not striking.is_lost("picker", since)
                flow.advance(now, sorted(seen.listed & {name_of(pod) for pod in own}), alive, graces)
                shown += [(pod, flow) for pod in running]
                wanted = [pod for pod in own if not is_leaving(pod)]
                answering = [pod for pod in wanted if is_ready(pod) and name_of(pod) in alive]
                moments.append(Moment(now, subject.name, len(wanted), len(answering), metric_of(subject, seen.autoscalers)))
                quiet = now - bad_until(flow.fates, at_seconds)
                well = well and len(answering) == len(wanted) and quiet >= _GOOD_SECONDS / 2
                well = well and (bool(kinds) or len(wanted) <= subject.least)
            pages.write(shown)
            well_since = (now if well_since is None else well_since) if well else None
            simulated.tell(_told(now, at_seconds, striking.losses, moments[-len(subjects) :]))
            time.sleep(max(0.0, began + now + _PERIOD_SECONDS - time.monotonic()))
    for flow in flows.values():
        flow.finish()
    return Day(
        stack=simulated.graph.stack,
        losses=tuple(striking.losses),
        lost_at=at_seconds,
        back=back_seconds,
        seconds=now,
        courses=tuple(_course(subject, flows[subject.name], moments, at_seconds, well_since is not None) for subject in subjects),
        blind=tuple(blind(simulated.graph)),
        waiting=() if striking.away else tuple(_waiting(api.list(PODS))),
        dollars=bill.dollars(),
    )


def _scaled(api: Api, scalers: int) -> bool:
    """Whether there are so many autoscalers with their fewest pods, and these are Ready. KEDA alone lets there be none. Nothing
    waits for what they add to a Deployment.
    """
    sizes = {identity_of(item): at(item, "spec", "replicas") for item in api.list(DEPLOYMENTS)}
    targets = [(item, (identity_of(item)[0], text(at(item, "spec", "scaleTargetRef", "name")))) for item in api.list(AUTOSCALERS)]
    there = [(at(one, "spec", "minReplicas") or 1, sizes.get(target, -1)) for one, target in targets]
    ready = all((at(item, "status", "readyReplicas") or 0) == at(item, "spec", "replicas") for item in api.list(DEPLOYMENTS))
    return ready and len(there) >= scalers and all(few <= now or not now for few, now in there)


def _listed(slices: Sequence[Object]) -> set[str]:
    """The pods that Services send requests to."""
    return {
        text(at(one, "targetRef", "name"))
        for item in slices
        for one in items(item.get("endpoints"))
        if at(one, "conditions", "ready") is not False
    }


def _grace(pod: Object) -> float:
    return at(pod, "spec", "terminationGracePeriodSeconds") or _GRACE_SECONDS


def starts(world: World, striking: Striking, struck: float) -> str:
    """Returns an expression of jq: when a pod is ready, by its server and by when its node has the image.

    ``struck`` is the time of the loss. An image that a DaemonSet brings is on a node that comes a pull later. Others are pulled
    for a pod, where none of the server has been. What is pulled or downloaded while its source is away waits for it.
    """
    came = {node.name: struck + after for loss in striking.losses for after, node in loss.due}
    pulling = partial(striking.waits, "image-registry", struck)
    known = {name_of(node): 0 for node in world.nodes}
    chain = f"(if {json.dumps(known)}[.spec.nodeName] then 0 else {pulling('$at')} end) | if . > $at then . else null end"
    for subject in world.subjects:
        if subject.prefetched:
            pulls = {name: striking.since("image-registry", struck, comes) for name, comes in came.items()}
            there = known | {name: round(begins + subject.pull_seconds) for name, begins in pulls.items()}
        else:
            there = {node_of(pod): 0 for pod in world.pods if subject.owns(pod)}
        is_it = " and ".join(
            [f".metadata.namespace == {json.dumps(subject.template.namespace)}"]
            + [f".metadata.labels[{json.dumps(key)}] == {json.dumps(value)}" for key, value in subject.template.labels.items()]
        )
        image = f"({json.dumps(there)}[.spec.nodeName] // ({pulling('$at')} + {round(subject.pull_seconds)}))"
        begins = f"([$at, {image}] | max)"
        if subject.from_hub:
            begins = striking.waits("hub", struck, begins)
        chain = f"if {is_it} then {begins} + {round(subject.seconds)} else {chain} end"
    scheduled = 'first(.status.conditions[]? | select(.type == "PodScheduled") | .lastTransitionTime | fromdate)'
    return f'({scheduled}) as $at | ({chain}) | if . then todate else "0s" end'


def _told(now: float, at_seconds: float, losses: Sequence[Loss], moments: Sequence[Moment]) -> str:
    said = ", ".join(f"{moment.server} {moment.answering} of {moment.wanted}" for moment in moments)
    what = " and ".join(loss.what for loss in losses)
    when = f"{what} lost {now - at_seconds:.0f} s ago" if what and now >= at_seconds else "nothing lost"
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
        moments=tuple(moment for moment in moments if moment.server == subject.name),
    )


def _waiting(pods: Sequence[Object]) -> Iterator[tuple[str, str]]:
    for pod in pods:
        said: Mapping[str, object] = condition_of(pod, "PodScheduled") or {}
        if said.get("status") == "False" and not is_leaving(pod):
            yield "/".join(identity_of(pod)), str(said.get("message", ""))
