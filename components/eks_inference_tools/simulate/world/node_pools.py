"""What a recorded graph says of the nodes of its pools, beyond their shapes: disks, kubelet settings, zones. Pure.

Sources: EKS user guide, "Create a managed node group", "How maxPods is determined", "Assign more IP addresses to nodes with
prefixes"; EKS API, CreateNodegroup (diskSize); aws/karpenter-provider-aws 1d927085, pkg/providers/instancetype/types.go.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eks_inference.catalog import zones as catalog_zones
from eks_inference.catalog.instances import InstanceType
from eks_inference.placement import ZONE_ID_LABEL, ZONE_LABEL, Taint
from eks_inference_tools.reading.expected import ADDON_TYPE
from eks_inference_tools.reading.facts import LAUNCH_TEMPLATE_TYPE, NODE_CLASS_TYPE
from eks_inference_tools.reading.node_shapes import SUBNET_TYPE, NodeShape, efa_count, launch_template, node_shapes
from eks_inference_tools.reading.pods import quantity
from eks_inference_tools.reading.words import taint_effect
from eks_inference_tools.reading.workloads import whole
from eks_inference_tools.simulate.world.user_data import UserData, user_data
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, table, text

GIB = 2**30

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
    """A managed node group of a graph and its launch template. ``shapes`` has one for each instance type, the preferred first."""

    def __init__(self, graph: Graph, resource: Resource, shapes: tuple[NodeShape, ...]) -> None:
        self.graph = graph
        self.resource = resource
        self.shapes = shapes
        self.pool = shapes[0].pool
        self.name = _known(resource.inputs.get("nodeGroupName")) or text(resource.name)
        self.template = launch_template(resource, {one.urn: one.inputs for one in graph.of_type(LAUNCH_TEMPLATE_TYPE)})
        self.user_data: UserData = user_data(at(self.template, "userData"))
        self.region = region_of(graph, resource)
        self.zones, self.zones_known = _zones(graph, resource, "subnetIds", self.region)
        self.taints = taints(resource.inputs.get("taints"))

    @property
    def size(self) -> int | None:
        """Nodes it starts with; None when only a deployment knows."""
        return whole(at(self.resource.inputs.get("scalingConfig"), "desiredSize"))

    @property
    def own_image(self) -> bool:
        """Whether its image is, or may be, none of EKS."""
        given = at(self.template, "imageId") is not None or self.resource.inputs.get("amiType") == "CUSTOM"
        return self.template is None or given

    def disk_bytes(self, instance: InstanceType) -> int:
        disk = _disk_gib(at(self.template, "blockDeviceMappings")) or whole(self.resource.inputs.get("diskSize"))
        return _pods_disk(instance, disk, local=self.user_data.raid)

    @cached_property
    def max_pods(self) -> int:
        """EKS's own reckoning and bound with its own images, else nodeadm's. One for all instance types: that of the least."""
        return min((self._max_pods(shape.instance) for shape in self.shapes if shape.instance), default=0)

    def _max_pods(self, instance: InstanceType) -> int:
        given = whole(self.user_data.kubelet.get("maxPods"))
        if self.own_image:
            return given or instance.max_pods
        bound = _FEWER_PODS if instance.vcpus < _MORE_PODS_FROM_VCPUS else _MORE_PODS
        addresses = (instance.max_pods - 2) * _PREFIX + 2 if _delegates_prefixes(self.graph) else instance.max_pods
        return min(given or addresses, bound)


class KarpenterPool:
    """A NodePool of a graph and its EC2NodeClass. ``shapes`` has one for each instance type that the requirements may allow."""

    def __init__(self, graph: Graph, resource: Resource, shapes: tuple[NodeShape, ...]) -> None:
        spec = at(resource.inputs, "spec")
        classes = {text(at(one.inputs, "metadata", "name")): one for one in graph.of_type(NODE_CLASS_TYPE)}
        self.shapes = shapes
        self.pool = shapes[0].pool
        self.class_name = _known(at(spec, "template", "spec", "nodeClassRef", "name"))
        self.node_class = classes.get(self.class_name)
        self.class_spec = at(self.node_class.inputs, "spec") if self.node_class else None
        self.kubelet = table(at(self.class_spec, "kubelet"))
        self.requirements = items(at(spec, "template", "spec", "requirements"))
        self.taints = taints(at(spec, "template", "spec", "taints"))
        self.limits = {key: text(value) for key, value in table(at(spec, "limits")).items() if not is_token(value)}
        self.weight = whole(at(spec, "weight")) or 0
        self.region = region_of(graph, None)
        self.zones, self.zones_known = _zones(graph, self.node_class, "spec", self.region)

    @property
    def has_efa(self) -> bool:
        """Whether the class itself gives nodes EFA interfaces."""
        return bool(efa_count(self.class_spec))

    @property
    def own_image(self) -> bool:
        """Whether any image of the class is none that EKS publishes."""
        return any(at(term, "alias") is None for term in items(at(self.class_spec, "amiSelectorTerms")))

    def disk_bytes(self, instance: InstanceType) -> int:
        local = at(self.class_spec, "instanceStorePolicy") == "RAID0"
        return _pods_disk(instance, _disk_gib(at(self.class_spec, "blockDeviceMappings")), local=local)

    def max_pods(self, instance: InstanceType) -> int:
        return whole(self.kubelet.get("maxPods")) or instance.max_pods


def managed_groups(graph: Graph) -> tuple[ManagedGroup, ...]:
    return tuple(ManagedGroup(graph, pool, shapes) for pool, shapes in _pools(graph, by_karpenter=False))


def karpenter_pools(graph: Graph) -> tuple[KarpenterPool, ...]:
    return tuple(KarpenterPool(graph, pool, shapes) for pool, shapes in _pools(graph, by_karpenter=True))


def region_of(graph: Graph, resource: Resource | None) -> str:
    """The region of a resource, else of the graph's AWS resources, else a made-up one."""
    own = graph.by_urn.get(resource.provider) if resource else None
    providers = (*((own,) if own else ()), *graph.of_type("pulumi:providers:aws"))
    return next((known for one in providers if (known := _known(one.inputs.get("region")))), _MADE_UP_REGION)


def taints(value: Any) -> tuple[Taint, ...]:
    """All taints that are known, also those that only ask pods to stay away."""
    return tuple(
        Taint(text(at(one, "key")), text(at(one, "value")), effect)
        for one in items(value)
        if not any(is_token(inside) for inside in (one, at(one, "key"), at(one, "value")))
        and (effect := taint_effect(one)) in ("NoSchedule", "PreferNoSchedule", "NoExecute")
    )


def _pools(graph: Graph, *, by_karpenter: bool) -> Iterator[tuple[Resource, tuple[NodeShape, ...]]]:
    shapes: dict[str, list[NodeShape]] = {}
    for shape in node_shapes(graph):
        if shape.by_karpenter == by_karpenter:
            shapes.setdefault(shape.urn, []).append(shape)
    for urn, found in shapes.items():
        yield graph.by_urn[urn], tuple(found)


def _delegates_prefixes(graph: Graph) -> bool:
    """Whether the VPC CNI add-on of the graph gives nodes prefixes instead of single addresses."""
    return any(
        text(at(configuration_of(addon), "env", "ENABLE_PREFIX_DELEGATION")) == "true"
        for addon in graph.of_type(ADDON_TYPE)
        if addon.inputs.get("addonName") == "vpc-cni"
    )


def configuration_of(addon: Resource) -> Mapping[str, Any]:
    """The configuration of an EKS add-on; empty where there is none, or it is not known or no JSON."""
    values = addon.inputs.get("configurationValues")
    if not isinstance(values, str) or is_token(values):
        return {}
    try:
        return table(json.loads(values))
    except json.JSONDecodeError:
        return {}


def _pods_disk(instance: InstanceType, gib: int | None, *, local: bool) -> int:
    """Bytes of the disk that pods write to: the instance store where there is one and it is used, else the root disk."""
    return instance.nvme_gb * 10**9 if local and instance.nvme_gb else (gib or _DEFAULT_DISK_GIB) * GIB


def _disk_gib(mappings: Any) -> int | None:
    """GiB of the root disk in block device mappings of a launch template (a number) or a node class (a quantity)."""
    for disk in sorted(items(mappings), key=lambda one: at(one, "rootVolume") is not True):
        size = at(disk, "ebs", "volumeSize")
        if found := whole(size):
            return found
        if amount := quantity(size):
            return int(amount / GIB)
    return None


def _zones(graph: Graph, resource: Resource | None, property_: str, region: str) -> tuple[tuple[Zone, ...], bool]:
    """The zones of the subnets of a property; and whether the graph knows them."""
    given = items(at(resource.inputs, "spec", "subnetSelectorTerms") or resource.inputs.get(property_)) if resource else ()
    urns = resource.property_dependencies.get(property_, ()) if resource else ()
    found = []
    for subnet in (graph.by_urn[urn].inputs for urn in urns if urn in graph.by_urn and graph.by_urn[urn].type == SUBNET_TYPE):
        name, id_ = _known(subnet.get("availabilityZone")), _known(subnet.get("availabilityZoneId"))
        if name or id_:
            found.append(Zone(name or _zone_name(id_, region), id_))
    if found and len(found) >= len(given):
        return tuple(dict.fromkeys(found)), True
    made_up = catalog_zones.region_zone_ids(region) if region in catalog_zones.regions() else ("made-up-az1",)
    return tuple(Zone(_zone_name(id_, region), id_) for id_ in made_up[: max(len(given), 1)]), False


def _zone_name(zone_id: str, region: str) -> str:
    """A name for a zone of that id: ``us-west-2d`` for ``usw2-az4``."""
    number = re.search(r"-az([1-9])$", zone_id)
    return f"{region}{'abcdefghi'[int(number[1]) - 1]}" if number else f"{region}-{zone_id}"


def _known(value: Any) -> str:
    return "" if is_token(value) else text(value)
