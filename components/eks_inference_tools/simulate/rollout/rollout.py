"""A stack is made, changed and deleted on a control plane as Pulumi would: in its order, with its awaits, as parallel as it goes.

Sources: pulumi-kubernetes 4, provider/pkg/await/await.go (creation, update, deletion) and ``Diff`` in provider/pkg/provider; what
replaces an object instead of updating it is in ``preview/diff/replacements.toml``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from eks_inference_tools.reading.live_objects import Object, title_of
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.rollout.operations import Creation, EveryPod, NothingLeft, Operation, Removal, Settling, Update
from eks_inference_tools.simulate.rollout.readiness import is_settling
from eks_inference_tools.simulate.rollout.walk import QUIET_SECONDS, Observer, Outcome, Task, Walk
from eks_inference_tools.simulate.world.objects import ClusterObject, Opaque
from stackgraph.diff.replacements import replacing

StoodIn = Mapping[str, Sequence[Object]]
"""The objects that stand in for what an opaque resource brings, by its URN."""


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
    things = (*objects, *opaque)
    tasks = [task for item in things for task in _tasks(item, "create", item.after, Creation, stood_in or {})]
    return Walk(plane, observe, quiet_seconds).through(tasks)


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
    tasks = [Task(item.urn, item.title, "keep", item.after) for item in opaque]
    for item in after:
        action, operations = _change(old.get(item.urn), item)
        tasks.append(Task(item.urn, item.title, action, item.after, operations))
        if action == "replace" and not any(isinstance(one, Removal) for one in operations):
            obsolete.append(old[item.urn])
    walk = Walk(plane, observe, quiet_seconds)
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
    tasks.append(Task("", "what objects leave behind", "delete", frozenset(task.urn for task in tasks), [NothingLeft()]))
    return Walk(plane, observe, quiet_seconds).through(tasks)


def settle(
    plane: ControlPlane,
    objects: Sequence[ClusterObject],
    *,
    observe: Observer | None = None,
    quiet_seconds: float = QUIET_SECONDS,
) -> Outcome:
    """Waits for what Pulumi does not wait for: objects that skip it, endpoints of Services, and every pod that is on its way."""
    tasks = [
        Task(item.urn, item.title, "settle", frozenset(), [Settling(item.manifest)])
        for item in objects
        if is_settling(item.manifest)
    ]
    tasks.append(Task("", "pods", "settle", frozenset(task.urn for task in tasks), [EveryPod()]))
    return Walk(plane, observe, quiet_seconds).through(tasks)


def _removals(objects: Sequence[ClusterObject], opaque: Sequence[Opaque], stood_in: StoodIn) -> list[Task]:
    things = (*objects, *opaque)
    users = {item.urn: frozenset(user.urn for user in things if item.urn in user.after) for item in things}
    return [task for item in things for task in _tasks(item, "delete", users[item.urn], Removal, stood_in)]


def _tasks(
    item: ClusterObject | Opaque, action: str, after: frozenset[str], operation: Callable[[Object], Operation], stood_in: StoodIn
) -> Iterator[Task]:
    """Of an object; of what is opaque, those of all that stands in for it, and one for those who wait for it as a whole."""
    if isinstance(item, ClusterObject):
        yield Task(item.urn, item.title, action, after, [operation(item.manifest)])
        return
    inside = [
        Task(f"{item.urn}#{number}", f"{item.title}: {title_of(manifest)}", action, after, [operation(manifest)])
        for number, manifest in enumerate(stood_in.get(item.urn, ()))
    ]
    yield from inside
    yield Task(item.urn, item.title, action, after | {task.urn for task in inside})


def _change(old: ClusterObject | None, new: ClusterObject) -> tuple[str, list[Operation]]:
    if old is None:
        return "create", [Creation(new.manifest)]
    if old.manifest == new.manifest:
        return "keep", []
    type_ = new.urn.split("::")[2].rpartition("$")[2]
    if not any(replacing(type_, old.manifest, new.manifest, {})):
        return "update", [Update(new.manifest)]
    if new.delete_first or (old.namespace, old.name) == (new.namespace, new.name):
        return "replace", [Removal(old.manifest), Creation(new.manifest)]
    return "replace", [Creation(new.manifest)]
