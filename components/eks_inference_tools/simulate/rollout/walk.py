"""The walk through a stack: each object has its turn once all it waits for are done, until there is none or nothing moves."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from eks_inference_tools.reading.kinds import PODS
from eks_inference_tools.reading.live_objects import Object, Seen, condition_of, identity_of, title_of
from eks_inference_tools.simulate.control_plane.api import ApiRefusal
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.rollout.operations import NotYet, OfObject, Operation
from eks_inference_tools.simulate.rollout.readiness import Failed, Ready
from eks_inference_tools.simulate.world.landing import READS as LANDING_READS
from eks_inference_tools.simulate.world.landing import landing
from stackgraph.graph.values import at, text

QUIET_SECONDS = 15.0
"""When nothing has moved for so long, nothing will: the longest pause of what moves things is the 10 s after which kube-scheduler
tries a pod again (KubeSchedulerConfiguration, ``podMaxBackoffSeconds``). ``control_plane`` sees to those that are longer.
"""

LIMIT_SECONDS = 600.0
"""How long Pulumi waits for one object that has no timeout of its own. Hours of a cluster are seconds here."""

_ROUND_SECONDS = 0.25

Observer = Callable[[Seen], None]
"""Called once a round with what is in the cluster, ``pods`` always among it. What it raises ends the rollout."""


@dataclass(frozen=True)
class Step:
    """One object that was made, changed or deleted. Seconds since the rollout began; ``took_s`` includes the wait."""

    title: str
    action: str
    began_s: float
    took_s: float


@dataclass(frozen=True)
class Refusal:
    """The API server did not take an object, or its change."""

    title: str
    action: str
    reason: str
    message: str


@dataclass(frozen=True)
class Stall:
    """An object that failed, or that Pulumi would wait for until its timeout. ``words`` are those of the cluster about its pods
    and itself; ``behind`` are the objects that have not had their turn because of it.
    """

    title: str
    action: str
    waits_for: str
    words: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a rollout went. ``unreached`` are the objects that have not had their turn."""

    duration_s: float
    steps: tuple[Step, ...]
    refusals: tuple[Refusal, ...] = ()
    stalls: tuple[Stall, ...] = ()
    unreached: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not (self.refusals or self.stalls or self.unreached)


@dataclass
class Task:
    """What is done with one resource of the stack, one operation after the other; nothing for one that others only wait for."""

    urn: str
    title: str
    action: str
    after: frozenset[str]
    operations: Sequence[Operation] = ()
    position: int = 0
    begun: bool = False
    began_s: float = 0.0
    words: str = ""


class Walk:
    """Goes through tasks, each after those it waits for, until all are done or nothing moves any more."""

    def __init__(self, plane: ControlPlane, observe: Observer | None, quiet_seconds: float) -> None:
        self._plane, self._observe, self._quiet_seconds = plane, observe, quiet_seconds
        self._began = time.monotonic()
        self._steps: list[Step] = []
        self._refusals: list[Refusal] = []
        self._stalls: list[Stall] = []
        self._done: set[str] = set()
        self._waiting: dict[str, Task] = {}
        self._edges: dict[str, frozenset[str]] = {}

    def through(self, tasks: Sequence[Task]) -> Outcome:
        """The outcome of these and of earlier ones. Dependencies on what is not among them count as met."""
        self._waiting = {task.urn: task for task in tasks}
        self._edges = {task.urn: task.after & self._waiting.keys() for task in tasks}
        self._done = set()
        running: list[Task] = []
        before: object = None
        quiet = 0.0  # counted in rounds, so that a machine that is busy gets more time
        while True:
            seen = self._look(running)
            running = [*(task for task in running if not self._is_over(task, seen)), *self._started()]
            if not running:
                break
            now = _movable(running, seen)
            quiet, before = quiet if now == before else 0.0, now
            if quiet >= self._quiet_seconds or self._elapsed() > LIMIT_SECONDS:
                self._stalls += [self._stall(task) for task in running]
                break
            time.sleep(_ROUND_SECONDS)
            quiet += _ROUND_SECONDS
        unreached = tuple(task.title for task in self._waiting.values() if task.operations)
        return Outcome(self._elapsed(), tuple(self._steps), tuple(self._refusals), tuple(self._stalls), unreached)

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _look(self, running: Iterable[Task]) -> Seen:
        self._plane.processes.ensure_alive()
        api = self._plane.api
        wanted = {PODS, *(resource for task in running if task.begun for resource in task.operations[task.position].reads(api))}
        seen = {resource: api.list(resource) for resource in sorted(wanted)}
        if self._observe:
            self._observe(seen)
        return seen

    def _started(self) -> Iterator[Task]:
        """Begins whatever may begin, and yields what then is not over at once."""
        while ready := [task for urn, task in self._waiting.items() if self._edges[urn] <= self._done]:
            for task in ready:
                del self._waiting[task.urn]
                task.began_s = self._elapsed()
                if not self._is_over(task, {}):
                    yield task

    def _is_over(self, task: Task, seen: Seen) -> bool:
        """Whether there is nothing more to be done, one way or the other."""
        while task.position < len(task.operations):
            operation = task.operations[task.position]
            if not task.begun:
                try:
                    operation.begin(self._plane.api)
                except NotYet as reason:
                    task.words = str(reason)
                    return False
                except ApiRefusal as refusal:
                    self._refusals.append(Refusal(task.title, task.action, refusal.reason, refusal.message))
                    return True
                task.begun = True
                if operation.is_awaited:
                    return False  # what was seen is older than this
            elif not isinstance(state := operation.state(self._plane.api, seen), Ready):
                task.words = state.words
                if isinstance(state, Failed):
                    self._stalls.append(self._stall(task))
                return isinstance(state, Failed)
            task.position, task.begun = task.position + 1, False
        if task.operations:
            self._steps.append(Step(task.title, task.action, task.began_s, self._elapsed() - task.began_s))
        self._done.add(task.urn)
        return True

    def _stall(self, task: Task) -> Stall:
        behind: set[str] = set()
        while more := {urn for urn in self._waiting.keys() - behind if self._edges[urn] & {task.urn, *behind}}:
            behind |= more
        return Stall(
            title=task.title,
            action=task.action,
            waits_for=task.words,
            words=self._words(task.operations[task.position]),
            behind=tuple(held.title for urn, held in self._waiting.items() if urn in behind and held.operations),
        )

    def _words(self, operation: Operation) -> tuple[str, ...]:
        seen = {resource: self._plane.api.list(resource) for resource in LANDING_READS}
        return tuple(_said(operation.manifest, seen)) if isinstance(operation, OfObject) else ()


def _said(manifest: Object, seen: Seen) -> Iterator[str]:
    """What the cluster says of the pods that an object waits for, and the last it says of the object itself."""
    near = [pod for pod in landing(seen).pending if pod.namespace == identity_of(manifest)[0]]
    for pod in [pod for pod in near if pod.owner == title_of(manifest)] or near:
        yield f"{f'Pod {pod.namespace}/{pod.name}' if pod.name else pod.owner}: {pod.said}"
    # Of claims, what matters is told as something normal.
    levels = ("Warning", "Normal") if manifest["kind"] == "PersistentVolumeClaim" else ("Warning",)
    said = {
        text(event.get("lastTimestamp") or event.get("eventTime")): text(event.get("message"))
        for event in seen["events"]
        if event.get("type") in levels and _is_about(event["involvedObject"], manifest)
    }
    yield from [said[max(said)]] if said else []


def _is_about(reference: Object, manifest: Object) -> bool:
    return reference.get("kind") == manifest["kind"] and identity_of({"metadata": reference}) == identity_of(manifest)


def _movable(running: Iterable[Task], seen: Seen) -> object:
    """Differs from one look to the next as long as anything makes progress."""
    pods = {
        (
            at(pod, "metadata", "uid"),
            at(pod, "metadata", "deletionTimestamp"),
            at(pod, "spec", "nodeName"),
            at(pod, "status", "phase"),
            at(condition_of(pod, "Ready"), "status"),
        )
        for pod in seen[PODS]
    }
    return frozenset((task.urn, task.position, task.words) for task in running), frozenset(pods)
