"""Walks through the tasks of a rollout: each starts once its dependencies are done, until all are done or nothing progresses."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from eks_inference_tools.reading.live_objects import Object, Seen, condition_of, identity_of, title_of
from eks_inference_tools.reading.object_kinds import PODS
from eks_inference_tools.reading.readiness import Failed
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.control_plane.kubernetes_api import ApiRefusal
from eks_inference_tools.simulate.rollout.operations import NotYet, OfObject, Operation
from eks_inference_tools.simulate.world.scheduled_pods import READS as POD_READS
from eks_inference_tools.simulate.world.scheduled_pods import scheduled_pods
from stackgraph.graph.values import at, text

QUIET_SECONDS = 15.0
"""If nothing has changed for this long, nothing will: the longest pause of any component is the 10 s after which kube-scheduler
retries a pod (KubeSchedulerConfiguration, ``podMaxBackoffSeconds``). ``control_plane`` shortens the longer ones.
"""

LIMIT_SECONDS = 600.0
"""How long a rollout may take. Pulumi grants this to every object without a timeout of its own; here hours pass in seconds."""

_ROUND_SECONDS = 0.25

Observe = Callable[[Seen], bool | None]
"""Is called in every round with objects of the cluster, which include all pods. Returns whether something is still to come
without a cause in the cluster. Its exceptions end the rollout.
"""


@dataclass(frozen=True)
class Step:
    """A completed task. ``began_s`` counts from the start of the rollout; ``took_s`` includes the wait. Both by its clock."""

    title: str
    action: str
    began_s: float
    took_s: float


@dataclass(frozen=True)
class Refusal:
    """The API server refused an object or its change."""

    title: str
    reason: str
    message: str


@dataclass(frozen=True)
class Stall:
    """An object that failed, or for which Pulumi would wait until its timeout.

    ``words`` are the cluster's messages about it and its pods; ``behind`` are the objects that it keeps from starting.
    """

    title: str
    waits_for: str
    words: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The result of a rollout. ``unreached`` are the objects that never started."""

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
    """The operations on one resource, in order; none for a resource that only orders others."""

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
    """Runs tasks, each after its dependencies, until all are done or nothing progresses."""

    def __init__(self, plane: ControlPlane, observe: Observe | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._plane, self._observe, self._clock = plane, observe, clock
        self._began = clock()
        self._steps: list[Step] = []
        self._refusals: list[Refusal] = []
        self._stalls: list[Stall] = []
        self._done: set[str] = set()
        self._waiting: dict[str, Task] = {}

    def through(self, tasks: Sequence[Task]) -> Outcome:
        """Returns the outcome of these tasks and of earlier ones. Dependencies outside ``tasks`` count as met."""
        self._waiting = {task.urn: task for task in tasks}
        for task in tasks:
            task.after = task.after.intersection(self._waiting)
        self._done = set()
        running: list[Task] = []
        before: object = None
        end = time.monotonic() + LIMIT_SECONDS
        quiet = 0.0  # counted in rounds, in each of which every component has answered: a busy machine gets more time
        while True:
            seen, comes = self._look(running)
            running = [*(task for task in running if not self._is_over(task, seen)), *self._started()]
            if not running:
                break
            now = _progress(running, seen)
            quiet, before = quiet if now == before and not comes else 0.0, now
            if quiet >= QUIET_SECONDS or time.monotonic() > end:
                self._stalls += [self._stall(task) for task in running]
                break
            time.sleep(_ROUND_SECONDS)
            quiet += _ROUND_SECONDS
        unreached = tuple(task.title for task in self._waiting.values() if task.operations)
        return Outcome(self._elapsed(), tuple(self._steps), tuple(self._refusals), tuple(self._stalls), unreached)

    def _elapsed(self) -> float:
        return self._clock() - self._began

    def _look(self, running: Iterable[Task]) -> tuple[Seen, bool]:
        self._plane.processes.ensure_alive()
        self._plane.await_answers()
        api = self._plane.api
        wanted = {PODS, *(resource for task in running if task.begun for resource in task.operations[task.position].reads(api))}
        seen = {resource: api.list(resource) for resource in sorted(wanted)}
        return seen, bool(self._observe and self._observe(seen))

    def _started(self) -> Iterator[Task]:
        """Begins every task whose dependencies are done, and yields those that are not over at once."""
        while ready := [task for task in self._waiting.values() if task.after <= self._done]:
            for task in ready:
                del self._waiting[task.urn]
                task.began_s = self._elapsed()
                if not self._is_over(task, {}):
                    yield task

    def _is_over(self, task: Task, seen: Seen) -> bool:
        """Advances a task as far as possible; returns whether it is done or has failed."""
        while task.position < len(task.operations):
            operation = task.operations[task.position]
            try:
                if not task.begun:
                    operation.begin(self._plane.api)
                    task.begun = True
                    if operation.is_awaited:
                        return False  # ``seen`` is older than the operation
                elif words := operation.waits_for(self._plane.api, seen):
                    task.words = words
                    return False
            except NotYet as reason:
                task.words = str(reason)
                return False
            except Failed as failure:
                task.words = str(failure)
                self._stalls.append(self._stall(task))
                return True
            except ApiRefusal as refusal:
                self._refusals.append(Refusal(task.title, refusal.reason, refusal.message))
                return True
            task.position, task.begun = task.position + 1, False
        if task.operations:
            self._steps.append(Step(task.title, task.action, task.began_s, self._elapsed() - task.began_s))
        self._done.add(task.urn)
        return True

    def _stall(self, task: Task) -> Stall:
        behind: set[str] = set()
        while more := {urn for urn, held in self._waiting.items() if urn not in behind and held.after & {task.urn, *behind}}:
            behind |= more
        operation = task.operations[task.position]
        seen = {resource: self._plane.api.list(resource) for resource in POD_READS}
        return Stall(
            title=task.title,
            waits_for=task.words,
            words=tuple(_messages(operation.manifest, seen)) if isinstance(operation, OfObject) else (),
            behind=tuple(held.title for urn, held in self._waiting.items() if urn in behind and held.operations),
        )


def _messages(manifest: Object, seen: Seen) -> Iterator[str]:
    """Yields the cluster's messages about the pods that an object waits for, and the latest event about the object itself."""
    near = [pod for pod in scheduled_pods(seen).pending if pod.namespace == identity_of(manifest)[0]]
    for pod in [pod for pod in near if pod.owner == title_of(manifest)] or near:
        yield f"{f'Pod {pod.namespace}/{pod.name}' if pod.name else pod.owner}: {pod.said}"
    # The events that explain a pending claim are of type Normal.
    levels = ("Warning", "Normal") if manifest["kind"] == "PersistentVolumeClaim" else ("Warning",)
    messages = {
        text(event.get("lastTimestamp") or event.get("eventTime")): text(event.get("message"))
        for event in seen["events"]
        if event.get("type") in levels
        and event["involvedObject"].get("kind") == manifest["kind"]
        and identity_of({"metadata": event["involvedObject"]}) == identity_of(manifest)
    }
    if messages:
        yield messages[max(messages)]


def _progress(running: Iterable[Task], seen: Seen) -> object:
    """Returns a value that differs from round to round as long as anything progresses."""
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
