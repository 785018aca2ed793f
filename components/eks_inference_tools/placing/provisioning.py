"""Chooses the nodes that Karpenter would start for unschedulable pods. Pure.

Like Karpenter, it places the largest pods first: on existing nodes; then on planned nodes, which may become any instance type
that still holds all their pods; then on a new node of the first pool by weight that takes the pod, at the first of its required
terms of node affinity for which there is one. In the end each planned node
becomes the type left that is cheapest on demand by list price. Devices count as if they were offered already.

Left out: preferences, topology spread, pod affinity except anti-affinity on one node, replacing nodes.

Source: kubernetes-sigs/karpenter v1 (pkg/controllers/provisioning/scheduling): queue, node claims, limits of pools, DaemonSets.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from itertools import groupby, product
from math import inf
from typing import Any

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.catalog.prices import instance_price
from eks_inference.place.placement import CAPACITY_TYPE_LABEL, HOSTNAME_LABEL, Taint
from eks_inference_tools.placing.started_nodes import NodeKind, NodeNames, SimulatedNode, by_preference
from eks_inference_tools.reading.expressions import Values
from eks_inference_tools.reading.node_shapes import NodeShape
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.reading.scalars import quantities, whole
from eks_inference_tools.reading.scheduling import obstacles
from stackgraph.graph.values import at, items, table, text

Amounts = Mapping[str, Decimal]


def add(total: dict[str, Decimal], amounts: Amounts, sign: int = 1) -> None:
    """Adds amounts to a total in place; a ``sign`` of -1 subtracts them."""
    for name, amount in amounts.items():
        total[name] = total.get(name, Decimal()) + sign * amount


def covers(free: Amounts, needs: Amounts) -> bool:
    """Whether there is enough of everything that is needed."""
    return all(needed <= free.get(name, Decimal()) for name, needed in needs.items())


_HARD = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, eq=False)
class PodToPlace:
    """A pod. ``volumes`` holds the demands of its bound volumes on nodes, each as the spec of a pod that demands only this."""

    uid: str
    name: str
    spec: PodSpec
    labels: Mapping[str, Any] = field(default_factory=dict)
    namespace: str = "default"
    volumes: tuple[PodSpec, ...] = ()

    @property
    def requests(self) -> Amounts:
        return {"pods": Decimal(1), **self.spec.requests}

    @cached_property
    def ways(self) -> "tuple[PodToPlace, ...]":
        """The pod at each of its places, in their order."""
        return tuple(self if place is self.spec else replace(self, spec=place) for place in self.spec.places)

    @cached_property
    def apart_from(self) -> tuple[Mapping[str, Any], ...]:
        """The terms of its anti-affinity about one node."""
        terms = items(at(self.spec.document, "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"))
        return tuple(term for term in terms if at(term, "topologyKey") == HOSTNAME_LABEL)


@dataclass(eq=False)
class Room:
    """The free resources of a node, and its pods. ``shape`` has exactly the labels of the node."""

    shape: NodeShape
    free: dict[str, Decimal]
    pods: list[PodToPlace] = field(default_factory=list)

    def takes(self, pod: PodToPlace) -> bool:
        return (
            covers(self.free, pod.requests)
            and not any(obstacles(demand, self.shape) for demand in (pod.spec, *pod.volumes))
            and not (pod.apart_from and any(repel(pod, other) for other in self.pods))
            and not any(other.apart_from and repel(other, pod) for other in self.pods)
        )

    def put(self, pod: PodToPlace) -> None:
        add(self.free, pod.requests, -1)
        self.pods.append(pod)


@dataclass(frozen=True, eq=False)
class Start:
    """A node to start, and the pods that it is started for."""

    node: SimulatedNode
    pods: tuple[PodToPlace, ...]


# One node that a planned node may become, and the room on it.
_Option = tuple[SimulatedNode, Room]

# What pods of one template have in common: the identities of spec and labels, the namespace, the volumes.
_Like = tuple[int, int, str, tuple[PodSpec, ...]]


def choose(
    pods: Iterable[PodToPlace],
    kinds: Sequence[NodeKind],
    daemons: Sequence[PodSpec],
    standing: Sequence[Room],
    used: Mapping[str, Amounts] | None = None,
    names: Iterable[str] = (),
) -> tuple[Start, ...]:
    """Returns the nodes to start.

    ``daemons`` are the pod specs of DaemonSets, ``used`` is the usage of each pool, ``names`` are taken. Pods are added to
    ``standing``, the rooms of existing nodes.
    """
    used_up = {pool: dict(amounts) for pool, amounts in (used or {}).items()}
    pools = [list(of_pool) for _, of_pool in groupby(sorted(kinds, key=_by_weight), _by_weight)]
    planned: list[list[_Option]] = []
    # Nodes and limits only get fuller: what refused a pod refuses all that are like it.
    full_to: dict[_Like, int] = {}
    refused: dict[_Like, int] = {}
    hopeless: set[_Like] = set()
    for pod in sorted(pods, key=_largest_first):
        like = id(pod.spec), id(pod.labels), pod.namespace, pod.volumes
        tried = full_to.get(like, 0)
        full_to[like] = next((number for number in range(tried, len(standing)) if standing[number].takes(pod)), len(standing))
        if full_to[like] < len(standing):
            standing[full_to[like]].put(pod)
            continue
        for there in pod.ways:
            like = id(there.spec), *like[1:]
            tried = refused.get(like, 0)
            tried = next((number for number in range(tried, len(planned)) if _narrow(planned[number], there)), len(planned))
            refused[like] = tried
            if tried < len(planned):
                break
            if like in hopeless:
                continue
            options = next((found for pool in pools if (found := options_of(there, pool, daemons, used_up))), None)
            if options:
                planned.append(options)
                _take(used_up, options)
                break
            hopeless.add(like)
    new_names = NodeNames(names)
    starts = []
    for options in planned:
        node, room = min(options, key=_cheapest)
        node = node.kind.node(new_names.new(node.kind.shape.pool), node.zone)
        if (
            node.kind.efa_on_request
            and not node.kind.shape.claimed
            and not any(EFA_RESOURCE in pod.requests for pod in room.pods)
        ):
            node = replace(node, devices={key: number for key, number in node.devices.items() if key != EFA_RESOURCE})
        starts.append(Start(node, tuple(room.pods)))
    return tuple(starts)


def fixed(replicas: Mapping[str, int | None], kinds: Sequence[NodeKind]) -> tuple[SimulatedNode, ...]:
    """Returns the nodes of pools with ``replicas``, within their limits of nodes.

    Which type and zone a node gets is EC2's choice: here the smallest type and the first zone.
    """
    names = NodeNames()
    found = []
    for pool, wanted in replicas.items():
        of_pool = [kind for kind in kinds if kind.shape.pool == pool]
        if wanted is None or not of_pool:
            continue
        kind = min(of_pool, key=lambda one: (one.instance.vcpus, one.instance.memory_mib, one.instance.name))
        limit = whole(kind.limits.get("nodes"))
        for _ in range(wanted if limit is None else min(wanted, limit)):
            found.append(kind.node(names.new(pool), kind.zones[0]))
    return tuple(found)


def counted(kind: NodeKind) -> Amounts:
    """Returns what a node counts against the limits of its pool. Karpenter counts up to 1 % more memory: the kubelet's."""
    instance = kind.instance
    devices = {name: Decimal(number) for name, number in kind.devices.items()}
    return {"nodes": Decimal(1), **quantities(kind.allocatable), "cpu": Decimal(instance.vcpus), **devices}


def exact_shape(labels: Mapping[str, Any], taints: Iterable[Taint]) -> NodeShape:
    """Returns the shape of a node whose labels are all known."""
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
    """Returns the resources that DaemonSets take on a node of this shape."""
    total: dict[str, Decimal] = {}
    for spec in daemons:
        if not obstacles(spec, shape):
            add(total, {"pods": Decimal(1), **spec.requests})
    return total


@dataclass(frozen=True, eq=False)
class _ExactShape(NodeShape):
    def possible(self, key: str) -> Values:
        return self.labels.get(key, frozenset())


def _largest_first(pod: PodToPlace) -> tuple[Decimal, Decimal, str, str]:
    requests = pod.requests
    return -requests.get("cpu", Decimal()), -requests.get("memory", Decimal()), pod.namespace, pod.name


def _cheapest(option: _Option) -> tuple[float, int, int, str]:
    """Types without a price come last, the smallest first."""
    kind = option[0].kind
    instance, price = kind.instance, instance_price(kind.instance.name, kind.region)
    return price.usd if price else inf, instance.vcpus, instance.memory_mib, instance.name


def _by_weight(kind: NodeKind) -> tuple[int, str]:
    return -kind.weight, kind.shape.pool


def _narrow(options: list[_Option], pod: PodToPlace) -> bool:
    """Adds the pod to a planned node if it fits, and drops the options that no longer hold all pods."""
    left = [(node, room) for node, room in options if room.takes(pod)]
    for _, room in left:
        room.put(pod)
    if left:
        options[:] = left
    return bool(left)


def options_of(
    pod: PodToPlace, kinds: Sequence[NodeKind], daemons: Sequence[PodSpec], used: Mapping[str, Amounts]
) -> list[_Option]:
    """Returns all options of a new node for the pod."""
    found = []
    for kind in kinds:
        if obstacles(pod.spec, kind.shape) or not _within_limits(kind, used.get(kind.shape.pool, {})):
            continue
        for node in _variants(kind, pod):
            shape = exact_shape(node.labels, kind.taints)
            free = quantities(kind.allocatable) | {name: Decimal(number) for name, number in kind.devices.items()}
            add(free, overhead(shape, daemons), -1)
            room = Room(shape, free)
            if room.takes(pod):
                room.put(pod)
                found.append((node, room))
    return found


def _variants(kind: NodeKind, pod: PodToPlace) -> Iterator[SimulatedNode]:
    """Yields a node for each zone and each combination of values of the open labels that matter to the pod."""
    named = {key for key, _ in pod.spec.chosen_labels()} | {CAPACITY_TYPE_LABEL}
    open_labels = {
        key: by_preference(key, values)
        for key, values in kind.shape.labels.items()
        if values and len(values) > 1 and key in named
    }
    for chosen in product(*open_labels.values()):
        for zone in kind.zones:
            labels = dict(kind.shape.labels) | {key: frozenset([value]) for key, value in zip(open_labels, chosen, strict=True)}
            yield replace(kind, shape=replace(kind.shape, labels=labels)).node("", zone)


def _within_limits(kind: NodeKind, used: Amounts) -> bool:
    total = dict(used)
    add(total, counted(kind))
    return all(total.get(name, Decimal()) <= limit for name, limit in quantities(kind.limits).items())


def _take(used: dict[str, dict[str, Decimal]], options: Sequence[_Option]) -> None:
    """Adds a planned node to the usage of its pool, as the largest node that it may become."""
    most: dict[str, Decimal] = {}
    for node, _ in options:
        for name, amount in counted(node.kind).items():
            most[name] = max(most.get(name, Decimal()), amount)
    add(used.setdefault(options[0][0].kind.shape.pool, {}), most)


def repel(pod: PodToPlace, other: PodToPlace) -> bool:
    """Whether the pod's anti-affinity keeps it off a node with the other pod."""
    return any(
        other.namespace in (items(at(term, "namespaces")) or [pod.namespace])
        and (wanted := table(at(term, "labelSelector", "matchLabels")).items())
        and wanted <= table(other.labels).items()
        for term in pod.apart_from
    )
