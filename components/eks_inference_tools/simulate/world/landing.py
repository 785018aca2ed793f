"""Where pods landed: what nodes have, what pods took of it, what is left, and why a pod is on none. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE
from eks_inference.placement import INSTANCE_TYPE_LABEL, POOL_LABEL, ZONE_LABEL
from eks_inference.serving.ray_serve.plan import NODE_TYPE_LABEL
from eks_inference_tools.reading.kinds import NODES, PODS, REPLICA_SETS
from eks_inference_tools.reading.kuberay import GROUP_LABEL
from eks_inference_tools.reading.leader_worker_set import GROUP_INDEX_LABEL, NAME_LABEL, WORKER_INDEX_LABEL
from eks_inference_tools.reading.live_objects import (
    Object,
    Seen,
    annotations_of,
    condition_of,
    controller_of,
    has_ended,
    identity_of,
    labels_of,
    node_of,
    title_of,
)
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.reading.scalars import quantities
from eks_inference_tools.simulate.world.device_sets import DEVICES_ANNOTATION
from eks_inference_tools.simulate.world.footprint import STANDS_IN_FOR_LABEL
from stackgraph.graph.values import at, items, joined, text

Amounts = Mapping[str, Decimal]


@dataclass(frozen=True)
class LandedPod:
    """A pod on a node. ``owner`` is what made it (``Deployment demo/server``); ``devices`` are the indices that the scheduler
    extension gave it, empty where it gave none; ``stands_in_for`` names the chart or add-on whose pod it stands in for.
    """

    namespace: str
    name: str
    owner: str
    requests: Amounts
    devices: tuple[int, ...] = ()
    stands_in_for: str = ""
    on_each_node: bool = False


@dataclass(frozen=True)
class LandedNode:
    """A node with the pods that hold a part of it; ``ended`` are the owners of pods that ran here and are done."""

    name: str
    pool: str
    type_name: str
    zone: str
    allocatable: Amounts
    pods: tuple[LandedPod, ...]
    ended: tuple[str, ...] = ()

    @cached_property
    def taken(self) -> Amounts:
        """What the pods asked for, by resource; ``pods`` is their number."""
        total = {"pods": Decimal(len(self.pods))}
        for pod in self.pods:
            for name, value in pod.requests.items():
                total[name] = total.get(name, Decimal()) + value
        return total

    def idle(self, resource: str) -> Decimal:
        return self.allocatable.get(resource, Decimal()) - self.taken.get(resource, Decimal())

    @property
    def devices(self) -> tuple[str, ...]:
        """The device resources it offers; NeuronCores, which are parts of devices, only where somebody asked for them."""
        offered = (name for name, value in self.allocatable.items() if "/" in name and value)
        return tuple(sorted(name for name in offered if name != CORE_RESOURCE or self.taken.get(name)))


@dataclass(frozen=True)
class PendingPod:
    """A pod on no node, or one that could not even be made (then ``name`` is empty). ``said`` are the cluster's own words."""

    namespace: str
    name: str
    owner: str
    requests: Amounts
    said: str


@dataclass(frozen=True)
class Landing:
    """Pods x nodes at one moment."""

    nodes: tuple[LandedNode, ...]
    pending: tuple[PendingPod, ...]

    @property
    def placed(self) -> int:
        return sum(len(node.pods) for node in self.nodes)

    def idle_devices(self) -> Mapping[str, Mapping[str, int]]:
        """Devices that nobody uses, by resource and node."""
        found: dict[str, dict[str, int]] = {}
        for node in self.nodes:
            for resource in node.devices:
                if idle := int(node.idle(resource)):
                    found.setdefault(resource, {})[node.name] = idle
        return found


# What Kubernetes puts before the words of an event that came often.
_COMBINED = "(combined from similar events): "

READS = (NODES, PODS, "events", REPLICA_SETS)
"""The resources that ``landing`` is made of."""


def landing(seen: Seen) -> Landing:
    """From lists of objects by resource (``READS``)."""
    makers = {identity_of(replicas): _maker(replicas) for replicas in seen[REPLICA_SETS]}
    here: dict[str, list[LandedPod]] = {}
    ended: dict[str, list[str]] = {}
    pending: list[PendingPod] = []
    for pod in seen[PODS]:
        owner = _owner(pod, makers)
        node = node_of(pod)
        if has_ended(pod):
            ended.setdefault(node, []).append(owner)
        elif node:
            here.setdefault(node, []).append(_landed(pod, owner))
        else:
            pending.append(PendingPod(*identity_of(pod), owner, PodSpec(pod["spec"]).requests, _scheduler_said(pod)))
    pending += _never_made(seen, makers)
    nodes = (_node(node, here, ended) for node in seen[NODES])
    return Landing(
        nodes=tuple(sorted(nodes, key=lambda node: (not node.devices, node.pool, node.name))),
        pending=tuple(sorted(pending, key=lambda pod: (pod.owner, pod.name))),
    )


def _node(node: Object, here: Mapping[str, list[LandedPod]], ended: Mapping[str, list[str]]) -> LandedNode:
    name, labels = identity_of(node)[1], labels_of(node)
    pods = here.get(name, [])
    return LandedNode(
        name=name,
        pool=text(labels.get(POOL_LABEL)),
        type_name=text(labels.get(INSTANCE_TYPE_LABEL)),
        zone=text(labels.get(ZONE_LABEL)),
        allocatable=quantities(at(node, "status", "allocatable")),
        pods=tuple(sorted(pods, key=lambda pod: (pod.on_each_node, bool(pod.stands_in_for), pod.owner, pod.devices, pod.name))),
        ended=tuple(sorted(ended.get(name, ()))),
    )


def _landed(pod: Object, owner: str) -> LandedPod:
    annotations, labels = annotations_of(pod), labels_of(pod)
    return LandedPod(
        *identity_of(pod),
        owner=owner,
        requests=PodSpec(pod["spec"]).requests,
        devices=tuple(int(device) for device in text(annotations.get(DEVICES_ANNOTATION)).split(",") if device.isdecimal()),
        stands_in_for=text(labels.get(STANDS_IN_FOR_LABEL)),
        on_each_node=owner.startswith("DaemonSet "),
    )


def _scheduler_said(pod: Object) -> str:
    condition = condition_of(pod, "PodScheduled")
    if condition is not None and condition.get("status") == "False":
        return text(condition.get("message")) or text(condition.get("reason"))
    gates = ", ".join(text(at(gate, "name")) for gate in items(at(pod, "spec", "schedulingGates")))
    scheduler = text(at(pod, "spec", "schedulerName"))
    return f"held back by scheduling gates: {gates}" if gates else f"no scheduler named {scheduler} has looked at it"


def _never_made(seen: Seen, makers: Mapping[tuple[str, str], str]) -> Iterator[PendingPod]:
    """Pods that a controller could not make and has not made since: quota, Pod Security, a ServiceAccount that is missing."""
    sets = seen[REPLICA_SETS]
    short = {identity_of(one) for one in sets if (at(one, "status", "replicas") or 0) < (at(one, "spec", "replicas") or 0)}
    newest: dict[str, str] = {}
    for pod in seen[PODS]:
        newest[_maker(pod)] = max(newest.get(_maker(pod), ""), text(at(pod, "metadata", "creationTimestamp")))
    last: dict[tuple[str, str, str], str] = {}
    for event in seen["events"]:
        about = at(event, "involvedObject")
        kind, namespace, name = (text(at(about, key)) for key in ("kind", "namespace", "name"))
        when = text(at(event, "lastTimestamp")) or text(at(event, "metadata", "creationTimestamp"))
        since = newest.get(f"{kind} {namespace}/{name}", "")
        over = (namespace, name) not in short if kind == "ReplicaSet" else bool(since) and when <= since
        if at(event, "reason") == "FailedCreate" and not over:
            last[kind, namespace, name] = text(at(event, "message")).removeprefix(_COMBINED)
    for (kind, namespace, name), said in last.items():
        owner = makers.get((namespace, name)) if kind == "ReplicaSet" else None
        yield PendingPod(namespace, "", owner or f"{kind} {namespace}/{name}", {}, said)


def _maker(item: Object) -> str:
    """What controls an object, in words."""
    namespace, _ = identity_of(item)
    maker = controller_of(item)
    return f"{text(at(maker, 'kind'))} {namespace}/{text(at(maker, 'name'))}" if maker else title_of(item)


def _owner(pod: Object, makers: Mapping[tuple[str, str], str]) -> str:
    """What made a pod: of a ReplicaSet its Deployment, of the sets of a LeaderWorkerSet that one; with the pod's part in it."""
    made_by = _maker(pod)
    namespace, labels = identity_of(pod)[0], labels_of(pod)
    if role := text(labels.get(NODE_TYPE_LABEL)):
        return f"{made_by} ({role if role == 'head' else joined(role, labels.get(GROUP_LABEL))})"
    if name := text(labels.get(NAME_LABEL)):
        return (
            f"LeaderWorkerSet {namespace}/{name} (pod {labels.get(WORKER_INDEX_LABEL)} of group {labels.get(GROUP_INDEX_LABEL)})"
        )
    match = re.fullmatch(r"ReplicaSet ([^/]*)/(.*)", made_by)
    return makers.get((match[1], match[2]), made_by) if match else made_by
