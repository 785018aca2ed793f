"""What a recorded graph says of the nodes of its pools, beyond their shapes: disks, kubelet settings, zones. Pure.

Sources: EKS user guide, "Create a managed node group", "How maxPods is determined", "Assign more IP addresses to nodes with
prefixes"; EKS API, CreateNodegroup (diskSize); aws/karpenter-provider-aws 1d927085, pkg/providers/instancetype/types.go.
"""

import re
from dataclasses import dataclass
from functools import cached_property

from eks_inference.catalog import zones as catalog_zones
from eks_inference.catalog.instances import InstanceType
from eks_inference.placement import ZONE_ID_LABEL, ZONE_LABEL
from eks_inference_tools.reading.addons import addons
from eks_inference_tools.reading.machines import GIB, Subnets, known
from eks_inference_tools.reading.node_groups import NodeGroup, node_groups
from eks_inference_tools.reading.node_pools import NodePool, node_pools
from eks_inference_tools.reading.node_shapes import shapes_of_group, shapes_of_node_pool
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.reading.user_data import UserData
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, table, text

# Where neither the graph nor a provider tells the region: as good as any other.
_MADE_UP_REGION = "us-west-2"

# maxPods that EKS allows its own images in managed node groups, below and from this number of vCPUs on.
_FEWER_PODS, _MORE_PODS, _MORE_PODS_FROM_VCPUS = 110, 250, 30
# Addresses in a prefix (Amazon VPC CNI, ENABLE_PREFIX_DELEGATION).
_PREFIX = 16
# The root disk of AL2023 images where nobody says another size.
_DEFAULT_DISK_GIB = 20


@dataclass(frozen=True)
class Zone:
    """An availability zone. Its name is made up where only the id is known, as the letters differ between accounts."""

    name: str
    id: str = ""

    def labels(self) -> dict[str, str]:
        return {ZONE_LABEL: self.name, **({ZONE_ID_LABEL: self.id} if self.id else {})}


class ManagedGroup:
    """A managed node group as a simulation starts it. ``shapes`` has one for each instance type, the preferred first."""

    def __init__(self, graph: Graph, group: NodeGroup) -> None:
        self.node_group = group
        self.shapes = shapes_of_group(group)
        self.user_data = group.template.user_data if group.template else UserData()
        self.region = region_of(graph, group.resource)
        self.zones, self.zones_known = _zones(group.subnets, self.region)
        self._prefixes = _delegates_prefixes(graph)

    def disk_bytes(self, instance: InstanceType) -> int:
        return _pods_disk(instance, self.node_group.disk_gib, local=self.user_data.raid)

    @cached_property
    def max_pods(self) -> int:
        """EKS's own reckoning and bound with its own images, else nodeadm's. One for all instance types: that of the least."""
        return min((self._max_pods(shape.instance) for shape in self.shapes if shape.instance), default=0)

    def _max_pods(self, instance: InstanceType) -> int:
        given = whole(self.user_data.kubelet.get("maxPods"))
        if self.node_group.own_image:
            return given or instance.max_pods
        bound = _FEWER_PODS if instance.vcpus < _MORE_PODS_FROM_VCPUS else _MORE_PODS
        addresses = (instance.max_pods - 2) * _PREFIX + 2 if self._prefixes else instance.max_pods
        return min(given or addresses, bound)


class KarpenterPool:
    """A NodePool as a simulation starts it. ``shapes`` has one for each instance type that the requirements may allow."""

    def __init__(self, graph: Graph, pool: NodePool) -> None:
        self.node_pool = pool
        self.node_class = pool.node_class
        self.shapes = shapes_of_node_pool(pool)
        self.kubelet = pool.node_class.kubelet if pool.node_class else {}
        self.limits = {key: text(value) for key, value in table(pool.limits).items() if not is_token(value)}
        self.region = region_of(graph, None)
        self.zones, self.zones_known = _zones(pool.subnets, self.region)

    @property
    def has_efa(self) -> bool:
        """Whether the class itself gives nodes EFA interfaces."""
        return bool(self.node_class and self.node_class.efa_interfaces)

    def disk_bytes(self, instance: InstanceType) -> int:
        disk = self.node_class.root_disk if self.node_class else None
        local = self.node_class is not None and self.node_class.uses_instance_store
        return _pods_disk(instance, disk.gib if disk else None, local=local)

    def max_pods(self, instance: InstanceType) -> int:
        return whole(self.kubelet.get("maxPods")) or instance.max_pods


def managed_groups(graph: Graph) -> tuple[ManagedGroup, ...]:
    return tuple(ManagedGroup(graph, group) for group in node_groups(graph))


def karpenter_pools(graph: Graph) -> tuple[KarpenterPool, ...]:
    return tuple(KarpenterPool(graph, pool) for pool in node_pools(graph))


def region_of(graph: Graph, resource: Resource | None) -> str:
    """The region of a resource, else of the graph's AWS resources, else a made-up one."""
    own = graph.by_urn.get(resource.provider) if resource else None
    providers = (*((own,) if own else ()), *graph.of_type("pulumi:providers:aws"))
    return next((found for one in providers if (found := known(one.inputs.get("region")))), _MADE_UP_REGION)


def _delegates_prefixes(graph: Graph) -> bool:
    """Whether the VPC CNI add-on of the graph gives nodes prefixes instead of single addresses."""
    return any(
        text(at(addon.configuration, "env", "ENABLE_PREFIX_DELEGATION")) == "true"
        for addon in addons(graph)
        if addon.name == "vpc-cni"
    )


def _pods_disk(instance: InstanceType, gib: int | None, *, local: bool) -> int:
    """Bytes of the disk that pods write to: the instance store where there is one and it is used, else the root disk."""
    return instance.nvme_gb * 10**9 if local and instance.nvme_gb else (gib or _DEFAULT_DISK_GIB) * GIB


def _zones(subnets: Subnets, region: str) -> tuple[tuple[Zone, ...], bool]:
    """The zones of the subnets; and whether the graph knows them."""
    found = [Zone(one.zone or _zone_name(one.zone_id, region), one.zone_id) for one in subnets.made if one.zone or one.zone_id]
    if found and len(found) >= subnets.named:
        return tuple(dict.fromkeys(found)), True
    made_up = catalog_zones.region_zone_ids(region) if region in catalog_zones.regions() else ("made-up-az1",)
    return tuple(Zone(_zone_name(id_, region), id_) for id_ in made_up[: max(subnets.named, 1)]), False


def _zone_name(zone_id: str, region: str) -> str:
    """A name for a zone of that id: ``us-west-2d`` for ``usw2-az4``."""
    number = re.search(r"-az([1-9])$", zone_id)
    return f"{region}{'abcdefghi'[int(number[1]) - 1]}" if number else f"{region}-{zone_id}"
