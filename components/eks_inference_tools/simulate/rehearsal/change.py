"""Rehearses a change: applies the base of a stack on a simulated cluster, then its head as `pulumi up` does, and watches pods."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from eks_inference.catalog.times import INSTANT
from eks_inference.place.placement import KARPENTER_POOL_LABEL
from eks_inference_tools.reading.expected import expected_of
from eks_inference_tools.reading.live_objects import Object, Seen, is_leaving, labels_of, name_of
from eks_inference_tools.reading.node_groups import NodeGroup, node_groups
from eks_inference_tools.reading.object_kinds import AUTOSCALERS, DEPLOYMENTS, NODES, PODS
from eks_inference_tools.reading.object_kinds import name_of as name_in
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.rehearsal.clock import Clock, held
from eks_inference_tools.simulate.rehearsal.node_changes import (
    Nodes,
    busiest,
    claims,
    drifted,
    drifts,
    ended,
    exchanged,
    new_nodes,
    of_pool,
    started,
)
from eks_inference_tools.simulate.rehearsal.report import BASE, CHANGE, DESTROY, NODES_AFTER, Rehearsal, compared, lines
from eks_inference_tools.simulate.report import Phase
from eks_inference_tools.simulate.rollout import rollout
from eks_inference_tools.simulate.rollout.operations import Creation, Operation, Removal
from eks_inference_tools.simulate.rollout.walk import Outcome, Task, Walk
from eks_inference_tools.simulate.simulation import API_SERVER, Simulation, cluster, emulated, minor, stood_in
from eks_inference_tools.simulate.world.api_objects import ClusterObject, cluster_objects, opaque_of
from eks_inference_tools.timeline.outages import started_again
from eks_inference_tools.timeline.rolls import rolled
from eks_inference_tools.timeline.timeline import timeline
from eks_inference_tools.timeline.update_steps import create_time
from stackgraph.diff.graphs import StackDiff
from stackgraph.diff.report import StackReport
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at
from stackgraph.state.engine_steps import deletes_first

Tell = Callable[[str], None]

_AUTOSCALER_ROUNDS, _ROUND_SECONDS = 180, 0.25
"""Three periods of the controller (--horizontal-pod-autoscaler-sync-period), in rounds: a busy machine gets more time."""
_KARPENTER_SECONDS = 40.0
"""Karpenter looks for nodes to exchange every 10 s, and for the end of a drain with pauses that double up to 10 s."""


def rehearsed(report: StackReport, toolchain: Toolchain, tell: Tell = lambda words: None) -> Rehearsal:
    """Rehearses the change of a stack that both sides have. What ``diff`` says is written down before, and only read after."""
    diff = report.diff
    assert diff is not None
    assert diff.base is not None
    assert diff.head is not None
    old, new = timeline(diff.base), timeline(diff.head).answering
    servers = {**old.servers, **new.servers}
    said = lines(report.dangers, diff, servers)
    first, second, versions = _versions((diff.base, diff.head), toolchain)
    starts = {**old.starts, **new.starts}
    before, after = (held(graph, cluster_objects(graph), starts) for graph in (diff.base, diff.head))
    with cluster(diff.base, before, toolchain, version=first, also=after, tell=tell) as simulated:
        clock = Clock(
            simulated.plane.api,
            servers,
            {urn: started_again(one, None, diff.by_urn[urn]) if urn in diff.by_urn else one for urn, one in starts.items()},
        )
        simulated.watch = clock.observe
        rehearsal = Rehearsal(diff.head.stack, versions, (simulated.settled(BASE, simulated.create()),))
        if not rehearsal.phases[0].is_complete:
            return rehearsal
        _autoscaled(simulated)
        simulated.control(diff.head, (*before, *after), None if first == second else second)
        rehearsal = _Change(diff, diff.base, diff.head, after, simulated, clock).of(rehearsal)
        simulated.objects = after
        if all(phase.is_complete for phase in rehearsal.phases):
            rehearsal = replace(rehearsal, phases=(*rehearsal.phases, Phase(DESTROY, simulated.delete())))
    return replace(rehearsal, foretold=compared(said, rehearsal))


def _autoscaled(simulated: Simulation) -> None:
    """Lets autoscalers correct what is outside of their bounds: without metrics, they do no more."""
    api = simulated.plane.api
    for _ in range(_AUTOSCALER_ROUNDS):
        outside = any(_is_outside(item, api) for item in api.list(AUTOSCALERS))
        simulated.observe({PODS: api.list(PODS)})
        if not outside:
            break
        time.sleep(_ROUND_SECONDS)


def _is_outside(scaler: Object, api: Api) -> bool:
    spec, place = scaler["spec"], scaler["metadata"]["namespace"]
    target = api.get(DEPLOYMENTS, spec["scaleTargetRef"]["name"], place)
    ready = at(target, "status", "readyReplicas") or 0
    return bool(target) and not spec.get("minReplicas", 1) <= ready <= spec["maxReplicas"]


def _versions(sides: Sequence[Graph], toolchain: Toolchain) -> tuple[str, str, str]:
    """What the API servers emulate for both sides, and the same in words. Versions newer than the tools cannot be emulated."""
    own = minor(toolchain.versions[API_SERVER])[:2]
    wanted = [minor(version) if (version := expected_of(graph).version) else own for graph in sides]
    late = max(0, *(one[1] - own[1] for one in wanted))
    first, second = (f"{one[0]}.{one[1] - late}" for one in wanted)
    words = " to ".join(dict.fromkeys((first, second)))
    stands = " to ".join(dict.fromkeys(f"{one[0]}.{one[1]}" for one in wanted))
    return (
        emulated(first, toolchain),
        emulated(second, toolchain),
        f"Kubernetes {words}" + (f", the newest here, in place of {stands}" if late else ""),
    )


@dataclass
class _Change:
    diff: StackDiff
    before: Graph
    after: Graph
    objects: tuple[ClusterObject, ...]
    simulated: Simulation
    clock: Clock
    _claims: Sequence[object] = ()
    _drifted: set[str] = field(default_factory=set)
    _patient_until: float = 0.0

    def of(self, rehearsal: Rehearsal) -> Rehearsal:
        api, clock, tell = self.simulated.plane.api, self.clock, self.simulated.tell
        first = clock.serving
        clock.start({name_of(item) for item in api.list(NODES)})
        tell("changing the stack")
        updated = self._updated()
        tell("waiting for nodes and pods")
        later = self._walk().through([*self._drifts()])
        gone = tuple(self._gone()) if updated.is_complete else ()
        there = [cluster_object for cluster_object in self.objects if cluster_object.title not in gone]
        settled = rollout.settle(self.simulated.plane, there, walk=self._walk()) if updated.is_complete else None
        _autoscaled(self.simulated)
        return replace(
            rehearsal,
            phases=(*rehearsal.phases, Phase(CHANGE, updated, settled), Phase(NODES_AFTER, later)),
            samples=tuple(clock.samples),
            untimed={name: tuple(sorted(words)) for name, words in clock.untimed.items() if words},
            renewed=tuple(name for name in first if first[name] and clock.serving.get(name) != first[name]),
            gone=gone,
            drifted=tuple(f"nodes of {pool}" for pool in sorted(self._drifted)),
            ends_s=clock.now,
        )

    def _walk(self) -> Walk:
        return Walk(self.simulated.plane, self._observe, lambda: self.clock.now)

    def _updated(self) -> Outcome:
        changed, obsolete = self._node_groups()
        more, gone = self._charts()
        return rollout.update(
            self.simulated.plane,
            self.simulated.objects,
            self.objects,
            opaque_of(self.after),
            changed={**changed, **more},
            obsolete=[*obsolete, *gone],
            former={one.after.urn: one.before.urn for one in self.diff.changes if one.before and one.after and one.moved},
            walk=self._walk(),
        )

    def _charts(self) -> tuple[rollout.Changed, list[Task]]:
        """What stands in for charts and add-ons that come, and for those that go. Others stay as they are."""
        simulated, now = self.simulated, stood_in(self.after)
        old, new = ({one.urn for one in opaque} for opaque in (simulated.opaque, opaque_of(self.after)))
        changed = {urn: ("create", [Creation(one) for one in now[urn]]) for urn in now if urn in new - old}
        gone = [
            Task(one.urn, one.title, "delete", self._users(one.urn), [Removal(item) for item in simulated.stood_in[one.urn]])
            for one in simulated.opaque
            if one.urn in simulated.stood_in and one.urn not in new
        ]
        simulated.opaque, simulated.stood_in = opaque_of(self.after), {**now, **simulated.stood_in}
        return changed, gone

    def _node_groups(self) -> tuple[rollout.Changed, list[Task]]:
        """What happens to managed node groups while `pulumi up` runs, and what it deletes last."""
        old, new = ({group.urn: group for group in node_groups(graph)} for graph in (self.before, self.after))
        changed: dict[str, tuple[str, Sequence[Operation]]] = {}
        obsolete: list[Task] = []
        for urn, change in self.diff.by_urn.items():
            group, was = new.get(urn), old.get(change.before.urn) if change.before else None
            ends = [self._ends(was)] if was and (change.kind == "replace" or group is None) else []
            last = not deletes_first(change)
            if group and ends:
                changed[urn] = ("replace", [self._starts(group)] if last else [*ends, self._starts(group, made=change.after)])
            elif group and was and (operations := [*self._updates(group)]):
                changed[urn] = ("update", operations)
            elif group and not was:
                changed[urn] = ("create", [self._starts(group)])
            if was and ends and last:
                obsolete.append(Task(urn, f"nodes of {was.name}", "delete", self._users(was.urn), ends))
        return changed, obsolete

    def _users(self, urn: str) -> frozenset[str]:
        """What has to be deleted before."""
        return frozenset(cluster_object.urn for cluster_object in self.simulated.objects if urn in cluster_object.after)

    def _ends(self, group: NodeGroup) -> Operation:
        there = [name_of(one) for one in of_pool(self.simulated.plane.api, group.name)]
        return Nodes(ended(lambda api: there, self.clock))

    def _starts(self, group: NodeGroup, at_most: int | None = None, made: Resource | None = None) -> Operation:
        """With ``made`` its pods wait until AWS has made the group anew."""
        fresh = new_nodes(self.after, group.name, (name_of(item) for item in self.simulated.plane.api.list(NODES)))[:at_most]
        self.clock.stands |= {name_of(one) for one in fresh}
        typical = (create_time(made) if made else None) or INSTANT
        return Nodes(started(fresh, self.clock, typical.p50))

    def _updates(self, group: NodeGroup) -> Iterator[Operation]:
        """The provider updates the version first, then the size."""
        roll, size, there = self._rolls.get(group.urn), group.sizes[1], len(of_pool(self.simulated.plane.api, group.name))
        if roll and not roll.blocked:
            yield Nodes(exchanged(roll, group.name, self.after, self.clock))
        if size is not None and size > there:
            yield self._starts(group, size - there)
        elif size is not None and size < there:
            yield Nodes(ended(lambda api: busiest(api, group.name)[: there - size], self.clock))

    def _drifts(self) -> Iterator[Task]:
        """Karpenter exchanges nodes once its pools have changed; `pulumi up` does not wait for that."""
        groups = {group.urn for group in node_groups(self.after)}
        for urn, roll in self._rolls.items():
            if urn not in groups and not roll.blocked:
                course = drifted(name_in(self.after.by_urn[urn]), self.clock.stands)
                yield Task(urn, roll.name, "drift", frozenset(), [Nodes(course)])

    def _observe(self, seen: Seen) -> bool:
        """Also returns whether Karpenter has changed a claim of a node lately, which it does after pauses."""
        there = claims(self.simulated.plane.api)
        self._drifted |= {labels_of(one)[KARPENTER_POOL_LABEL] for one in there if drifts(one)}
        now = [(name_of(one), is_leaving(one), one.get("status")) for one in there]
        if now != self._claims:
            self._claims, self._patient_until = now, time.monotonic() + _KARPENTER_SECONDS
        return self.simulated.observe(seen) or time.monotonic() < self._patient_until

    @cached_property
    def _rolls(self):
        return rolled(self.diff)

    def _gone(self) -> Iterator[str]:
        """Objects of the head that are not there after an update that was complete."""
        api = self.simulated.plane.api
        for item in self.objects:
            namespace = item.namespace if api.is_namespaced(item.manifest) else ""
            if api.get(api.resource_of(item.manifest), item.name, namespace) is None:
                yield item.title
