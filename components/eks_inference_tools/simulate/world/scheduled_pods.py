"""Reads where pods were scheduled: what nodes offer, what pods take, what is left, and why a pod is pending. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, is_legal
from eks_inference.catalog.claim_drivers import drivers
from eks_inference.catalog.instances import InstanceType
from eks_inference.place.placement import INSTANCE_TYPE_LABEL, POOL_LABEL, ZONE_LABEL
from eks_inference.serving.ray_serve.plan import NODE_TYPE_LABEL
from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL
from eks_inference_tools.placing.provisioning import Amounts, add
from eks_inference_tools.reading.devices import CLAIMED, RESOURCE_CLAIMS, RESOURCE_SLICES, allocated, asked
from eks_inference_tools.reading.live_objects import (
    Object,
    Seen,
    annotations_of,
    condition_of,
    controller_of,
    has_ended,
    identity_of,
    labels_of,
    name_of,
    node_of,
    title_of,
)
from eks_inference_tools.reading.object_kinds import (
    LWS_GROUP_INDEX_LABEL,
    LWS_NAME_LABEL,
    LWS_WORKER_INDEX_LABEL,
    NODES,
    PODS,
    RAY_GROUP_LABEL,
    REPLICA_SETS,
)
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.reading.scalars import quantities
from stackgraph.graph.values import at, items, joined, text

# Which Neuron devices of a node a pod may get together: sets of neighbours on the chip interconnect.
#
# The catalog's ``legal_device_counts`` also tell the topology. Where a pod can have any number of devices they form a ring, and a
# set is a run of consecutive devices. Elsewhere they form a torus, and a set is an aligned block, which starts at a multiple of
# its size.
#
# Source: aws-neuron-sdk, "Neuron scheduler extension" (device allocation by instance type). Where it is silent the stricter
# reading applies: a run does not wrap around from the last device to the first, and a block of a torus is a whole number of rows.

DEVICES_ANNOTATION = "AWS_NEURON_IDS"
"""On a pod: the devices assigned to it, in the format of AWS's scheduler extension (``0,1,2,3``)."""


def allocate(free: frozenset[int], count: int, shape: InstanceType) -> tuple[int, ...] | None:
    """Returns the first set of ``count`` free devices in ascending order, or None."""
    if count == 0:
        return ()
    return next((found for found in device_sets(count, shape) if free.issuperset(found)), None)


def device_sets(count: int, shape: InstanceType) -> tuple[tuple[int, ...], ...]:
    """Returns all sets of ``count`` devices; empty if the instance type does not give a pod this number."""
    if not is_legal(count, shape):
        return ()
    ring = len(shape.legal_device_counts) == shape.devices
    starts = range(0, shape.devices - count + 1, 1 if ring else count)
    return tuple(tuple(range(start, start + count)) for start in starts)


def shortage(free: frozenset[int], count: int, shape: InstanceType) -> str:
    """Explains to the owner of a pod why ``allocate`` found no devices."""
    if not is_legal(count, shape):
        return f"{shape.name} gives a pod {', '.join(map(str, shape.legal_device_counts)) or 'no'} Neuron devices, not {count}"
    return f"no {count} contiguous free Neuron devices of {shape.devices}: free {spans(free)}"


def spans(devices: Iterable[int]) -> str:
    """Returns ``0-3, 8``, or ``none``."""
    runs: list[list[int]] = []
    for device in sorted(devices):
        if runs and runs[-1][-1] == device - 1:
            runs[-1].append(device)
        else:
            runs.append([device])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs) or "none"


@dataclass(frozen=True)
class ScheduledPod:
    """A pod on a node.

    ``owner`` is what created it (``Deployment demo/server``). ``devices`` are the indices that the scheduler extension assigned.
    ``stands_in_for`` names the chart or add-on whose pod this one replaces.
    """

    namespace: str
    name: str
    owner: str
    requests: Amounts
    devices: tuple[int, ...] = ()
    stands_in_for: str = ""
    on_each_node: bool = False


@dataclass(frozen=True)
class NodeWithPods:
    """A node and the pods that hold part of it. ``ended`` names the owners of pods that finished here."""

    name: str
    pool: str
    type_name: str
    zone: str
    allocatable: Amounts
    pods: tuple[ScheduledPod, ...]
    ended: tuple[str, ...] = ()

    @cached_property
    def taken(self) -> Amounts:
        """The sum of the pods' requests by resource; ``pods`` is their number."""
        total = {"pods": Decimal(len(self.pods))}
        for pod in self.pods:
            add(total, pod.requests)
        return total

    def idle(self, resource: str) -> Decimal:
        return self.allocatable.get(resource, Decimal()) - self.taken.get(resource, Decimal())

    @property
    def devices(self) -> tuple[str, ...]:
        """The device resources that it offers. NeuronCores, which are parts of devices, count only if a pod requests them."""
        offered = (name for name, value in self.allocatable.items() if "/" in name and value)
        return tuple(sorted(name for name in offered if name != CORE_RESOURCE or self.taken.get(name)))


@dataclass(frozen=True)
class PendingPod:
    """A pod on no node, or one that could not be created (its ``name`` is empty). ``said`` is the cluster's own message."""

    namespace: str
    name: str
    owner: str
    requests: Amounts
    said: str


@dataclass(frozen=True)
class ScheduledPods:
    """All nodes and pods at one moment."""

    nodes: tuple[NodeWithPods, ...]
    pending: tuple[PendingPod, ...]

    @property
    def placed(self) -> int:
        return sum(len(node.pods) for node in self.nodes)

    def idle_devices(self) -> Mapping[str, Mapping[str, int]]:
        """Returns the unused devices by resource and node."""
        found: dict[str, dict[str, int]] = {}
        for node in self.nodes:
            for resource in node.devices:
                if idle := int(node.idle(resource)):
                    found.setdefault(resource, {})[node.name] = idle
        return found


# The prefix of Kubernetes for the message of a repeated event.
_COMBINED = "(combined from similar events): "

READS = (NODES, PODS, "events", REPLICA_SETS, RESOURCE_CLAIMS, RESOURCE_SLICES)
"""The resources that ``scheduled_pods`` reads."""


def scheduled_pods(seen: Seen) -> ScheduledPods:
    """Reads the nodes and pods from lists of objects by resource (``READS``)."""
    claims = {identity_of(claim): claim for claim in seen.get(RESOURCE_CLAIMS, ())}
    makers = {identity_of(replicas): _maker(replicas) for replicas in seen[REPLICA_SETS]}
    here: dict[str, list[ScheduledPod]] = {}
    ended: dict[str, list[str]] = {}
    pending: list[PendingPod] = []
    for pod in seen[PODS]:
        owner = _owner(pod, makers)
        node = node_of(pod)
        if has_ended(pod):
            ended.setdefault(node, []).append(owner)
        elif node:
            scheduled = ScheduledPod(
                *identity_of(pod),
                owner=owner,
                requests=_requests(pod, claims),
                devices=_assigned(pod, claims),
                stands_in_for=text(labels_of(pod).get(STANDS_IN_FOR_LABEL)),
                on_each_node=owner.startswith("DaemonSet "),
            )
            here.setdefault(node, []).append(scheduled)
        else:
            pending.append(PendingPod(*identity_of(pod), owner, _requests(pod, claims), _scheduler_said(pod)))
    pending += _never_made(seen, makers)
    nodes = [
        NodeWithPods(
            name=name_of(node),
            pool=text(labels_of(node).get(POOL_LABEL)),
            type_name=text(labels_of(node).get(INSTANCE_TYPE_LABEL)),
            zone=text(labels_of(node).get(ZONE_LABEL)),
            allocatable=quantities(at(node, "status", "allocatable")) | _claimable(name_of(node), seen),
            pods=tuple(sorted(here.get(name_of(node), ()), key=_shown_first)),
            ended=tuple(sorted(ended.get(name_of(node), ()))),
        )
        for node in seen[NODES]
    ]
    return ScheduledPods(
        nodes=tuple(sorted(nodes, key=lambda node: (not node.devices, node.pool, node.name))),
        pending=tuple(sorted(pending, key=lambda pod: (pod.owner, pod.name))),
    )


def _claims_of(pod: Object, claims: Mapping[tuple[str, str], Object]) -> Iterator[Object]:
    """Yields the claims that were made for a pod."""
    namespace, _ = identity_of(pod)
    for status in items(at(pod, "status", "resourceClaimStatuses")):
        if claim := claims.get((namespace, text(at(status, "resourceClaimName")))):
            yield claim


def _requests(pod: Object, claims: Mapping[tuple[str, str], Object]) -> Amounts:
    total: dict[str, Decimal] = {}
    for claim in _claims_of(pod, claims):
        add(total, asked(claim.get("spec")))
    return PodSpec(pod["spec"], total).requests


def _assigned(pod: Object, claims: Mapping[tuple[str, str], Object]) -> tuple[int, ...]:
    """Returns the indices of a pod's Neuron devices: those of the scheduler extension, or those allocated to its claims."""
    given = text(annotations_of(pod).get(DEVICES_ANNOTATION)).split(",")
    neuron = drivers()["neuron"].driver
    given += [
        device.rpartition("-")[2] for claim in _claims_of(pod, claims) for driver, device in allocated(claim) if driver == neuron
    ]
    return tuple(sorted(int(device) for device in given if device.isdecimal()))


def _claimable(node: str, seen: Seen) -> dict[str, Decimal]:
    """Returns how many devices drivers publish on a node."""
    found: dict[str, Decimal] = {}
    for item in seen.get(RESOURCE_SLICES, ()):
        for resource, driver in CLAIMED.items():
            if at(item, "spec", "nodeName") == node and at(item, "spec", "driver") == driver.driver:
                found[resource] = found.get(resource, Decimal()) + len(items(at(item, "spec", "devices")))
    return found


def _shown_first(pod: ScheduledPod) -> tuple[Any, ...]:
    return pod.on_each_node, bool(pod.stands_in_for), pod.owner, pod.devices, pod.name


def _scheduler_said(pod: Object) -> str:
    condition = condition_of(pod, "PodScheduled") or {}
    if condition.get("status") == "False":
        return text(condition.get("message")) or text(condition.get("reason"))
    gates = ", ".join(text(at(gate, "name")) for gate in items(at(pod, "spec", "schedulingGates")))
    scheduler = text(at(pod, "spec", "schedulerName"))
    return f"held back by scheduling gates: {gates}" if gates else f"no scheduler named {scheduler} has looked at it"


def _never_made(seen: Seen, makers: Mapping[tuple[str, str], str]) -> Iterator[PendingPod]:
    """Yields pods that a controller failed to create and has not created since (quota, Pod Security, no ServiceAccount)."""
    sets = seen[REPLICA_SETS]
    short = {identity_of(one) for one in sets if (at(one, "status", "replicas") or 0) < (at(one, "spec", "replicas") or 0)}
    newest: dict[str, str] = {}
    for pod in seen[PODS]:
        maker = _maker(pod)
        newest[maker] = max(newest.get(maker, ""), text(at(pod, "metadata", "creationTimestamp")))
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
    """Returns the title of an object's controller, or of the object itself if it has none."""
    namespace, _ = identity_of(item)
    maker = controller_of(item)
    return f"{text(at(maker, 'kind'))} {namespace}/{text(at(maker, 'name'))}" if maker else title_of(item)


def _owner(pod: Object, makers: Mapping[tuple[str, str], str]) -> str:
    """Returns what created a pod, beyond ReplicaSets and the sets of a LeaderWorkerSet; with the pod's role in it."""
    made_by = _maker(pod)
    namespace, labels = identity_of(pod)[0], labels_of(pod)
    if role := text(labels.get(NODE_TYPE_LABEL)):
        return f"{made_by} ({role if role == 'head' else joined(role, labels.get(RAY_GROUP_LABEL))})"
    if name := text(labels.get(LWS_NAME_LABEL)):
        role = f"pod {labels.get(LWS_WORKER_INDEX_LABEL)} of group {labels.get(LWS_GROUP_INDEX_LABEL)}"
        return f"LeaderWorkerSet {namespace}/{name} ({role})"
    match = re.fullmatch(r"ReplicaSet ([^/]*)/(.*)", made_by)
    return makers.get((match[1], match[2]), made_by) if match else made_by
