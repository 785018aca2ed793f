"""Places the pods of a graph on the nodes that its pools start, as the scheduler and Karpenter would. Pure.

Pods go to nodes of managed node groups and of NodePools with replicas as long as these have room, the largest first; Karpenter
starts nodes for the others (``provisioning.py``), and what it does not take goes to nodes that groups have at the most. A real
scheduler may spread them otherwise over nodes that stand anyway.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from eks_inference.catalog.instances import InstanceType
from eks_inference.place.placement import CAPACITY_TYPE_LABEL
from eks_inference_tools.placing.footprint import Scale, Workloads
from eks_inference_tools.placing.nodes import NodeKind, SimulatedNode, desired_size, karpenter_kinds, managed_nodes
from eks_inference_tools.placing.provisioning import PodToPlace, Room, add, choose, exact_shape, fixed, overhead
from eks_inference_tools.reading.node_groups import NodeGroup, node_groups
from eks_inference_tools.reading.node_pools import node_pools
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.reading.releases import charts
from eks_inference_tools.reading.scalars import quantities
from stackgraph.graph.document import Graph

MOST_PODS = 10_000
"""The most pods that are placed, so that a typing error in a number costs no minutes."""

MOST_NODES = 5_000
"""The most nodes of one node group or static NodePool that are placed: those of a large cluster (Kubernetes, "Considerations for
large clusters")."""

_SCALES_GROUPS = "cluster-autoscaler"
"""The chart that lets managed node groups follow their pods."""


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
