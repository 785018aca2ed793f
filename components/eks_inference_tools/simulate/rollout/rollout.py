"""Creates, changes and deletes a stack on a control plane as Pulumi would: in its order, with its awaits and parallelism.

Sources: pulumi-kubernetes 4, provider/pkg/await/await.go (creation, update, deletion) and ``Diff`` in provider/pkg/provider.
``stackgraph/diff/replacements.toml`` lists the changes that replace an object instead of updating it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from eks_inference_tools.reading.live_objects import Object, title_of
from eks_inference_tools.reading.readiness import is_settling
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.rollout.operations import (
    EVERY_POD,
    NOTHING_LEFT,
    Creation,
    Operation,
    Removal,
    Settling,
    Update,
)
from eks_inference_tools.simulate.rollout.walk import Observe, Outcome, Task, Walk
from eks_inference_tools.simulate.world.api_objects import ClusterObject, Opaque
from stackgraph.diff.replacements import replacing

Changed = Mapping[str, tuple[str, Sequence[Operation]]]
"""What happens to opaque resources, by URN: an action and its operations."""

StoodIn = Mapping[str, Sequence[Object]]
"""The objects that stand in for the contents of opaque resources, by URN."""


def create(
    plane: ControlPlane,
    objects: Sequence[ClusterObject],
    opaque: Sequence[Opaque] = (),
    *,
    stood_in: StoodIn | None = None,
    observe: Observe | None = None,
) -> Outcome:
    """Runs ``pulumi up`` of a new stack. An opaque resource is ready when its stand-ins are, or at once if it has none."""
    tasks = [task for item in (*objects, *opaque) for task in _tasks(item, "create", item.after, Creation, stood_in)]
    return Walk(plane, observe).through(tasks)


def update(
    plane: ControlPlane,
    before: Sequence[ClusterObject],
    after: Sequence[ClusterObject],
    opaque: Sequence[Opaque] = (),
    *,
    changed: Changed | None = None,
    obsolete: Sequence[Task] = (),
    former: Mapping[str, str] | None = None,
    walk: Walk | None = None,
    observe: Observe | None = None,
) -> Outcome:
    """Runs ``pulumi up`` of a changed stack; opaque resources stay as they are, unless ``changed`` or ``obsolete`` names them.

    Like the provider, it replaces an object that cannot change in place: it deletes the old object first if the new one has the
    same name or the stack asks for that, else last. It deletes obsolete objects last, too, and only if everything else succeeded.
    ``former`` are URNs that objects had before.
    """
    old = {item.urn: item for item in before}
    was = {item.urn: old.get((former or {}).get(item.urn, item.urn)) for item in after}
    stay = {item.urn for item in was.values() if item}
    leave = [item for item in before if item.urn not in stay]
    # Unchanged resources take part because the order of others runs through them.
    tasks = [_kept(item, changed or {}) for item in opaque]
    for item in after:
        action, operations = _change(was[item.urn], item)
        tasks.append(Task(item.urn, item.title, action, item.after, operations))
        if action == "replace" and (one := was[item.urn]) and not any(isinstance(first, Removal) for first in operations):
            leave.append(one)
    walk = walk or Walk(plane, observe)
    outcome = walk.through(tasks)
    return walk.through([*_removals(leave), *obsolete]) if outcome.is_complete else outcome


def delete(
    plane: ControlPlane,
    objects: Sequence[ClusterObject],
    opaque: Sequence[Opaque] = (),
    *,
    stood_in: StoodIn | None = None,
    observe: Observe | None = None,
) -> Outcome:
    """Runs ``pulumi destroy``: deletes each object after all that depend on it, and waits until it is gone.

    Objects that go with another that is deleted are left to Kubernetes.

    Finally no pod, claim or volume may be left, except those of stand-ins that ``stood_in`` does not name.
    """
    tasks = _removals(objects, opaque, stood_in)
    tasks.append(Task("", "what objects leave behind", "delete", frozenset(task.urn for task in tasks), [NOTHING_LEFT]))
    return Walk(plane, observe).through(tasks)


def settle(
    plane: ControlPlane, objects: Sequence[ClusterObject], *, walk: Walk | None = None, observe: Observe | None = None
) -> Outcome:
    """Waits for what Pulumi does not wait for: objects that skip its awaits, endpoints of Services, and every pod."""
    tasks = [
        Task(item.urn, item.title, "settle", frozenset(), [Settling(item.manifest)])
        for item in objects
        if is_settling(item.manifest)
    ]
    tasks.append(Task("", "pods", "settle", frozenset(task.urn for task in tasks), [EVERY_POD]))
    return (walk or Walk(plane, observe)).through(tasks)


def _removals(objects: Sequence[ClusterObject], opaque: Sequence[Opaque] = (), stood_in: StoodIn | None = None) -> list[Task]:
    things = (*objects, *opaque)
    going = {item.urn for item in objects}
    users = {item.urn: frozenset(user.urn for user in things if item.urn in user.after) for item in things}
    return [
        replace(task, operations=()) if isinstance(item, ClusterObject) and item.goes_with in going else task
        for item in things
        for task in _tasks(item, "delete", users[item.urn], Removal, stood_in)
    ]


def _tasks(
    item: ClusterObject | Opaque,
    action: str,
    after: frozenset[str],
    operation: Callable[[Object], Operation],
    stood_in: StoodIn | None,
) -> Iterator[Task]:
    """Yields the task of an object. An opaque resource has one for each stand-in, and one that dependents wait for."""
    if isinstance(item, ClusterObject):
        yield Task(item.urn, item.title, action, after, [operation(item.manifest)])
        return
    inside = [
        Task(f"{item.urn}#{number}", f"{item.title}: {title_of(manifest)}", action, after, [operation(manifest)])
        for number, manifest in enumerate((stood_in or {}).get(item.urn, ()))
    ]
    yield from inside
    yield Task(item.urn, item.title, action, after | {task.urn for task in inside})


def _kept(item: Opaque, changed: Changed) -> Task:
    action, operations = changed.get(item.urn, ("keep", ()))
    return Task(item.urn, item.title, action, item.after, operations)


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
