"""Which nodes Karpenter would start for pods that find none. Pure.

As Karpenter does: the largest pods first, on nodes that are there, then on nodes that are to be started, which may be of any
instance type that still holds all their pods; then on a new one of the first pool by weight that takes the pod. In the end each
is of the smallest type left (vCPUs, then memory), as prices are not known. Devices count as if they were offered already.

Left out: preferences, topology spread, affinity to other pods but for not being on one node with them, replacing nodes.

Source: kubernetes-sigs/karpenter v1 (pkg/controllers/provisioning/scheduling): queue, node claims, limits of pools, DaemonSets.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import product
from typing import Any

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.placement import CAPACITY_TYPE_LABEL, HOSTNAME_LABEL, Taint
from eks_inference_tools.reading.expressions import Values
from eks_inference_tools.reading.node_shapes import NodeShape
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.reading.scalars import quantities
from eks_inference_tools.reading.scheduling import obstacles
from eks_inference_tools.simulate.world.node_pools import Zone
from eks_inference_tools.simulate.world.nodes import NodeKind, SimulatedNode, by_preference, node_name
from stackgraph.graph.values import at, items, table, text

Amounts = Mapping[str, Decimal]

_HARD = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, eq=False)
class PodToPlace:
    """A pod. ``volumes`` are what the volumes it has already demand of nodes, each as a pod that demands nothing else."""

    uid: str
    name: str
    spec: PodSpec
    labels: Mapping[str, Any] = field(default_factory=dict)
    namespace: str = "default"
    volumes: tuple[PodSpec, ...] = ()

    @property
    def requests(self) -> Amounts:
        return {"pods": Decimal(1), **self.spec.requests}


@dataclass(eq=False)
class Room:
    """What is free on a node for pods, and which are there. ``shape`` has just the labels that the node has."""

    shape: NodeShape
    free: dict[str, Decimal]
    pods: list[PodToPlace] = field(default_factory=list)

    def takes(self, pod: PodToPlace) -> bool:
        return (
            all(amount <= self.free.get(name, Decimal()) for name, amount in pod.requests.items())
            and not any(obstacles(demand, self.shape) for demand in (pod.spec, *pod.volumes))
            and not any(_repel(pod, other) or _repel(other, pod) for other in self.pods)
        )

    def put(self, pod: PodToPlace) -> None:
        for name, amount in pod.requests.items():
            self.free[name] = self.free.get(name, Decimal()) - amount
        self.pods.append(pod)


@dataclass(frozen=True, eq=False)
class Start:
    """A node to start, and the pods it is started for."""

    node: SimulatedNode
    pods: tuple[PodToPlace, ...]


@dataclass(eq=False)
class _Option:
    """One node that a planned one may become."""

    kind: NodeKind
    zone: Zone
    room: Room

    @property
    def size(self) -> tuple[int, int, str]:
        instance = self.kind.instance
        return instance.vcpus, instance.memory_mib, instance.name


def choose(
    pods: Iterable[PodToPlace],
    kinds: Sequence[NodeKind],
    daemons: Sequence[PodSpec],
    standing: Sequence[Room],
    used: Mapping[str, Amounts] | None = None,
    names: Iterable[str] = (),
) -> tuple[Start, ...]:
    """The nodes to start. ``daemons`` are pod specs of DaemonSets; ``standing`` is the room on nodes that are there and is used
    up here; ``used`` is what each pool has started already; ``names`` are names of nodes that are taken.
    """
    used_up = {pool: dict(amounts) for pool, amounts in (used or {}).items()}
    planned: list[list[_Option]] = []
    for pod in sorted(pods, key=_largest_first):
        room = next((room for room in standing if room.takes(pod)), None)
        if room:
            room.put(pod)
        elif not any(_narrow(options, pod) for options in planned):
            options = next((found for pool in _pools(kinds) if (found := _new(pod, pool, daemons, used_up))), None)
            if options:
                planned.append(options)
                _take(used_up, options)
    taken = set(names)
    starts = []
    for options in planned:
        best = min(options, key=lambda option: option.size)
        name = node_name(best.kind.shape.pool, taken)
        taken.add(name)
        starts.append(Start(_node(best, name), tuple(best.room.pods)))
    return tuple(starts)


def counted(kind: NodeKind) -> Amounts:
    """What a node counts against the limits of its pool. Karpenter counts up to 1 % more memory: what the kubelet keeps."""
    instance = kind.instance
    devices = {name: Decimal(number) for name, number in kind.devices.items()}
    return {"nodes": Decimal(1), **quantities(kind.allocatable), "cpu": Decimal(instance.vcpus), **devices}


def exact_shape(labels: Mapping[str, Any], taints: Iterable[Taint]) -> NodeShape:
    """The shape of a node all of whose labels are known."""
    return _ExactShape(
        pool="",
        by_karpenter=False,
        urn="",
        type_name="",
        instance=None,
        labels={key: frozenset([text(value)]) for key, value in labels.items()},
        anything=False,
        taints=tuple(taint for taint in taints if taint.effect in _HARD),
        efa=None,
    )


def overhead(shape: NodeShape, daemons: Iterable[PodSpec]) -> Amounts:
    """What the pods of DaemonSets take of such a node."""
    total: dict[str, Decimal] = {}
    for spec in daemons:
        if not obstacles(spec, shape):
            for name, amount in {"pods": Decimal(1), **spec.requests}.items():
                total[name] = total.get(name, Decimal()) + amount
    return total


@dataclass(frozen=True, eq=False)
class _ExactShape(NodeShape):
    def possible(self, key: str) -> Values:
        return self.labels.get(key, frozenset())


def _largest_first(pod: PodToPlace) -> tuple[Decimal, Decimal, str, str]:
    requests = pod.requests
    return -requests.get("cpu", Decimal()), -requests.get("memory", Decimal()), pod.namespace, pod.name


def _pools(kinds: Sequence[NodeKind]) -> Iterator[list[NodeKind]]:
    """The kinds of each pool, that of the greatest weight first."""
    pools: dict[str, list[NodeKind]] = {}
    for kind in kinds:
        pools.setdefault(kind.shape.pool, []).append(kind)
    yield from sorted(pools.values(), key=lambda of_pool: (-of_pool[0].weight, of_pool[0].shape.pool))


def _narrow(options: list[_Option], pod: PodToPlace) -> bool:
    """Adds the pod to a planned node, which may then only be what still holds all its pods."""
    left = [option for option in options if option.room.takes(pod)]
    for option in left:
        option.room.put(pod)
    if left:
        options[:] = left
    return bool(left)


def _new(pod: PodToPlace, kinds: Sequence[NodeKind], daemons: Sequence[PodSpec], used: Mapping[str, Amounts]) -> list[_Option]:
    """Everything that a new node for the pod may be."""
    found = []
    for kind in kinds:
        if obstacles(pod.spec, kind.shape) or not _within_limits(kind, used.get(kind.shape.pool, {})):
            continue
        for one, zone in _variants(kind, pod):
            shape = exact_shape(one.node("", zone).labels, one.taints)
            free = dict(quantities(one.allocatable)) | {name: Decimal(number) for name, number in one.devices.items()}
            for name, amount in overhead(shape, daemons).items():
                free[name] = free.get(name, Decimal()) - amount
            option = _Option(one, zone, Room(shape, free))
            if option.room.takes(pod):
                option.room.put(pod)
                found.append(option)
    return found


def _variants(kind: NodeKind, pod: PodToPlace) -> Iterator[tuple[NodeKind, Zone]]:
    """The kind with one value of each label that its pool leaves open and that may matter, in each zone."""
    named = {key for key, _ in pod.spec.chosen_labels()} | {CAPACITY_TYPE_LABEL}
    open_labels = {
        key: by_preference(key, values)
        for key, values in kind.shape.labels.items()
        if values and len(values) > 1 and key in named
    }
    for chosen in product(*open_labels.values()):
        for zone in kind.zones:
            labels = dict(kind.shape.labels) | {key: frozenset([value]) for key, value in zip(open_labels, chosen, strict=True)}
            yield replace(kind, shape=replace(kind.shape, labels=labels)), zone


def _within_limits(kind: NodeKind, used: Amounts) -> bool:
    count = counted(kind)
    limits = quantities(kind.limits).items()
    return all(used.get(name, Decimal()) + count.get(name, Decimal()) <= limit for name, limit in limits)


def _take(used: dict[str, dict[str, Decimal]], options: Sequence[_Option]) -> None:
    """Counts a planned node as the largest it may become."""
    pool = used.setdefault(options[0].kind.shape.pool, {})
    most: dict[str, Decimal] = {}
    for option in options:
        for name, amount in counted(option.kind).items():
            most[name] = max(most.get(name, Decimal()), amount)
    for name, amount in most.items():
        pool[name] = pool.get(name, Decimal()) + amount


def _node(option: _Option, name: str) -> SimulatedNode:
    node = option.kind.node(name, option.zone)
    asked = any(EFA_RESOURCE in pod.requests for pod in option.room.pods)
    if option.kind.efa_on_request and not asked:
        return replace(node, devices={key: number for key, number in node.devices.items() if key != EFA_RESOURCE})
    return node


def _repel(pod: PodToPlace, other: PodToPlace) -> bool:
    """Whether the pod will not be on one node with the other."""
    terms = items(at(pod.spec.document, "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"))
    return any(
        at(term, "topologyKey") == HOSTNAME_LABEL
        and other.namespace in (items(at(term, "namespaces")) or [pod.namespace])
        and (wanted := table(at(term, "labelSelector", "matchLabels")).items())
        and wanted <= table(other.labels).items()
        for term in terms
    )
