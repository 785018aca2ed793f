"""Stands in for Karpenter: starts nodes for unschedulable pods and of pools with replicas; marks objects as ready.

``provisioning.py`` chooses the nodes. Nodes are never removed or replaced, and NodeClaims are not created. EC2's capacity and
AWS's validation of an EC2NodeClass are not modelled.

Source: kubernetes-sigs/karpenter v1 (which pods are provisioned for, batching); Karpenter documentation, "Settings".
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from eks_inference.place.placement import INSTANCE_TYPE_LABEL, KARPENTER_POOL_LABEL
from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL
from eks_inference_tools.placing.nodes import NodeKind, hardware_of, karpenter_kinds, manifest
from eks_inference_tools.placing.provisioning import (
    PodToPlace,
    Room,
    add,
    choose,
    counted,
    exact_shape,
    fixed,
    overhead,
)
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
from eks_inference_tools.reading.releases import charts
from eks_inference_tools.reading.scalars import quantities, whole
from eks_inference_tools.simulate.control_plane.api import Api, Object
from eks_inference_tools.simulate.stand_ins.loop import Seen, condition, conditions, set_status
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, table, text

_CHART = "karpenter"

# Karpenter waits until no pod has come for the idle duration, or the first one has waited for the maximum (BATCH_IDLE_DURATION,
# BATCH_MAX_DURATION).
_IDLE_SECONDS = 1.0
_MOST_SECONDS = 10.0

# The spec of a pod that tolerates every node.
_ANYWHERE = {"tolerations": [{"operator": "Exists"}]}

# Taints of starting nodes. Karpenter places pods on these nodes anyway.
_STARTING = ("node.cloudprovider.kubernetes.io/uninitialized", "node.kubernetes.io/not-ready")


class Karpenter:
    """Runs the NodePools of a graph. If the graph installs Karpenter's chart, this waits until the chart's pods run."""

    title = "the stand-in of Karpenter"

    def __init__(self, graph: Graph, clock: Callable[[], float] = time.monotonic) -> None:
        self._kinds = karpenter_kinds(graph)
        installed = [chart for chart in charts(graph) if chart.name == _CHART]
        self._releases = [chart.release for chart in installed]
        # A Karpenter outside the graph is taken to have the feature gate.
        self._keeps_fixed_pools = all(
            at(chart.values, "settings", "featureGates", "staticCapacity") is True for chart in installed
        )
        self._batch = _Batch(clock)

    @property
    def reads(self) -> tuple[str, ...]:
        if not self._kinds:
            return ()
        return (PODS, NODES, NODE_POOLS, NODE_CLASSES, DAEMON_SETS, VOLUME_CLAIMS, VOLUMES, STORAGE_CLASSES)

    def reconcile(self, seen: Seen, api: Api) -> None:
        if not self._kinds:
            return
        running = {labels_of(pod).get(STANDS_IN_FOR_LABEL) for pod in seen[PODS] if at(pod, "status", "phase") == "Running"}
        if not running.issuperset(self._releases):
            return
        for item in (*seen[NODE_POOLS], *seen[NODE_CLASSES]):
            _judge(item, seen, api)
        pools = {name_of(pool): whole(at(pool, "spec", "replicas")) for pool in seen[NODE_POOLS] if not is_leaving(pool)}
        if self._keeps_fixed_pools:
            for node in fixed(pools, self._kinds, seen[NODES]):
                api.create(manifest(node))
        pods = list(_pods_to_place(seen))
        if not self._batch.is_complete(pods):
            return
        following = {name for name, replicas in pools.items() if replicas is None}
        daemons = [PodSpec(at(one, "spec", "template", "spec")) for one in seen[DAEMON_SETS] if not is_leaving(one)]
        starts = choose(
            pods,
            [kind for kind in self._kinds if kind.shape.pool in following],
            daemons,
            list(_rooms(seen, daemons)),
            used=_used(seen[NODES], self._kinds),
            names=(name_of(node) for node in seen[NODES]),
        )
        for start in starts:
            api.create(manifest(start.node))


class _Batch:
    """Collects pending pods, which Karpenter handles in batches."""

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
        complete = bool(waiting) and (now - self._changed >= _IDLE_SECONDS or now - self._first >= _MOST_SECONDS)
        if complete:
            self._first = now
        return complete


def _judge(item: Object, seen: Seen, api: Api) -> None:
    """Marks a NodePool or EC2NodeClass as ready, and counts the nodes of a NodePool."""
    if is_leaving(item):
        return
    now = conditions(item, [condition("Ready", True, "Ready", "")])
    status: dict[str, Any] = {**table(item.get("status")), "conditions": now}
    if item.get("kind") == "NodePool":
        status["nodes"] = sum(labels_of(node).get(KARPENTER_POOL_LABEL) == name_of(item) for node in seen[NODES])
    set_status(api, item, status)


# -- pods ------------------------------------------------------------------------------------------------------------------------


def _pods_to_place(seen: Seen) -> Iterator[PodToPlace]:
    """Yields unschedulable pods, without those of DaemonSets and those whose volumes are not known yet."""
    claims = {identity_of(claim): claim for claim in seen[VOLUME_CLAIMS]}
    volumes = {name_of(volume): volume for volume in seen[VOLUMES]}
    late = {name_of(one) for one in seen[STORAGE_CLASSES] if one.get("volumeBindingMode") == "WaitForFirstConsumer"}
    for pod in seen[PODS]:
        if not _is_unschedulable(pod):
            continue
        namespace, pod_name = identity_of(pod)
        spec = PodSpec(pod.get("spec"))
        names = [*spec.claims, *(f"{pod_name}-{volume}" for volume in spec.ephemeral_volumes)]
        found = [_demanded(claims.get((namespace, name)), volumes, late) for name in names]
        known = tuple(one for one in found if one)
        if len(known) == len(found):
            yield _pod(pod, known)


def _is_unschedulable(pod: Object) -> bool:
    said = condition_of(pod, "PodScheduled") or {}
    verdict = said.get("status"), said.get("reason")
    return verdict == ("False", "Unschedulable") and not (node_of(pod) or is_leaving(pod) or _is_of_daemon_set(pod))


def _is_of_daemon_set(pod: Object) -> bool:
    return at(controller_of(pod), "kind") == "DaemonSet"


def _demanded(claim: Object | None, volumes: Mapping[str, Object], late: set[str]) -> PodSpec | None:
    """Returns what a claim's volume demands of a node, as the spec of a pod that demands only this; None if still unknown."""
    if claim is None:
        return None
    bound = text(at(claim, "spec", "volumeName"))
    if not bound:
        return PodSpec(_ANYWHERE) if text(at(claim, "spec", "storageClassName")) in late else None
    if bound not in volumes:
        return None
    required = at(volumes[bound], "spec", "nodeAffinity", "required")
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return PodSpec({**_ANYWHERE, "affinity": affinity} if required else _ANYWHERE)


def _pod(pod: Object, volumes: tuple[PodSpec, ...] = ()) -> PodToPlace:
    namespace, name = identity_of(pod)
    uid = text(at(pod, "metadata", "uid")) or f"{namespace}/{name}"
    return PodToPlace(uid, name, PodSpec(pod.get("spec")), labels_of(pod), namespace, volumes)


# -- nodes -----------------------------------------------------------------------------------------------------------------------


def _rooms(seen: Seen, daemons: Sequence[PodSpec]) -> Iterator[Room]:
    """Yields the free room on existing nodes, as if all DaemonSets ran and Karpenter's nodes already offered their devices."""
    on: dict[str, list[Object]] = {}
    for pod in seen[PODS]:
        if not has_ended(pod) and not _is_of_daemon_set(pod):
            on.setdefault(node_of(pod), []).append(pod)
    for node in seen[NODES]:
        if is_leaving(node) or at(node, "spec", "unschedulable") is True:
            continue
        labels = labels_of(node)
        shape = exact_shape(labels, (taint for taint in taints_of(node) if taint.key not in _STARTING))
        free = quantities(at(node, "status", "allocatable"))
        if KARPENTER_POOL_LABEL in labels:
            free |= quantities(hardware_of(node))
        add(free, overhead(shape, daemons), -1)
        room = Room(shape, free)
        for pod in on.get(name_of(node), ()):
            room.put(_pod(pod))
        yield room


def _used(nodes: Iterable[Object], kinds: Iterable[NodeKind]) -> dict[str, dict[str, Decimal]]:
    """Returns how much of its limits each NodePool uses."""
    by_type = {(kind.shape.pool, kind.instance.name): counted(kind) for kind in kinds}
    used: dict[str, dict[str, Decimal]] = {}
    for node in nodes:
        labels = labels_of(node)
        pool = text(labels.get(KARPENTER_POOL_LABEL))
        amounts = by_type.get((pool, text(labels.get(INSTANCE_TYPE_LABEL))), quantities(at(node, "status", "capacity")))
        if pool:
            add(used.setdefault(pool, {}), amounts)
    return used
