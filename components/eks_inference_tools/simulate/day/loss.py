"""What can be lost: each loss says what is taken away, as data, and whether a stack has it. Pure.

What nodes stood on does not come back within the day; what others serve comes back when the day says.
Sources: EC2 user guide, "Spot Instance interruption notices" (two minutes), "Capacity Blocks for ML" (EC2 ends the instances);
EKS user guide, "Simplify node lifecycle with managed node groups", capacity types (it drains interrupted nodes).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eks_inference.catalog.times import phase_time
from eks_inference.place.placement import CAPACITY_TYPE_LABEL, KARPENTER_POOL_LABEL, POOL_LABEL, ZONE_LABEL
from eks_inference_tools.placing.started_nodes import NodeNames, SimulatedNode, karpenter_kinds, managed_nodes
from eks_inference_tools.reading.live_objects import Object, identity_of, labels_of, name_of, node_of
from eks_inference_tools.reading.object_kinds import group_kind
from eks_inference_tools.reading.pod_templates import pod_templates
from eks_inference_tools.simulate.day.subjects import Subject
from eks_inference_tools.simulate.schedulers.extender import service_of
from eks_inference_tools.simulate.schedulers.kube_schedulers import SecondScheduler, second_schedulers
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, table, text

_OUTSIDE = 60.0
"""Seconds for a new node whose time nobody has measured."""
SPOT_NOTICE = 120.0
GROUPS_CAPACITY_LABEL = "eks.amazonaws.com/capacityType"
_PICKER_LABEL = "eks-inference/picker"

Named = tuple[str, str]
"""Namespace and name."""


@dataclass
class Loss:
    """``what`` names it. ``nodes`` are gone ``notice`` seconds later. ``due`` are new nodes of node groups, with the seconds
    after the loss; node groups ``without`` them say so.
    """

    kind: str
    what: str
    nodes: frozenset[str] = frozenset()
    notice: float = 0.0
    due: list[tuple[float, SimulatedNode]] = field(default_factory=list[tuple[float, SimulatedNode]])
    without: tuple[str, ...] = ()
    lacks: Callable[[str, Mapping[str, str]], bool] = lambda pool, labels: False
    """Of which pools, and with which labels, EC2 has no instances for Karpenter any more."""
    zone: str = ""
    deployments: tuple[Named, ...] = ()
    """They have no pods until it is back."""

    @property
    def cut_off(self) -> bool:
        """Whether AWS still has the instances, so that the Nodes stay. Else their cloud controller deletes these."""
        return bool(self.zone)


@dataclass(frozen=True)
class World:
    """What stands before a loss. ``pods`` are those of the servers that are played."""

    graph: Graph
    subjects: Sequence[Subject]
    nodes: Sequence[Object] = ()
    pods: Sequence[Object] = ()

    def most(self, key: Callable[[Object], str]) -> str:
        """What holds the most pods, of what nodes have in common."""
        holds = Counter(node_of(pod) for pod in self.pods)
        found = Counter(dict.fromkeys(map(key, self.nodes), 0))
        for node in self.nodes:
            found[key(node)] += holds[name_of(node)]
        return min(found, key=lambda one: (-found[one], one))

    def those(self, holds: Callable[[Object], bool]) -> frozenset[str]:
        return frozenset(name_of(node) for node in self.nodes if holds(node))


def _zone_of(node: Object) -> str:
    return labels_of(node).get(ZONE_LABEL, "")


def _pool_of(node: Object) -> str:
    return labels_of(node).get(KARPENTER_POOL_LABEL) or labels_of(node).get(POOL_LABEL, "")


def _node(world: World) -> Loss:
    what = world.most(name_of)
    return Loss("node", f"node {what}", frozenset([what]))


def _zone(world: World) -> Loss:
    what = world.most(_zone_of)
    return Loss("zone", f"zone {what}", world.those(lambda node: _zone_of(node) == what), zone=what)


def _pool(world: World) -> Loss:
    what = world.most(_pool_of)
    gone = world.those(lambda node: _pool_of(node) == what)
    return Loss("pool", f"pool {what}", gone, lacks=lambda pool, labels: pool == what)


def _spot(world: World) -> Loss:
    def by_spot(labels: Mapping[str, str]) -> bool:
        return "spot" in (labels.get(CAPACITY_TYPE_LABEL), labels.get(GROUPS_CAPACITY_LABEL, "").lower())

    gone = world.those(lambda node: by_spot(labels_of(node)))
    return Loss("spot", "spot capacity", gone, SPOT_NOTICE, lacks=lambda pool, labels: by_spot(labels))


def _block(world: World) -> Loss:
    held = world.those(lambda node: labels_of(node).get(GROUPS_CAPACITY_LABEL) == "CAPACITY_BLOCK")
    return Loss("capacity-block", "the capacity block", held)


def _served(kind: str, what: str, found: Callable[[Graph], Iterator[Named]] = lambda graph: iter(())) -> Callable[[World], Loss]:
    return lambda world: Loss(kind, what, deployments=tuple(found(world.graph)))


def _pickers(graph: Graph) -> Iterator[Named]:
    for pod_template in pod_templates(graph):
        if _PICKER_LABEL in pod_template.labels:
            yield pod_template.namespace, pod_template.name


def _extensions(graph: Graph) -> Iterator[Named]:
    """The Deployments behind the Services that second schedulers ask."""
    asked = {
        (service.namespace, service.name)
        for second_scheduler in second_schedulers(graph)
        if isinstance(second_scheduler, SecondScheduler)
        for extender in second_scheduler.extenders
        if (service := service_of(text(extender.get("urlPrefix"))))
    }
    services = [one.inputs for one in graph.resources if group_kind(one)[1] == "Service" and identity_of(one.inputs) in asked]
    for one in pod_templates(graph):
        for service in services:
            selector = table(at(service, "spec", "selector"))
            if one.kind == "Deployment" and one.namespace == identity_of(service)[0] and one.has_labels(selector):
                yield one.namespace, one.name


def _sold(label: str, managed: str) -> Callable[[World], bool]:
    """Whether some nodes of a stack may be bought so."""
    return lambda world: (
        any(one.labels.get(GROUPS_CAPACITY_LABEL) == managed for one in managed_nodes(world.graph, lambda group: 1))
        or any(label in (kind.shape.labels.get(CAPACITY_TYPE_LABEL) or ()) for kind in karpenter_kinds(world.graph))
    )


@dataclass(frozen=True)
class _Kind:
    """``lost`` makes the loss; stacks where ``there`` is nothing of the sort ``have`` none."""

    lost: Callable[[World], Loss]
    there: Callable[[World], bool] = lambda world: True
    has: str = ""


_KINDS: Mapping[str, _Kind] = {
    "node": _Kind(_node),
    "zone": _Kind(_zone),
    "pool": _Kind(_pool),
    "spot": _Kind(_spot, _sold("spot", "SPOT"), "has no spot nodes"),
    "capacity-block": _Kind(_block, _sold("", "CAPACITY_BLOCK"), "has no nodes of a capacity block"),
    "image-registry": _Kind(_served("image-registry", "the image registry")),
    "hub": _Kind(
        _served("hub", "the model hub"),
        lambda world: any(subject.from_hub for subject in world.subjects),
        "has no server that downloads from the hub when it starts",
    ),
    "api-server": _Kind(_served("api-server", "the API server")),
    "scheduler-extension": _Kind(
        _served("scheduler-extension", "the scheduler extension", _extensions),
        lambda world: any(_extensions(world.graph)),
        "has no scheduler extension",
    ),
    "picker": _Kind(_served("picker", "the picker", _pickers), lambda world: any(_pickers(world.graph)), "has no picker"),
}
KINDS = tuple(_KINDS)
OF_NODES = ("node", "zone", "pool", "spot", "capacity-block")


def absent(kinds: Sequence[str], world: World) -> Iterator[str]:
    """Yields in words what a stack does not have, so that it cannot be lost."""
    for kind in kinds:
        if not _KINDS[kind].there(world):
            yield f"stack {world.graph.stack} {_KINDS[kind].has}"


def chosen(kinds: Sequence[str], world: World) -> list[Loss]:
    """Returns the worst losses of these kinds: the node, the zone or the pool with the most pods of servers."""
    losses = [_KINDS[kind].lost(world) for kind in dict.fromkeys(kinds)]
    _find_successors(world, losses)
    return losses


def _find_successors(world: World, losses: Sequence[Loss]) -> None:
    """Adds the nodes that node groups start for lost ones, outside of a lost zone, where there is capacity."""
    zones = {loss.zone for loss in losses}
    no_capacity = frozenset[str]().union(*(loss.nodes for loss in losses if loss.kind not in ("node", "zone")))
    managed = {node.name: node for node in managed_nodes(world.graph)}
    names = NodeNames(map(name_of, world.nodes))
    done = set(no_capacity)
    for loss in losses:
        without = list[str]()
        for number, name in enumerate(name for name in managed if name in loss.nodes - done):
            node = managed[name]
            rest = [zone for zone in node.kind.zones if zone.name not in zones]
            if not rest:
                without.append(node.kind.shape.pool)
                continue
            place = node.zone if node.zone in rest else rest[number % len(rest)]
            time = phase_time("node", node.kind.instance.accelerator, instance_type=node.kind.instance.name)
            loss.due.append((time.p50 if time else _OUTSIDE, node.kind.node(names.new(node.kind.shape.pool), place)))
        loss.without = tuple(dict.fromkeys(without))
        done |= loss.nodes
