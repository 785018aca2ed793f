"""Works out the nodes that EKS and Karpenter would start for a recorded graph, with their disks, kubelet settings and zones.
Pure.

Sizes come from the catalog, with the reservations of ``pools/plan.py``; everything else comes from the graph. Nodes that would
have to be guessed are left out; ``unsimulated.py`` reports what the graph does not tell.

Sources: awslabs/amazon-eks-ami 81fec2e8, nodeadm/internal/kubelet (reservations, labels); EKS user guide, "Run machine learning
training on Amazon EKS with Elastic Fabric Adapter" (huge pages), "Create a managed node group", "How maxPods is determined",
"Assign more IP addresses to nodes with prefixes"; EKS API, CreateNodegroup (diskSize); aws/karpenter-provider-aws 1d927085,
pkg/providers/instancetype/types.go (labels, disks).
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference.catalog import zones as catalog_zones
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.tables import version_numbers
from eks_inference.place.nodes import allocatable
from eks_inference.place.placement import CAPACITY_TYPE_LABEL, HOSTNAME_LABEL, NODE_GROUP_LABEL, ZONE_ID_LABEL, ZONE_LABEL, Taint
from eks_inference_tools.placing.placeholders import region_of
from eks_inference_tools.reading.devices import CLAIMED
from eks_inference_tools.reading.expressions import Expression, Values
from eks_inference_tools.reading.machines import GIB, Subnets
from eks_inference_tools.reading.node_groups import NodeGroup, UserData, node_groups
from eks_inference_tools.reading.node_pools import NodePool, node_pools
from eks_inference_tools.reading.node_shapes import NodeShape, shapes_of_group, shapes_of_node_pool
from eks_inference_tools.reading.releases import addons
from eks_inference_tools.reading.scalars import whole
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, is_token, table, text

# EKS's upper bounds of maxPods for its own images in managed node groups: below, and from, this number of vCPUs.
_FEWER_PODS, _MORE_PODS, _MORE_PODS_FROM_VCPUS = 110, 250, 30
# Addresses in a prefix (Amazon VPC CNI, ENABLE_PREFIX_DELEGATION).
_PREFIX = 16
DEFAULT_DISK_GIB = 20
"""The default root disk of AL2023 images."""

DEVICES = (DEVICE_RESOURCE, CORE_RESOURCE, GPU_RESOURCE, EFA_RESOURCE, *CLAIMED)
"""Extended resources that a node has once a device plugin offers them, and devices that a driver offers for claims."""
HARDWARE_ANNOTATION = "eks-inference/hardware"
"""On a simulated node: the devices that a plugin or driver would find in the machine, as JSON."""

_REGION_LABEL = "topology.kubernetes.io/region"
_KARPENTER_LABEL = "karpenter.k8s.aws/"
_KARPENTER_DEVICES = {"neuron": ("accelerator", "aws"), "nvidia": ("gpu", "nvidia")}

# Karpenter prefers prepaid capacity, then the cheaper capacity type (Karpenter, "NodePools").
_CAPACITY_ORDER = ("reserved", "spot", "on-demand")

# nodeadm's kubeReserved and evictionHard for disks.
_DISK_RESERVED = GIB
_DISK_EVICTION_PERCENT = 10

# Huge pages of 2 MiB that the EFA software of the accelerated images reserves.
_EFA_HUGE_PAGES = 5128

# nodeadm labels nodes with GPUs from this Kubernetes version on.
_GPU_LABEL = "nvidia.com/gpu.present"
_GPU_LABEL_SINCE = (1, 35)


@dataclass(frozen=True)
class Zone:
    """An availability zone. If only the id is known the name is made up: its letter differs between accounts."""

    name: str
    id: str = ""

    def labels(self) -> dict[str, str]:
        return {ZONE_LABEL: self.name, **({ZONE_ID_LABEL: self.id} if self.id else {})}


class ManagedGroup:
    """A managed node group in a simulation. ``shapes`` has one entry per instance type, the preferred one first."""

    def __init__(self, graph: Graph, group: NodeGroup) -> None:
        self.node_group = group
        self.shapes = shapes_of_group(group)
        self.user_data = group.template.user_data if group.template else UserData()
        self.region = region_of(graph, group.resource)
        self.zones, self.zones_known = _zones(group.subnets, self.region)
        self._prefixes = any(
            text(at(addon.configuration, "env", "ENABLE_PREFIX_DELEGATION")) == "true"
            for addon in addons(graph)
            if addon.name == "vpc-cni"
        )

    def disk_bytes(self, instance: InstanceType) -> int:
        return _pods_disk(instance, self.node_group.disk_gib, local=self.user_data.raid)

    @cached_property
    def max_pods(self) -> int:
        """The lowest maxPods of all instance types: computed and capped by EKS for its own images, by nodeadm for others."""
        return min((self._max_pods(shape.instance) for shape in self.shapes if shape.instance), default=0)

    def _max_pods(self, instance: InstanceType) -> int:
        given = whole(self.user_data.kubelet.get("maxPods"))
        if self.node_group.own_image:
            return given or instance.max_pods
        bound = _FEWER_PODS if instance.vcpus < _MORE_PODS_FROM_VCPUS else _MORE_PODS
        addresses = (instance.max_pods - 2) * _PREFIX + 2 if self._prefixes else instance.max_pods
        return min(given or addresses, bound)


class KarpenterPool:
    """A NodePool in a simulation. ``shapes`` has one entry per instance type that the requirements may allow."""

    def __init__(self, graph: Graph, pool: NodePool) -> None:
        self.node_pool = pool
        self.shapes = shapes_of_node_pool(pool)
        self.kubelet = pool.node_class.kubelet if pool.node_class else {}
        self.limits = {key: text(value) for key, value in table(pool.limits).items() if not is_token(value)}
        self.region = region_of(graph, None)
        self.zones, self.zones_known = _zones(pool.subnets, self.region)

    def disk_bytes(self, instance: InstanceType) -> int:
        node_class = self.node_pool.node_class
        if node_class is None:
            return _pods_disk(instance, None, local=False)
        disk = node_class.root_disk
        return _pods_disk(instance, disk.gib if disk else None, local=node_class.uses_instance_store)


def managed_groups(graph: Graph) -> tuple[ManagedGroup, ...]:
    return tuple(ManagedGroup(graph, group) for group in node_groups(graph))


def karpenter_pools(graph: Graph) -> tuple[KarpenterPool, ...]:
    return tuple(KarpenterPool(graph, pool) for pool in node_pools(graph))


def _pods_disk(instance: InstanceType, gib: int | None, *, local: bool) -> int:
    """Returns the bytes of the disk that pods write to: the instance store if it exists and is used, else the root disk."""
    return instance.nvme_gb * 10**9 if local and instance.nvme_gb else (gib or DEFAULT_DISK_GIB) * GIB


def _zones(subnets: Subnets, region: str) -> tuple[tuple[Zone, ...], bool]:
    """Returns the zones of the subnets, and whether the graph knows them."""
    found = [Zone(one.zone or _zone_name(one.zone_id, region), one.zone_id) for one in subnets.made if one.zone or one.zone_id]
    if found and len(found) >= subnets.named:
        return tuple(dict.fromkeys(found)), True
    made_up = catalog_zones.region_zone_ids(region) if region in catalog_zones.regions() else ("made-up-az1",)
    return tuple(Zone(_zone_name(id_, region), id_) for id_ in made_up[: max(subnets.named, 1)]), False


def _zone_name(zone_id: str, region: str) -> str:
    """Returns a name for a zone id: ``us-west-2d`` for ``usw2-az4``."""
    number = re.search(r"-az([1-9])$", zone_id)
    return f"{region}{'abcdefghi'[int(number[1]) - 1]}" if number else f"{region}-{zone_id}"


@dataclass(frozen=True, eq=False)
class NodeKind:
    """The nodes of one instance type in one pool.

    ``taints`` includes those with the effect PreferNoSchedule. ``limits`` and ``weight`` are those of a NodePool. Nodes with
    ``efa_on_request`` get EFA interfaces only if the pods that they are started for request them.
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

    @cached_property
    def allocatable(self) -> Mapping[str, str]:
        """What pods, DaemonSets included, can use; without devices."""
        room = allocatable(self.instance, self.shape.kubelet)
        disk = self.disk_bytes * (100 - _DISK_EVICTION_PERCENT) // 100 - _DISK_RESERVED
        return self._amounts(f"{room.cpu_millis}m", room.memory_mib, disk)

    @cached_property
    def capacity(self) -> Mapping[str, str]:
        """What EC2 sells. A guest sees slightly less memory, which ``allocatable`` takes into account."""
        return self._amounts(str(self.instance.vcpus), self.instance.memory_mib, self.disk_bytes)

    def _amounts(self, cpu: str, memory_mib: int, disk_bytes: int) -> Mapping[str, str]:
        found = {"cpu": cpu, "memory": f"{memory_mib}Mi", "ephemeral-storage": str(disk_bytes), "pods": str(self.max_pods)}
        # A kubelet subtracts huge pages from memory. Here the conservative estimate of a guest's memory already is lower than
        # the true memory by more than that.
        return found | ({"hugepages-2Mi": f"{2 * self.huge_pages}Mi"} if self.huge_pages else {})

    @cached_property
    def devices(self) -> Mapping[str, int]:
        """Devices of a node by resource name; only those that it has."""
        return {name: number for name in DEVICES if (number := int(self.shape.offers.get(name, 0)))}

    def node(self, name: str, zone: Zone) -> "SimulatedNode":
        """Returns a node of this kind. A label with several possible values gets the preferred one."""
        labels = {key: by_preference(key, values)[0] for key, values in self.shape.labels.items() if values}
        labels |= {HOSTNAME_LABEL: name, _REGION_LABEL: self.region, **zone.labels()}
        return SimulatedNode(name, self, zone, dict(sorted(labels.items())), self.devices)


@dataclass(frozen=True, eq=False)
class SimulatedNode:
    """A node that a simulation starts. It offers its ``devices`` once the pod of their plugin runs on it."""

    name: str
    kind: NodeKind
    zone: Zone
    labels: Mapping[str, str]
    devices: Mapping[str, int]


def desired_size(group: NodeGroup) -> int:
    return group.sizes[1] or 0


def managed_nodes(graph: Graph, size: Callable[[NodeGroup], int] = desired_size) -> tuple[SimulatedNode, ...]:
    """Returns the nodes of the managed node groups: each group's desired size, or another, spread over its zones."""
    nodes: list[SimulatedNode] = []
    names = NodeNames()
    for group in managed_groups(graph):
        if kind := _managed_kind(group):
            for number in range(size(group.node_group)):
                nodes.append(kind.node(names.new(group.node_group.pool), kind.zones[number % len(kind.zones)]))
    return tuple(nodes)


def _managed_kind(group: ManagedGroup) -> NodeKind | None:
    """Returns the nodes of a group's first instance type that the catalog knows, or None if it knows none."""
    known = [(shape, shape.instance) for shape in group.shapes if shape.instance]
    if not known:
        return None
    shape, instance = known[0]
    of_eks, cores = not group.node_group.own_image, group.user_data.logical_cores
    if cores and instance.physical_cores_per_device:
        instance = replace(instance, cores_per_device=instance.physical_cores_per_device // cores)
    labels: dict[str, Values] = {**shape.labels, NODE_GROUP_LABEL: frozenset([group.node_group.name])}
    version = group.node_group.version
    is_known = re.fullmatch(r"\d+\.\d+", version)
    if instance.nvidia and of_eks and is_known and version_numbers(version) >= _GPU_LABEL_SINCE:
        labels[_GPU_LABEL] = frozenset(["true"])
    huge_pages = _EFA_HUGE_PAGES if shape.efa and instance.accelerator and of_eks else 0
    return NodeKind(
        shape=replace(shape, instance=instance, labels=labels),
        instance=instance,
        taints=group.node_group.taints,
        disk_bytes=group.disk_bytes(instance),
        max_pods=group.max_pods,
        region=group.region,
        zones=group.zones,
        huge_pages=huge_pages if group.user_data.huge_pages is None else group.user_data.huge_pages,
    )


def karpenter_kinds(graph: Graph) -> tuple[NodeKind, ...]:
    """Returns the nodes that Karpenter may start: all instance types in the catalog that a NodePool's requirements allow."""
    return tuple(
        kind
        for pool in karpenter_pools(graph)
        for shape in pool.shapes
        if shape.instance and (kind := _karpenter_kind(pool, shape, shape.instance)) is not None
    )


class NodeNames:
    """Makes names of nodes: valid in Kubernetes (RFC 1123), each once, and none of those that are ``taken``."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._numbers: dict[str, Iterator[int]] = {}

    def new(self, pool: str) -> str:
        """Returns a name for the pool's next node."""
        slug = re.sub(r"[^a-z0-9]+", "-", pool.lower()).strip("-")[:50].strip("-") or "node"
        numbers = self._numbers.setdefault(slug, count(1))
        name = next(name for number in numbers if (name := f"{slug}-{number}") not in self._taken)
        self._taken.add(name)
        return name


def manifest(node: SimulatedNode) -> dict[str, Any]:
    """Returns the v1 Node that its kubelet would register, not yet ready."""
    digest = hashlib.sha256(f"{node.kind.shape.pool}/{node.name}".encode()).hexdigest()
    taints = [{key: value for key, value in taint.manifest().items() if value} for taint in node.kind.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": dict(node.labels),
            **({"annotations": {HARDWARE_ANNOTATION: json.dumps(dict(node.devices))}} if node.devices else {}),
        },
        "spec": {"providerID": f"aws:///{node.zone.name}/i-0{digest[:16]}", **({"taints": taints} if taints else {})},
        "status": {"capacity": dict(node.kind.capacity), "allocatable": dict(node.kind.allocatable)},
    }


def hardware_of(node: Mapping[str, Any]) -> dict[str, int]:
    """Returns the devices in a simulated node by resource name, whether or not a plugin offers them yet."""
    return json.loads(text(at(node, "metadata", "annotations", HARDWARE_ANNOTATION)) or "{}")


def _karpenter_kind(pool: KarpenterPool, shape: NodeShape, instance: InstanceType) -> NodeKind | None:
    """Returns the nodes of a shape, or None if the requirements exclude this instance type or all zones."""
    facts: dict[str, Values] = {key: frozenset([value]) for key, value in _karpenter_labels(pool, instance).items()}
    true_shape = replace(shape, labels={**shape.labels, **facts})
    if not all(true_shape.can_have(requirement) for requirement in pool.node_pool.requirements):
        return None
    zones = tuple(
        zone
        for zone in pool.zones
        if all(true_shape.can_have(Expression(key, "In", (value,))) for key, value in zone.labels().items())
    )
    if not zones:
        return None
    node_class = pool.node_pool.node_class
    return NodeKind(
        shape=true_shape,
        instance=instance,
        taints=pool.node_pool.taints,
        disk_bytes=pool.disk_bytes(instance),
        max_pods=whole(pool.kubelet.get("maxPods")) or instance.max_pods,
        region=pool.region,
        zones=zones,
        limits=pool.limits,
        weight=pool.node_pool.weight,
        efa_on_request=not (node_class and node_class.efa_interfaces),
    )


def _karpenter_labels(pool: KarpenterPool, instance: InstanceType) -> dict[str, str]:
    """Returns the labels that Karpenter itself adds to a node, as far as the catalog knows them."""
    family, _, size = instance.name.partition(".")
    about = {"family": family, "size": size, "cpu": instance.vcpus, "memory": instance.memory_mib}
    # Letters after the generation are part of the family only.
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


def by_preference(key: str, values: Iterable[str]) -> list[str]:
    """Sorts the possible values of a label; the one that Karpenter prefers comes first."""
    order = _CAPACITY_ORDER if key == CAPACITY_TYPE_LABEL else ()
    return sorted(values, key=lambda value: (order.index(value) if value in order else len(order), value))
