"""Places the pods of a graph on the nodes that its pools start, as the scheduler and Karpenter would, and finds those that find
no room in whatever order they are created, and those that wait if they are created in the wrong one. Pure.

Pods go to nodes of managed node groups and of NodePools with replicas as long as these have room, the largest first; Karpenter
starts nodes for the others (``provisioning.py``), and what it does not take goes to nodes that groups have at the most. A real
scheduler may spread them otherwise over nodes that stand anyway.

The scheduler places pods as they come, each on the node that has the largest share left. That is luck and proves nothing: only
what the nodes cannot hold in any order is sure to wait. Groups that something outside scales are as large as they may become.

Source: Kubernetes, "Scheduler Configuration": PrioritySort, and NodeResourcesFit with its default strategy LeastAllocated.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from eks_inference.catalog.instances import InstanceType
from eks_inference.place.placement import CAPACITY_TYPE_LABEL
from eks_inference_tools.placing.footprint import Scale, Workloads
from eks_inference_tools.placing.provisioning import (
    PodToPlace,
    Room,
    add,
    choose,
    counted,
    covers,
    exact_shape,
    fixed,
    options_of,
    overhead,
    repel,
)
from eks_inference_tools.placing.started_nodes import NodeKind, SimulatedNode, desired_size, karpenter_kinds, managed_nodes
from eks_inference_tools.reading.node_groups import NodeGroup, node_groups
from eks_inference_tools.reading.node_pools import node_pools
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.reading.releases import charts
from eks_inference_tools.reading.scalars import quantities
from stackgraph.graph.document import Graph
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import grouped

MOST_PODS = 10_000
"""The most pods that are placed, so that a typing error in a number costs no minutes."""

MOST_NODES = 5_000
"""The most nodes of one node group or static NodePool that are placed: those of a large cluster (Kubernetes, "Considerations for
large clusters")."""

_SCALES_GROUPS = "cluster-autoscaler"
"""The chart that lets managed node groups follow their pods."""

Pods = Mapping[PodTemplate, int]

# Empty nodes that take a pod: by number one that stands, by its kind those that Karpenter may start.
_Places = Mapping[Any, Sequence[Room]]


@dataclass(frozen=True, eq=False)
class PlacedPod:
    """A pod. ``number`` counts the pods of its template from 0."""

    template: PodTemplate
    number: int


@dataclass(frozen=True, eq=False)
class PlacedNode:
    """A node and its pods, without those of DaemonSets. ``urn`` is that of its pool's resource."""

    pool: str
    urn: str
    instance: InstanceType
    capacity_type: str
    by_karpenter: bool
    disk_bytes: int
    devices: Mapping[str, int]
    pods: tuple[PlacedPod, ...]


@dataclass(frozen=True, eq=False)
class Placement:
    """All nodes at one scale.

    ``unplaced`` are pods that no pool takes, ``uncounted`` templates whose number is unknown or makes more than ``MOST_PODS``.
    """

    nodes: tuple[PlacedNode, ...]
    unplaced: tuple[PlacedPod, ...] = ()
    uncounted: tuple[PodTemplate, ...] = ()


class Placing:
    """Places the pods of one cluster (a ``Part`` of a graph) at any scale. What all scales share is worked out once."""

    def __init__(self, graph: Graph) -> None:
        self.workloads = Workloads(graph)
        self.graph = graph
        self._known: dict[Hashable, Placement] = {}

    def at(self, scale: Scale = "initial", *, ending: bool = False, groups: Scale | None = None) -> Placement:
        """Returns the nodes with their pods. ``ending`` adds the pods of Jobs, for which Karpenter starts nodes too; ``groups``
        is the scale of node groups, if it is another.

        Managed node groups have their desired size; at the most, their maximum; at the least, their minimum if the cluster
        autoscaler is installed.
        """
        counts = tuple(self.workloads.counted(scale, ending=ending))
        managed = self.managed(groups or scale)
        same = (counts, tuple(node.name for node in managed))
        if same not in self._known:
            self._known[same] = self._placed(counts, managed)
        return self._known[same]

    def _placed(self, counts: Sequence[tuple[PodTemplate, int | None]], managed: Iterable[SimulatedNode]) -> Placement:
        pods: dict[str, PlacedPod] = {}
        uncounted: list[PodTemplate] = []
        for template, count in counts:
            placed = min(count or 0, MOST_PODS - len(pods))
            pods |= {f"{template.title}#{number}": PlacedPod(template, number) for number in range(placed)}
            if count is None or count > placed:
                uncounted.append(template)
        standing, further = self.standing(managed)
        rooms, further_rooms = ([room_of(node, self.daemons) for node in found] for found in (standing, further))
        starts = choose((to_place(uid, pod) for uid, pod in pods.items()), self.following, self.daemons, rooms)
        seen = {pod.uid for room in (*rooms, *starts) for pod in room.pods}
        choose((to_place(uid, pod) for uid, pod in pods.items() if uid not in seen), (), self.daemons, further_rooms)
        nodes = [(node, room.pods) for node, room in zip((*standing, *further), (*rooms, *further_rooms), strict=True)]
        nodes += [(start.node, list(start.pods)) for start in starts]
        seen = {pod.uid for _, on_node in nodes for pod in on_node}
        return Placement(
            nodes=tuple(_placed(node, [pods[pod.uid] for pod in on_node]) for node, on_node in nodes),
            unplaced=tuple(pod for uid, pod in pods.items() if uid not in seen),
            uncounted=tuple(uncounted),
        )

    def standing(self, managed: Iterable[SimulatedNode]) -> tuple[list[SimulatedNode], list[SimulatedNode]]:
        """The nodes that stand whatever pods there are, and those that groups have beyond their desired size.

        Nothing says that groups grow before Karpenter starts nodes. At the most there are those of both.
        """
        left = Counter({group.urn: desired_size(group) for group in node_groups(self.graph)})
        usual: list[SimulatedNode] = []
        further: list[SimulatedNode] = []
        for node in managed:
            (usual if left[node.kind.shape.urn] > 0 else further).append(node)
            left[node.kind.shape.urn] -= 1
        return [*usual, *fixed(self._replicas, self._kinds)], further

    def managed(self, scale: Scale) -> tuple[SimulatedNode, ...]:
        """The nodes of managed node groups."""
        return managed_nodes(self.graph, self._size(scale))

    def _size(self, scale: Scale) -> Callable[[NodeGroup], int]:
        def size(group: NodeGroup) -> int:
            least, _, most = group.sizes
            bound = most if scale == "most" else least if scale == "least" and self._groups_follow else None
            return min(desired_size(group) if bound is None else bound, MOST_NODES)

        return size

    @cached_property
    def _groups_follow(self) -> bool:
        return any(chart.name == _SCALES_GROUPS for chart in charts(self.graph))

    @cached_property
    def daemons(self) -> Sequence[PodSpec]:
        return [daemon.spec for daemon in self.workloads.daemons]

    @cached_property
    def _kinds(self) -> Sequence[NodeKind]:
        return karpenter_kinds(self.graph)

    @cached_property
    def _replicas(self) -> Mapping[str, int | None]:
        return {pool.name: pool.replicas and min(pool.replicas, MOST_NODES) for pool in node_pools(self.graph)}

    @cached_property
    def following(self) -> Sequence[NodeKind]:
        """The nodes of pools that follow their pods."""
        return [kind for kind in self._kinds if self._replicas.get(kind.shape.pool) is None]


def room_of(node: SimulatedNode, daemons: Sequence[PodSpec]) -> Room:
    shape = exact_shape(node.labels, node.kind.taints)
    free = quantities(node.kind.allocatable) | {name: Decimal(number) for name, number in node.devices.items()}
    add(free, overhead(shape, daemons), -1)
    return Room(shape, free)


def to_place(uid: str, pod: PlacedPod) -> PodToPlace:
    template = pod.template
    return PodToPlace(uid, uid, template.spec, template.labels, template.namespace)


def _placed(node: SimulatedNode, pods: Iterable[PlacedPod]) -> PlacedNode:
    shape = node.kind.shape
    return PlacedNode(
        pool=shape.pool,
        urn=shape.urn,
        instance=node.kind.instance,
        capacity_type=node.labels.get(CAPACITY_TYPE_LABEL, ""),
        by_karpenter=shape.by_karpenter,
        disk_bytes=node.kind.disk_bytes,
        devices=node.devices,
        pods=tuple(pods),
    )


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
