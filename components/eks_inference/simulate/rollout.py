"""A stack is made, changed and deleted on a control plane as Pulumi would: in its order, with its awaits, as parallel as it goes.

Sources: pulumi-kubernetes 4, provider/pkg/await/await.go (creation, update, deletion) and ``Diff`` in provider/pkg/provider; what
replaces an object instead of updating it is in ``preview/diff/replacements.toml``.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from eks_inference.preview.diff.replacements import replacing
from eks_inference.preview.values import at, items, text
from eks_inference.simulate.api import Api, ApiRefusal, UnknownKind
from eks_inference.simulate.awaits import (
    Failed,
    Object,
    Ready,
    Seen,
    State,
    Waiting,
    is_awaited,
    is_removal_awaited,
    reads,
    state_of,
)
from eks_inference.simulate.control_plane import ControlPlane
from eks_inference.simulate.footprint import STANDS_IN_FOR_LABEL
from eks_inference.simulate.landing import READS as LANDING_READS
from eks_inference.simulate.landing import landing
from eks_inference.simulate.objects import ClusterObject, Opaque
from eks_inference.verify.expected import PODS, VOLUME_CLAIMS
from eks_inference.verify.observed import condition_of, conditions_of, identity_of, labels_of

QUIET_SECONDS = 15.0
"""When nothing has moved for so long, nothing will: the longest pause of what moves things is the 10 s after which kube-scheduler
tries a pod again (KubeSchedulerConfiguration, ``podMaxBackoffSeconds``).
"""

LIMIT_SECONDS = 600.0
"""How long Pulumi waits for one object that has no timeout of its own. Hours of a cluster are seconds here."""

_ROUND_SECONDS = 0.25
_LEFT_BEHIND = (PODS, VOLUME_CLAIMS, "persistentvolumes")

Observer = Callable[[Seen], None]
"""Called once a round with what is in the cluster, ``pods`` always among it. What it raises ends the rollout."""

StoodIn = Mapping[str, Sequence[Object]]
"""The objects that stand in for what an opaque resource brings, by its URN."""


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


def create(
    plane: ControlPlane,
    objects: Sequence[ClusterObject],
    opaque: Sequence[Opaque] = (),
    *,
    stood_in: StoodIn | None = None,
    observe: Observer | None = None,
    quiet_seconds: float = QUIET_SECONDS,
) -> Outcome:
    """``pulumi up`` of a new stack. An opaque resource is ready once what stands in for it is, or at once where nothing does."""
    tasks = [_Task(item.urn, item.title, "create", item.after, [_Creation(item.manifest)]) for item in objects]
    for item in opaque:
        inside = [
            _Task(f"{item.urn}#{number}", f"{item.title}: {_title(manifest)}", "create", item.after, [_Creation(manifest)])
            for number, manifest in enumerate((stood_in or {}).get(item.urn, ()))
        ]
        tasks += [*inside, _Task(item.urn, item.title, "", item.after | {task.urn for task in inside})]
    return _Walk(plane, observe, quiet_seconds).through(tasks)


def update(
    plane: ControlPlane,
    before: Sequence[ClusterObject],
    after: Sequence[ClusterObject],
    opaque: Sequence[Opaque] = (),
    *,
    observe: Observer | None = None,
    quiet_seconds: float = QUIET_SECONDS,
) -> Outcome:
    """``pulumi up`` of a changed stack; opaque resources stay as they are. What cannot be changed in place is made before its
    predecessor is deleted when the name is another one, and after it when it is the same, as the provider does. What is obsolete
    is deleted last, and only if all else went well.
    """
    old, new = ({item.urn: item for item in objects} for objects in (before, after))
    obsolete = [item for item in before if item.urn not in new]
    # Those that stay are in it, too: order goes through them.
    tasks = [_Task(item.urn, item.title, "", item.after) for item in opaque]
    for item in after:
        action, operations = _change(old.get(item.urn), item)
        tasks.append(_Task(item.urn, item.title, action, item.after, operations))
        if action == "replace" and not any(isinstance(one, _Removal) for one in operations):
            obsolete.append(old[item.urn])
    walk = _Walk(plane, observe, quiet_seconds)
    outcome = walk.through(tasks)
    return walk.through(_removals(obsolete, (), {})) if outcome.is_complete else outcome


def delete(
    plane: ControlPlane,
    objects: Sequence[ClusterObject],
    opaque: Sequence[Opaque] = (),
    *,
    stood_in: StoodIn | None = None,
    observe: Observer | None = None,
    quiet_seconds: float = QUIET_SECONDS,
) -> Outcome:
    """``pulumi destroy``: each object goes after all that depend on it, and is waited for until it is gone. In the end no pod,
    claim or volume may be left, but those of stand-ins that were not given here.
    """
    tasks = _removals(objects, opaque, stood_in or {})
    tasks.append(_Task("", "what objects leave behind", "delete", frozenset(task.urn for task in tasks), [_Emptiness()]))
    return _Walk(plane, observe, quiet_seconds).through(tasks)


def _removals(objects: Sequence[ClusterObject], opaque: Sequence[Opaque], stood_in: StoodIn) -> list["_Task"]:
    users: dict[str, set[str]] = {}
    for item in (*objects, *opaque):
        for urn in item.after:
            users.setdefault(urn, set()).add(item.urn)
    tasks = []
    for item in objects:
        tasks.append(_Task(item.urn, item.title, "delete", frozenset(users.get(item.urn, ())), [_Removal(item.manifest)]))
    for item in opaque:
        after = frozenset(users.get(item.urn, ()))
        inside = [
            _Task(f"{item.urn}#{number}", f"{item.title}: {_title(manifest)}", "delete", after, [_Removal(manifest)])
            for number, manifest in enumerate(stood_in.get(item.urn, ()))
        ]
        tasks += [*inside, _Task(item.urn, item.title, "", after | {task.urn for task in inside})]
    return tasks


def _change(old: ClusterObject | None, new: ClusterObject) -> tuple[str, list["_Operation"]]:
    if old is None:
        return "create", [_Creation(new.manifest)]
    if old.manifest == new.manifest:
        return "", []
    type_ = new.urn.split("::")[2].rpartition("$")[2]
    if not any(replacing(type_, old.manifest, new.manifest, {})):
        return "update", [_Update(new.manifest)]
    if (old.namespace, old.name) == (new.namespace, new.name):
        return "replace", [_Removal(old.manifest), _Creation(new.manifest)]
    return "replace", [_Creation(new.manifest)]


# -- what is done with one object ------------------------------------------------------------------------------------------------


class _NotYet(Exception):
    """It cannot be begun now, but perhaps later."""


class _Operation(Protocol):
    @property
    def is_awaited(self) -> bool: ...

    def begin(self, api: Api) -> None:
        """Raises ``_NotYet`` or ``ApiRefusal``."""
        ...

    def reads(self, api: Api) -> Iterable[str]: ...

    def state(self, api: Api, seen: Seen) -> State: ...


@dataclass(frozen=True)
class _Creation:
    manifest: Object

    @property
    def is_awaited(self) -> bool:
        return is_awaited(self.manifest)

    def begin(self, api: Api) -> None:
        """The provider creates and does not apply: what is there already is an error. It tries again, though, while a namespace
        or a definition is missing.
        """
        try:
            resource, name, namespace = _place(api, self.manifest)
            if api.get(resource, name, namespace) is not None:
                raise ApiRefusal(409, "AlreadyExists", f"{_title(self.manifest)} is there already")
            api.apply(self.manifest)
        except UnknownKind as unknown:
            raise _NotYet(f"the API server knows no {unknown}") from None
        except ApiRefusal as refusal:
            if refusal.status == 404:
                raise _NotYet(refusal.message) from None
            raise

    def reads(self, api: Api) -> Iterable[str]:
        return (api.resource_of(self.manifest), *reads(self.manifest))

    def state(self, api: Api, seen: Seen) -> State:
        live = _live(api, self.manifest, seen)
        return Waiting("it is gone again") if live is None else state_of(live, seen)


class _Update(_Creation):
    def begin(self, api: Api) -> None:
        """Applied without force: the provider leaves a field to whoever else has set it, and fails."""
        api.patch(self.manifest, self.manifest, kind="apply")


@dataclass(frozen=True)
class _Removal:
    manifest: Object

    @property
    def is_awaited(self) -> bool:
        return is_removal_awaited(self.manifest)

    def begin(self, api: Api) -> None:
        if _is_known(api, self.manifest):
            api.delete(*_place(api, self.manifest), propagation="Foreground")

    def reads(self, api: Api) -> Iterable[str]:
        return (api.resource_of(self.manifest),) if _is_known(api, self.manifest) else ()

    def state(self, api: Api, seen: Seen) -> State:
        live = _live(api, self.manifest, seen) if _is_known(api, self.manifest) else None
        if live is None:
            return Ready()
        said = [text(one.get("message")) for one in conditions_of(live) if one.get("status") == "True"]
        held = items(at(live, "metadata", "finalizers")) or items(at(live, "spec", "finalizers"))
        return Waiting("; ".join([f"it is not gone yet, held by {', '.join(held) or 'nothing'}", *filter(None, said)]))


@dataclass(frozen=True)
class _Emptiness:
    is_awaited = True

    def begin(self, api: Api) -> None:
        """Nothing is to be done but to look."""

    def reads(self, api: Api) -> Iterable[str]:
        return _LEFT_BEHIND

    def state(self, api: Api, seen: Seen) -> State:
        left = [
            _title(item) for resource in _LEFT_BEHIND for item in seen[resource] if STANDS_IN_FOR_LABEL not in labels_of(item)
        ]
        return Waiting(f"there are still {', '.join(left)}") if left else Ready()


# -- the walk --------------------------------------------------------------------------------------------------------------------


@dataclass
class _Task:
    """What is done with one resource of the stack, one operation after the other; nothing for one that others only wait for."""

    urn: str
    title: str
    action: str
    after: frozenset[str]
    operations: Sequence[_Operation] = ()
    position: int = 0
    begun: bool = False
    began_s: float = 0.0
    words: str = ""


@dataclass
class _Walk:
    """Goes through tasks, each after those it waits for, until all are done or nothing moves any more."""

    plane: ControlPlane
    observe: Observer | None
    quiet_seconds: float
    began: float = field(default_factory=time.monotonic)
    steps: list[Step] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)

    def through(self, tasks: Sequence[_Task]) -> Outcome:
        known = {task.urn for task in tasks}
        self._waiting = {task.urn: task for task in tasks}
        self._edges = {task.urn: task.after & known for task in tasks}
        self._done: set[str] = set()
        running: list[_Task] = []
        state: object = None
        # Counted in rounds, so that a machine that is busy gets more time.
        quiet = 0.0
        while True:
            seen = self._look(running)
            running = [task for task in running if not self._is_over(task, seen)]
            running += self._started()
            if not running:
                break
            if (now := _movable(running, seen)) != state:
                state, quiet = now, 0.0
            if quiet >= self.quiet_seconds or self._elapsed() > LIMIT_SECONDS:
                self._give_up(running)
                break
            time.sleep(_ROUND_SECONDS)
            quiet += _ROUND_SECONDS
        self.unreached += [task.title for task in self._waiting.values() if task.operations]
        return Outcome(self._elapsed(), tuple(self.steps), tuple(self.refusals), tuple(self.stalls), tuple(self.unreached))

    def _elapsed(self) -> float:
        return time.monotonic() - self.began

    def _look(self, running: Iterable[_Task]) -> Seen:
        self.plane.processes.ensure_alive()
        api = self.plane.api
        wanted = {PODS, *(resource for task in running if task.begun for resource in task.operations[task.position].reads(api))}
        seen = {resource: api.list(resource) for resource in sorted(wanted)}
        if self.observe:
            self.observe(seen)
        return seen

    def _started(self) -> Iterator[_Task]:
        """Begins whatever may begin, and yields what then is not over at once."""
        while ready := [task for urn, task in self._waiting.items() if self._edges[urn] <= self._done]:
            for task in ready:
                del self._waiting[task.urn]
                task.began_s = self._elapsed()
                if not self._is_over(task, {}):
                    yield task

    def _is_over(self, task: _Task, seen: Seen) -> bool:
        while task.position < len(task.operations):
            operation = task.operations[task.position]
            if task.begun:
                state = operation.state(self.plane.api, seen)
                if isinstance(state, Failed):
                    self._stall(task, state.words)
                    return True
                if isinstance(state, Waiting):
                    task.words = state.words
                    return False
            else:
                try:
                    operation.begin(self.plane.api)
                except _NotYet as reason:
                    task.words = str(reason)
                    return False
                except ApiRefusal as refusal:
                    self.refusals.append(Refusal(task.title, task.action, refusal.reason, refusal.message))
                    return True
                if operation.is_awaited:
                    task.begun = True
                    return False  # what was seen is older than this
            task.position, task.begun = task.position + 1, False
        if task.operations:
            self.steps.append(Step(task.title, task.action, task.began_s, self._elapsed() - task.began_s))
        self._done.add(task.urn)
        return True

    def _give_up(self, running: Iterable[_Task]) -> None:
        for task in running:
            self._stall(task, task.words)

    def _stall(self, task: _Task, waits_for: str) -> None:
        behind = {task.urn}
        while more := {urn for urn in self._waiting.keys() - behind if self._edges[urn] & behind}:
            behind |= more
        titles = tuple(self._waiting[urn].title for urn in sorted(behind - {task.urn}) if self._waiting[urn].operations)
        self.stalls.append(Stall(task.title, task.action, waits_for, tuple(self._words(task)), titles))

    def _words(self, task: _Task) -> Iterator[str]:
        """What the cluster says of the pods that the task waits for, and of its object."""
        manifests = [one.manifest for one in task.operations if isinstance(one, _Creation | _Removal)]
        seen = {resource: self.plane.api.list(resource) for resource in LANDING_READS}
        for manifest in manifests[-1:]:
            namespace = identity_of(manifest)[0]
            inside = [pod for pod in landing(seen).pending if pod.namespace == namespace]
            for pod in [pod for pod in inside if pod.owner == _title(manifest)] or inside:
                yield f"{f'Pod {pod.namespace}/{pod.name}' if pod.name else pod.owner}: {pod.said}"
            said = {
                text(event.get("message")): None
                for event in seen["events"]
                if _title({"kind": at(event, "involvedObject", "kind"), "metadata": event["involvedObject"]}) == _title(manifest)
                and (event.get("type") == "Warning" or manifest["kind"] == "PersistentVolumeClaim")
            }
            yield from list(said)[-1:]


def _movable(running: Iterable[_Task], seen: Seen) -> object:
    """All that changes when something moves."""
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


# -- objects ---------------------------------------------------------------------------------------------------------------------


def _title(item: Object) -> str:
    namespace, name = identity_of(item)
    return f"{item['kind']} {namespace}/{name}" if namespace else f"{item['kind']} {name}"


def _is_known(api: Api, manifest: Object) -> bool:
    try:
        api.resource_of(manifest)
    except UnknownKind:
        return False
    return True


def _place(api: Api, manifest: Object) -> tuple[str, str, str]:
    """Resource, name and namespace of an object. Raises ``UnknownKind``."""
    namespace = (text(at(manifest, "metadata", "namespace")) or "default") if api.is_namespaced(manifest) else ""
    return api.resource_of(manifest), manifest["metadata"]["name"], namespace


def _live(api: Api, manifest: Object, seen: Seen) -> Object | None:
    resource, name, namespace = _place(api, manifest)
    return next((item for item in seen[resource] if identity_of(item) == (namespace, name)), None)
