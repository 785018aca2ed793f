"""Reads what a recorded graph says of the nodes of its pools beyond their shapes: disks, kubelet settings, zones. Pure.

Sources: EKS user guide, "Create a managed node group", "How maxPods is determined", "Assign more IP addresses to nodes with
prefixes"; EKS API, CreateNodegroup (diskSize); aws/karpenter-provider-aws 1d927085, pkg/providers/instancetype/types.go.
"""

import re
from dataclasses import dataclass
from functools import cached_property

from eks_inference.catalog import zones as catalog_zones
from eks_inference.catalog.instances import InstanceType
from eks_inference.place.placement import ZONE_ID_LABEL, ZONE_LABEL
from eks_inference_tools.placing.placeholders import region_of
from eks_inference_tools.reading.machines import GIB, Subnets
from eks_inference_tools.reading.node_groups import NodeGroup, UserData, node_groups
from eks_inference_tools.reading.node_pools import NodePool, node_pools
from eks_inference_tools.reading.node_shapes import shapes_of_group, shapes_of_node_pool
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
