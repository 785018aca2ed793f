"""Nodes as EKS and Karpenter would start them, worked out from a recorded graph. Pure.

Sizes come from the catalog, with the reservations that ``pools/plan.py`` reckons with; all else from the graph. What the graph
does not tell is said by ``unsimulated.py``, and nodes that would have to be guessed are left out.

Sources: awslabs/amazon-eks-ami 81fec2e8, nodeadm/internal/kubelet (reservations, labels); EKS user guide, "Run machine learning
training on Amazon EKS with Elastic Fabric Adapter" (huge pages); aws/karpenter-provider-aws 1d927085,
pkg/providers/instancetype/types.go (labels).
"""

import hashlib
import json
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.tables import version_numbers
from eks_inference.placement import CAPACITY_TYPE_LABEL, HOSTNAME_LABEL, NODE_GROUP_LABEL, Taint
from eks_inference.pools.plan import allocatable
from eks_inference_tools.reading.expressions import Expression, Values
from eks_inference_tools.reading.machines import GIB
from eks_inference_tools.reading.node_shapes import NodeShape
from eks_inference_tools.simulate.world.node_pools import KarpenterPool, ManagedGroup, Zone, karpenter_pools, managed_groups
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, text

DEVICES = (DEVICE_RESOURCE, CORE_RESOURCE, GPU_RESOURCE, EFA_RESOURCE)
"""Resources that a node has once a device plugin offers them."""
HARDWARE_ANNOTATION = "eks-inference/hardware"
"""On a simulated node: its devices as JSON, which a plugin would find in the machine."""

_REGION_LABEL = "topology.kubernetes.io/region"
_KARPENTER_LABEL = "karpenter.k8s.aws/"
_KARPENTER_DEVICES = {"neuron": ("accelerator", "aws"), "nvidia": ("gpu", "nvidia")}

# Karpenter takes capacity that is paid for already, then the cheaper kind (Karpenter, "NodePools").
_CAPACITY_ORDER = ("reserved", "spot", "on-demand")

# nodeadm's kubeReserved and evictionHard of disks.
_DISK_RESERVED = GIB
_DISK_EVICTION_PERCENT = 10

# What the EFA software of the accelerated images sets aside, in pages of 2 MiB.
_EFA_HUGE_PAGES = 5128

# From this version on nodeadm labels nodes with GPUs.
_GPU_LABEL = "nvidia.com/gpu.present"
_GPU_LABEL_SINCE = (1, 35)


@dataclass(frozen=True, eq=False)
class SimulatedNode:
    """A node that a simulation starts.

    ``capacity`` and ``allocatable`` are without ``devices``, which come once the pod of their plugin runs on the node.
    """

    name: str
    pool: str
    type_name: str
    shape: NodeShape
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    devices: Mapping[str, int]
    zone: Zone


@dataclass(frozen=True, eq=False)
class NodeKind:
    """Nodes of one instance type of one pool. ``taints`` hold those that only ask pods to stay away, too; ``limits`` and
    ``weight`` are of Karpenter's pool.
    """

    shape: NodeShape
    instance: InstanceType
    taints: tuple[Taint, ...]
    disk_bytes: int
    max_pods: int
    region: str
    zones: tuple[Zone, ...]
    huge_pages: int = 0
    limits: Mapping[str, str] = field(default_factory=dict)
    weight: int = 0
    efa_on_request: bool = False
    """Whether a node has its EFA interfaces only when the pods that it is started for ask for them."""

    @cached_property
    def allocatable(self) -> Mapping[str, str]:
        """What pods can use before any DaemonSet, without devices."""
        room = allocatable(self.instance)
        disk = self.disk_bytes * (100 - _DISK_EVICTION_PERCENT) // 100 - _DISK_RESERVED
        return {"cpu": f"{room.cpu_millis}m", "memory": f"{room.memory_mib}Mi", "ephemeral-storage": str(disk), **self._counts}

    @cached_property
    def capacity(self) -> Mapping[str, str]:
        """What EC2 sells. A guest sees a little less memory, which the allocatable memory takes into account."""
        cpu, memory = str(self.instance.vcpus), f"{self.instance.memory_mib}Mi"
        return {"cpu": cpu, "memory": memory, "ephemeral-storage": str(self.disk_bytes), **self._counts}

    @cached_property
    def _counts(self) -> Mapping[str, str]:
        # Huge pages are not taken off the memory, as a kubelet would: the guest's share with which that is reckoned is lower
        # than a node's true memory by more than this.
        huge_pages = {"hugepages-2Mi": f"{2 * self.huge_pages}Mi"} if self.huge_pages else {}
        return {"pods": str(self.max_pods), **huge_pages}

    @cached_property
    def devices(self) -> Mapping[str, int]:
        """Devices of a node by resource name, without those it has none of."""
        return {name: number for name in DEVICES if (number := int(self.shape.offers.get(name, 0)))}

    def node(self, name: str, zone: Zone) -> SimulatedNode:
        """A node of this kind. Where the pool leaves a label's value open it has the one that is preferred."""
        labels = {key: by_preference(key, values)[0] for key, values in self.shape.labels.items() if values}
        labels |= {HOSTNAME_LABEL: name, _REGION_LABEL: self.region, **zone.labels()}
        return SimulatedNode(
            name=name,
            pool=self.shape.pool,
            type_name=self.instance.name,
            shape=self.shape,
            labels=dict(sorted(labels.items())),
            taints=self.taints,
            capacity=self.capacity,
            allocatable=self.allocatable,
            devices=self.devices,
            zone=zone,
        )


def managed_nodes(graph: Graph) -> tuple[SimulatedNode, ...]:
    """The nodes of the managed node groups: each group's desired size, of its first instance type, over its zones in turn."""
    nodes: dict[str, SimulatedNode] = {}
    for group in managed_groups(graph):
        for kind in managed_kinds(group)[:1]:
            for number in range(group.node_group.sizes[1] or 0):
                name = node_name(group.node_group.pool, nodes)
                nodes[name] = kind.node(name, kind.zones[number % len(kind.zones)])
    return tuple(nodes.values())


def managed_kinds(group: ManagedGroup) -> tuple[NodeKind, ...]:
    """The nodes that a group may start, the preferred kind first; none of types that the catalog does not know."""
    found, of_eks = [], not group.node_group.own_image
    for shape in group.shapes:
        if shape.instance is None:
            continue
        instance = _with_logical_cores(shape.instance, group.user_data.logical_cores)
        labels: dict[str, Values] = {**shape.labels, NODE_GROUP_LABEL: frozenset([group.node_group.name])}
        if instance.nvidia and of_eks and _labels_gpus(group.node_group.version):
            labels[_GPU_LABEL] = frozenset(["true"])
        huge_pages = _EFA_HUGE_PAGES if shape.efa and instance.accelerator and of_eks else 0
        found.append(
            NodeKind(
                shape=replace(shape, instance=instance, labels=labels),
                instance=instance,
                taints=group.node_group.taints,
                disk_bytes=group.disk_bytes(instance),
                max_pods=group.max_pods,
                region=group.region,
                zones=group.zones,
                huge_pages=huge_pages if group.user_data.huge_pages is None else group.user_data.huge_pages,
            )
        )
    return tuple(found)


def karpenter_kinds(graph: Graph) -> tuple[NodeKind, ...]:
    """The nodes that Karpenter may start: every instance type of the catalog that a NodePool's requirements allow."""
    return tuple(
        kind
        for pool in karpenter_pools(graph)
        for shape in pool.shapes
        if shape.instance and (kind := _karpenter_kind(pool, shape, shape.instance)) is not None
    )


def node_name(pool: str, taken: Container[str]) -> str:
    """A name for the pool's next node that Kubernetes takes (RFC 1123) and no other has."""
    slug = re.sub(r"[^a-z0-9]+", "-", pool.lower()).strip("-")[:50].strip("-") or "node"
    return next(name for number in count(1) if (name := f"{slug}-{number}") not in taken)


def manifest(node: SimulatedNode) -> dict[str, Any]:
    """The v1 Node as its kubelet would register it; it is not ready yet."""
    digest = hashlib.sha256(f"{node.pool}/{node.name}".encode()).hexdigest()
    taints = [{key: value for key, value in taint.manifest().items() if value} for taint in node.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": dict(node.labels),
            **({"annotations": {HARDWARE_ANNOTATION: json.dumps(dict(node.devices))}} if node.devices else {}),
        },
        "spec": {"providerID": f"aws:///{node.zone.name}/i-0{digest[:16]}", **({"taints": taints} if taints else {})},
        "status": {"capacity": dict(node.capacity), "allocatable": dict(node.allocatable)},
    }


def hardware_of(node: Mapping[str, Any]) -> dict[str, int]:
    """The devices that are in a node, by resource name, whether or not a plugin offers them yet."""
    return json.loads(text(at(node, "metadata", "annotations", HARDWARE_ANNOTATION)) or "{}")


def _karpenter_kind(pool: KarpenterPool, shape: NodeShape, instance: InstanceType) -> NodeKind | None:
    """The kind of a shape; None where the requirements exclude what the type is."""
    facts: dict[str, Values] = {key: frozenset([value]) for key, value in _karpenter_labels(pool, instance).items()}
    true_shape = replace(shape, labels={**shape.labels, **facts})
    if not all(true_shape.can_have(one) for one in pool.node_pool.requirements):
        return None
    zones = tuple(
        zone
        for zone in pool.zones
        if all(true_shape.can_have(Expression(key, "In", (value,))) for key, value in zone.labels().items())
    )
    if not zones:
        return None
    return NodeKind(
        shape=true_shape,
        instance=instance,
        taints=pool.node_pool.taints,
        disk_bytes=pool.disk_bytes(instance),
        max_pods=pool.max_pods(instance),
        region=pool.region,
        zones=zones,
        limits=pool.limits,
        weight=pool.node_pool.weight,
        efa_on_request=not pool.has_efa,
    )


def _karpenter_labels(pool: KarpenterPool, instance: InstanceType) -> dict[str, str]:
    """What Karpenter itself puts on a node, as far as the catalog knows it."""
    family, _, size = instance.name.partition(".")
    about = {"family": family, "size": size, "cpu": instance.vcpus, "memory": instance.memory_mib}
    # Letters behind the generation belong to the family only.
    if parts := re.match(r"([a-z]+)(\d+)", family):
        about |= {"category": parts[1], "generation": parts[2]}
    if instance.nvme_gb:
        about["local-nvme"] = instance.nvme_gb
    if instance.accelerator:
        noun, maker = _KARPENTER_DEVICES[instance.accelerator]
        about |= {f"{noun}-manufacturer": maker, f"{noun}-count": instance.devices}
    return {
        "karpenter.sh/initialized": "true",
        "karpenter.sh/registered": "true",
        **({f"{_KARPENTER_LABEL}ec2nodeclass": pool.node_pool.class_name} if pool.node_pool.class_name else {}),
        **{f"{_KARPENTER_LABEL}instance-{key}": str(value) for key, value in about.items()},
    }


def _with_logical_cores(instance: InstanceType, logical_cores: int | None) -> InstanceType:
    if not logical_cores or not instance.physical_cores_per_device:
        return instance
    return replace(instance, cores_per_device=instance.physical_cores_per_device // logical_cores)


def _labels_gpus(version: str) -> bool:
    return re.fullmatch(r"\d+\.\d+", version) is not None and version_numbers(version) >= _GPU_LABEL_SINCE


def by_preference(key: str, values: Iterable[str]) -> list[str]:
    """Values that a pool leaves open for a label, the one first that Karpenter takes if it may."""
    order = _CAPACITY_ORDER if key == CAPACITY_TYPE_LABEL else ()
    return sorted(values, key=lambda value: (order.index(value) if value in order else len(order), value))
