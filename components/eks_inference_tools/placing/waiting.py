"""Which pods find no room in whatever order they are created, and which wait if they are created in the wrong one. Pure.

The scheduler places pods as they come, each on the node that has the largest share left. That is luck and proves nothing: only
what the nodes cannot hold in any order is sure to wait. Groups that something outside scales are as large as they may become.

Source: Kubernetes, "Scheduler Configuration": PrioritySort, and NodeResourcesFit with its default strategy LeastAllocated.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from eks_inference_tools.placing.nodes import NodeKind, SimulatedNode
from eks_inference_tools.placing.placed import PlacedPod, Placing, room_of, to_place
from eks_inference_tools.placing.provisioning import PodToPlace, Room, add, choose, counted, covers, options_of, repel
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.scalars import quantities
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import grouped

Pods = Mapping[PodTemplate, int]

# Empty nodes that take a pod: by number one that stands, by its kind those that Karpenter may start.
_Places = Mapping[Any, Sequence[Room]]


@dataclass(frozen=True, eq=False)
class Waiting:
    """The pods of one cluster that may wait."""

    placing: Placing

    @cached_property
    def pods(self) -> Pods:
        """The pods that `pulumi up` starts and that do not end, in the order of their creation."""
        found = [(one, number) for one, number in self.placing.workloads.counted("initial") if number]
        return dict(sorted(found, key=lambda each: self._structure.level.get(each[0].urn, 0)))

    @cached_property
    def jobs(self) -> Mapping[PodTemplate, tuple[Pods, Pods]]:
        """By Job, the pods that are sure to run when it starts, and all that may; both with its own. What waits for its end does
        not.
        """
        found: dict[PodTemplate, tuple[Pods, Pods]] = {}
        needs = {pod: self._before(pod.urn) for pod in self.pods}
        for job in self.placing.workloads.ending:
            own, before = {job: job.pods or 0}, self._before(job.urn)
            later = {pod for pod in self.pods if job.kind == "Job" and job.urn in needs[pod]}
            sure = {one: number for one, number in self.pods.items() if one.urn in before}
            found[job] = sure | own, {one: number for one, number in self.pods.items() if one not in later} | own
        return found

    def overfull(self, pods: Pods) -> frozenset[PodTemplate]:
        """The templates whose pods the nodes cannot hold together in any order."""
        first = {pod: to_place("", PlacedPod(pod, 0)) for pod in pods}
        places = {one: there for one, pod in first.items() if (there := self._places(pod))}
        found = {*pods} - {*places}
        for one, there in places.items():
            pod = first[one]
            confined = {other: pods[other] for other, rooms in places.items() if rooms.keys() <= there.keys()}
            larger = {other: number for other, number in confined.items() if covers(first[other].requests, pod.requests)}
            if sum(larger.values()) > _most(there, lambda room, pod=pod: _held(room, pod)):
                found |= larger.keys()
            for name in pod.requests:
                asked = {other: number * first[other].requests.get(name, 0) for other, number in confined.items()}
                if sum(asked.values()) > _most(there, lambda room, name=name: room.free.get(name, Decimal())):
                    found |= {other for other, amount in asked.items() if amount}
        return frozenset(found)

    def left(self, pods: Pods) -> Counter[PodTemplate]:
        """The pods without room if they come in this order."""
        usual, further = ([room_of(node, self.placing.daemons) for node in nodes] for nodes in self._standing)
        late: dict[str, PlacedPod] = {}
        left = {place: _share_left(node, room) for place, (node, room) in enumerate(zip(self._standing[0], usual, strict=True))}
        for one, many in pods.items():
            first = to_place("", PlacedPod(one, 0))
            open_to = {place for place in self._places(first) if place in left and usual[place].takes(first)}
            for number in range(many):
                pod = to_place(f"{one.title}#{number}", PlacedPod(one, number))
                if not open_to:
                    late[pod.uid] = PlacedPod(one, number)
                    continue
                place = max(open_to, key=lambda place: (left[place], -place))
                usual[place].put(pod)
                left[place] = _share_left(self._standing[0][place], usual[place])
                open_to -= {place} if not usual[place].takes(pod) else set()
        starts = choose((to_place(*item) for item in late.items()), self.placing.following, self.placing.daemons, further)
        seen = {pod.uid for room in (*further, *starts) for pod in room.pods}
        return Counter(pod.template for uid, pod in late.items() if uid not in seen)

    @cached_property
    def _standing(self) -> tuple[list[SimulatedNode], list[SimulatedNode]]:
        return self.placing.standing(self.placing.managed("most"))

    @cached_property
    def _empty(self) -> Mapping[Any, Sequence[tuple[int, Room]]]:
        """The nodes that stand, by what makes them alike."""
        nodes = [*self._standing[0], *self._standing[1]]
        return grouped(((node.kind, node.zone), (place, room_of(node, self.placing.daemons))) for place, node in enumerate(nodes))

    def _places(self, pod: PodToPlace) -> _Places:
        alike = (rooms for rooms in self._empty.values() if rooms[0][1].takes(pod))
        found: dict[Any, Sequence[Room]] = {place: [room] for rooms in alike for place, room in rooms}
        for kind in self.placing.following:
            options = [room for way in pod.ways for _, room in options_of(way, [kind], self.placing.daemons, {})]
            if options:
                for room in options:
                    add(room.free, pod.requests)
                found[kind] = options
        return found

    @cached_property
    def _structure(self) -> Structure:
        return Structure(self.placing.graph)

    def _before(self, urn: str) -> set[str]:
        """What there is before a resource is made."""
        found: set[str] = set()
        waiting = [urn]
        while waiting:
            direct = self._structure.needs.get(waiting.pop(), frozenset()) - found
            found |= direct
            waiting += direct
        return found


def _most(places: _Places, value: Callable[[Room], Decimal | int]) -> Decimal:
    """The most that all nodes have of a value; those that Karpenter starts, within the limits of their pool."""
    standing, pools = Decimal(), dict[str, list[tuple[NodeKind, Decimal]]]()
    for place, rooms in places.items():
        most = Decimal(max(map(value, rooms)))
        if isinstance(place, NodeKind):
            pools.setdefault(place.shape.urn, []).append((place, most))
        else:
            standing += most
    return standing + sum((_within_limits(kinds) for kinds in pools.values()), Decimal())


def _within_limits(kinds: Sequence[tuple[NodeKind, Decimal]]) -> Decimal:
    """The most of a value in a pool whose nodes have so much of it, by kind."""
    bounds = [Decimal("Infinity")]
    for name, limit in quantities(kinds[0][0].limits).items():
        if all(counted(kind).get(name) for kind, _ in kinds):
            bounds.append(limit * max(most / counted(kind)[name] for kind, most in kinds))
    return min(bounds)


def _held(room: Room, pod: PodToPlace) -> int:
    """How many such pods an empty node holds."""
    most = min(int(room.free[name] // amount) for name, amount in pod.requests.items() if amount)
    return min(most, 1) if repel(pod, pod) else most


def _share_left(node: SimulatedNode, room: Room) -> Decimal:
    whole = quantities(node.kind.allocatable)
    return sum((room.free[name] / whole[name] for name in ("cpu", "memory") if whole[name]), Decimal())
