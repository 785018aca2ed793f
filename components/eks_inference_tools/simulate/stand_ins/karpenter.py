"""Stands in for Karpenter: starts nodes for pods that find none, and judges NodePools and EC2NodeClasses ready.

What it starts is chosen by ``provisioning.py``. Nodes are never removed or replaced, NodeClaims are not made, and what EC2 has at
hand, or AWS would say to an EC2NodeClass, is not asked.

Source: kubernetes-sigs/karpenter v1 (which pods are provisioned for, batching); Karpenter documentation, "Settings".
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from eks_inference.placement import INSTANCE_TYPE_LABEL, KARPENTER_POOL_LABEL
from eks_inference_tools.reading.charts import charts
from eks_inference_tools.reading.kinds import (
    DAEMON_SETS,
    NODE_CLASSES,
    NODE_POOLS,
    NODES,
    PODS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
)
from eks_inference_tools.reading.live_objects import (
    condition_of,
    controller_of,
    has_ended,
    identity_of,
    is_leaving,
    labels_of,
    name_of,
    node_of,
    taints_of,
)
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.reading.scalars import quantities
from eks_inference_tools.simulate.control_plane.api import Api, Object
from eks_inference_tools.simulate.stand_ins.controllers import condition, conditions, set_status
from eks_inference_tools.simulate.stand_ins.loop import Seen
from eks_inference_tools.simulate.stand_ins.provisioning import (
    PodToPlace,
    Room,
    Start,
    choose,
    counted,
    exact_shape,
    overhead,
)
from eks_inference_tools.simulate.world.footprint import STANDS_IN_FOR_LABEL
from eks_inference_tools.simulate.world.nodes import NodeKind, hardware_of, karpenter_kinds, manifest
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, table, text

CHART = "karpenter"


# Karpenter waits until no pod has been added for so long, or the first has waited for so long (BATCH_IDLE_DURATION,
# BATCH_MAX_DURATION).
_IDLE_SECONDS = 1.0
_MOST_SECONDS = 10.0

# A pod that may be on any node.
_ANYWHERE = {"tolerations": [{"operator": "Exists"}]}

# Taints of nodes that are just starting; pods are placed on them nevertheless.
_STARTING = ("node.cloudprovider.kubernetes.io/uninitialized", "node.kubernetes.io/not-ready")


class Karpenter:
    """Karpenter, of the pools of a graph. Where the graph installs its chart, nothing happens before its pods run."""

    title = "the stand-in of Karpenter"

    def __init__(self, graph: Graph, clock: Callable[[], float] = time.monotonic) -> None:
        self._kinds = karpenter_kinds(graph)
        self._releases = [chart.release for chart in charts(graph) if chart.name == CHART]
        self._batch = _Batch(clock)

    @property
    def reads(self) -> tuple[str, ...]:
        if not self._kinds:
            return ()
        return (PODS, NODES, NODE_POOLS, NODE_CLASSES, DAEMON_SETS, VOLUME_CLAIMS, VOLUMES, STORAGE_CLASSES)

    def reconcile(self, seen: Seen, api: Api) -> None:
        if not self._kinds or not self._runs(seen):
            return
        for item in (*seen[NODE_POOLS], *seen[NODE_CLASSES]):
            _judge(item, seen, api)
        pods = list(_pods_to_place(seen))
        if self._batch.is_complete(pods):
            for start in self.starts(seen, pods):
                api.create(manifest(start.node))

    def starts(self, seen: Seen, pods: Iterable[PodToPlace]) -> tuple[Start, ...]:
        """The nodes to start for these pods, of the pools that are there by now."""
        here = {name_of(pool) for pool in seen[NODE_POOLS] if not is_leaving(pool)}
        daemons = [PodSpec(at(one, "spec", "template", "spec")) for one in seen[DAEMON_SETS] if not is_leaving(one)]
        kinds = [kind for kind in self._kinds if kind.shape.pool in here]
        return choose(
            pods,
            kinds,
            daemons,
            list(_rooms(seen, daemons)),
            used=_used(seen[NODES], self._kinds),
            names=(name_of(node) for node in seen[NODES]),
        )

    def _runs(self, seen: Seen) -> bool:
        running = {labels_of(pod).get(STANDS_IN_FOR_LABEL) for pod in seen[PODS] if at(pod, "status", "phase") == "Running"}
        return all(release in running for release in self._releases)


class _Batch:
    """Pods that wait are looked at together."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: frozenset[str] = frozenset()
        self._first = self._changed = 0.0

    def is_complete(self, pods: Iterable[PodToPlace]) -> bool:
        waiting, now = frozenset(pod.uid for pod in pods), self._clock()
        if not self._waiting:
            self._first = now
        if waiting - self._waiting:
            self._changed = now
        self._waiting = waiting
        if not waiting or not (now - self._changed >= _IDLE_SECONDS or now - self._first >= _MOST_SECONDS):
            return False
        self._first = now
        return True


def _judge(item: Object, seen: Seen, api: Api) -> None:
    """Says that a NodePool or EC2NodeClass is ready, and of a pool how many nodes it has."""
    if is_leaving(item):
        return
    status: dict[str, Any] = dict(table(item.get("status")))
    generation = at(item, "metadata", "generation") or 1
    ready = condition("Ready", True, "Ready", "")
    status["conditions"] = conditions(items(status.get("conditions")), [ready], generation)
    if item.get("kind") == "NodePool":
        status["nodes"] = sum(labels_of(node).get(KARPENTER_POOL_LABEL) == name_of(item) for node in seen[NODES])
    set_status(api, item, status)


# -- pods ------------------------------------------------------------------------------------------------------------------------


def _pods_to_place(seen: Seen) -> Iterator[PodToPlace]:
    """Pods of which a scheduler said that no node takes them, without those of DaemonSets and those that wait for a volume."""
    claims = {identity_of(claim): claim for claim in seen[VOLUME_CLAIMS]}
    volumes = {name_of(volume): volume for volume in seen[VOLUMES]}
    late = {name_of(one) for one in seen[STORAGE_CLASSES] if one.get("volumeBindingMode") == "WaitForFirstConsumer"}
    for pod in seen[PODS]:
        if not _is_unschedulable(pod):
            continue
        namespace, _ = identity_of(pod)
        found = [_demanded(claims.get((namespace, name)), volumes, late) for name in _claims(pod)]
        known = tuple(one for one in found if one)
        if len(known) == len(found):
            yield _pod(pod, known)


def _is_unschedulable(pod: Object) -> bool:
    said = condition_of(pod, "PodScheduled") or {}
    return (
        said.get("status") == "False"
        and said.get("reason") == "Unschedulable"
        and not node_of(pod)
        and not is_leaving(pod)
        and not _is_of_daemon_set(pod)
    )


def _is_of_daemon_set(pod: Object) -> bool:
    return at(controller_of(pod), "kind") == "DaemonSet"


def _claims(pod: Object) -> list[str]:
    """The names of the pod's volume claims; those of ephemeral volumes are called after the pod."""
    spec = PodSpec(pod.get("spec"))
    return [*spec.claims, *(f"{name_of(pod)}-{volume}" for volume in spec.ephemeral_volumes)]


def _demanded(claim: Object | None, volumes: Mapping[str, Object], late: set[str]) -> PodSpec | None:
    """What a claim's volume demands of a node, as a pod that demands nothing else; None while nobody can tell."""
    if claim is None:
        return None
    bound = text(at(claim, "spec", "volumeName"))
    if not bound:
        return PodSpec(_ANYWHERE) if text(at(claim, "spec", "storageClassName")) in late else None
    if bound not in volumes:
        return None
    required = at(volumes[bound], "spec", "nodeAffinity", "required")
    if not required:
        return PodSpec(_ANYWHERE)
    return PodSpec({**_ANYWHERE, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})


def _pod(pod: Object, volumes: tuple[PodSpec, ...] = ()) -> PodToPlace:
    namespace, name = identity_of(pod)
    uid = text(at(pod, "metadata", "uid")) or f"{namespace}/{name}"
    return PodToPlace(uid, name, PodSpec(pod.get("spec")), labels_of(pod), namespace, volumes)


# -- nodes -----------------------------------------------------------------------------------------------------------------------


def _rooms(seen: Seen, daemons: Iterable[PodSpec]) -> Iterator[Room]:
    """What is free on the nodes that are there, as if all DaemonSets and devices were there, too, on those of Karpenter."""
    on: dict[str, list[Object]] = {}
    for pod in seen[PODS]:
        if not has_ended(pod) and not _is_of_daemon_set(pod):
            on.setdefault(node_of(pod), []).append(pod)
    specs = list(daemons)
    for node in seen[NODES]:
        if is_leaving(node) or at(node, "spec", "unschedulable") is True:
            continue
        labels = labels_of(node)
        shape = exact_shape(labels, (taint for taint in taints_of(node) if taint.key not in _STARTING))
        free = quantities(at(node, "status", "allocatable"))
        if KARPENTER_POOL_LABEL in labels:
            free |= quantities(hardware_of(node))
        for name, amount in overhead(shape, specs).items():
            free[name] = free.get(name, Decimal()) - amount
        room = Room(shape, free)
        for pod in on.get(name_of(node), ()):
            room.put(_pod(pod))
        yield room


def _used(nodes: Iterable[Object], kinds: Iterable[NodeKind]) -> dict[str, dict[str, Decimal]]:
    """What the nodes of each pool count against its limits."""
    by_type = {(kind.shape.pool, kind.instance.name): counted(kind) for kind in kinds}
    used: dict[str, dict[str, Decimal]] = {}
    for node in nodes:
        labels = labels_of(node)
        pool = text(labels.get(KARPENTER_POOL_LABEL))
        amounts = by_type.get((pool, text(labels.get(INSTANCE_TYPE_LABEL))), quantities(at(node, "status", "capacity")))
        if pool:
            total = used.setdefault(pool, {})
            for name, amount in amounts.items():
                total[name] = total.get(name, Decimal()) + amount
    return used
