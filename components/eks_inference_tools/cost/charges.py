"""Charges of nodes, by pool, of EBS volumes (disks of nodes, and those that pods claim), and of all else: control planes,
network, file systems, logs. Pure.

Nodes of managed node groups and NodePools with replicas are as many as given. Karpenter's are those that the pods ask for, placed
as the scheduler would (``placing/``).
"""

import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from eks_inference.catalog import versions
from eks_inference.catalog.instances import GP3
from eks_inference_tools.cost.price_book import Amounts, ByUse, Capacity, Charge, Found, Part, Uncounted
from eks_inference_tools.placing.footprint import Workloads
from eks_inference_tools.placing.placed import MOST_NODES, MOST_PODS, PlacedNode, Placement
from eks_inference_tools.placing.placeholders import known_region
from eks_inference_tools.placing.started_nodes import DEFAULT_DISK_GIB
from eks_inference_tools.reading.calendar import today
from eks_inference_tools.reading.clusters import CLUSTER_TYPE, REMOTE_CLUSTER_TYPE
from eks_inference_tools.reading.graph_facts import makes_other_nodes
from eks_inference_tools.reading.machines import GIB, Machine
from eks_inference_tools.reading.node_groups import NodeGroup, node_groups
from eks_inference_tools.reading.node_pools import node_pools
from eks_inference_tools.reading.object_kinds import EBS_DRIVERS, group_kind, is_default_class, name_of, title_of
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.scalars import quantity, whole
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.values import at, is_token, items, table, text
from stackgraph.graph.wording import counted

_MORE = f"only {MOST_NODES:,} of them count"
_WINDOWS = "Windows costs more than Linux, whose price is counted"

_BOUGHT: Mapping[str, Capacity] = {"SPOT": "spot", "spot": "spot", "reserved": "reserved"}

_PACKAGES = ("aws", "aws-native", "awsx", "eks")
"""Packages whose resources AWS may bill."""

_LUSTRE = "fsx_lustre"

_INGRESS_GROUP = "alb.ingress.kubernetes.io/group.name"


@dataclass(frozen=True)
class Volume:
    """A kind of volume. ``gib`` is None if unknown; ``iops`` and ``mib_s`` are 0 where the program leaves them out."""

    gib: float | None
    type: str = GP3.name
    iops: int = 0
    mib_s: int = 0


def volume_charges(owner: str, what: str, urn: str, region: str, volume: Volume, amounts: Amounts) -> Found:
    """Yields what gp3 volumes cost: their size, and what exceeds the throughput and operations that every volume has.

    ``amounts`` is the number of volumes.
    """
    if volume.gib is None or volume.type != GP3.name:
        why = "their size is unknown" if volume.gib is None else f"volumes of type {volume.type} have no price here"
        yield Uncounted(f"{what} of {owner}", why, urn)
        return
    for item, unit, each in (
        ("gp3_storage", "GiB", volume.gib),
        ("gp3_throughput", f"MiB/s above {GP3.least_mib_s}", volume.mib_s - GP3.least_mib_s),
        ("gp3_iops", f"IOPS above {GP3.least_iops}", volume.iops - GP3.least_iops),
    ):
        if each > 0:
            least, initial, most = (number * each for number in amounts)
            yield Charge("storage", owner, f"{what}, {each:g} {unit} each", item, region, urn, (least, initial, most))


def volumes_of(machine: Machine | None, gib: int | None = None) -> tuple[Volume, ...]:
    """The EBS volumes of a node: those of its launch template or class, else the root disk of its image with ``gib``.

    One of unknown size if the graph does not have the template.
    """
    if machine is None:
        return (Volume(None),)
    given = (disk for disk in machine.disks if disk.ebs)
    found = (Volume(disk.gib, disk.type or GP3.name, whole(disk.iops) or 0, whole(disk.throughput) or 0) for disk in given)
    return tuple(found) or (Volume(gib or DEFAULT_DISK_GIB),)


def node_disks(graph: Graph, volumes: Mapping[str, Sequence[Volume]], placements: Sequence[Placement]) -> Found:
    """Yields what the disks of nodes cost. ``volumes`` has those of one node, by URN of its pool."""
    counted: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for scale, placement in enumerate(placements):
        for node in placement.nodes:
            counted[node.urn, node.pool][scale] += 1
    for (urn, pool), (least, initial, most) in counted.items():
        region = known_region(graph, graph.by_urn.get(urn))
        for volume in volumes[urn]:
            yield from volume_charges(pool, "disks", urn, region, volume, (least, initial, most))


def claimed_volumes(graph: Graph, workloads: Workloads) -> Found:
    """Yields the cost of the EBS volumes that the graph, its charts and its pod templates claim.

    Other drivers take the volume from a file system, which is a resource of its own.
    """
    region = known_region(graph, None)
    classes = {name_of(resource): resource for resource in graph.resources if group_kind(resource)[1] == "StorageClass"}
    for owner, urn, spec, amounts in _claims(graph, workloads):
        name = at(spec, "storageClassName")
        if name == "" or at(spec, "volumeName"):
            # The volume exists already: what is behind it is a resource of its own, if it is the stack's.
            continue
        default = next((resource for resource in classes.values() if is_default_class(resource.inputs)), None)
        storage_class = default if name is None else classes.get(text(name))
        if storage_class is None:
            missing = "default storage class" if name is None else f"storage class '{text(name)}'"
            yield Uncounted(f"volumes of {owner}", f"the graph has no {missing}", urn)
        elif at(storage_class.inputs, "provisioner") in EBS_DRIVERS:
            settings = table(storage_class.inputs.get("parameters"))
            size = quantity(at(spec, "resources", "requests", "storage"))
            volume = Volume(
                gib=None if size is None else float(size / GIB),
                type=text(settings.get("type")) or GP3.name,
                iops=whole(settings.get("iops")) or 0,
                mib_s=whole(settings.get("throughput")) or 0,
            )
            yield from volume_charges(owner, "volumes", urn, region, volume, amounts)


def _claims(graph: Graph, workloads: Workloads) -> Iterator[tuple[str, str, Any, Amounts]]:
    """Yields the owner, URN, spec and number of all claims."""
    for resource in filter(is_kubernetes_object, (*graph.resources, *workloads.stood_in)):
        if group_kind(resource)[1] == "PersistentVolumeClaim":
            yield name_of(resource), resource.urn, resource.inputs.get("spec"), (1, 1, 1)
    for template, counts in workloads.by_scale.items():
        claims = items(at(template.owner.inputs, "spec", "volumeClaimTemplates"))
        for claim in (*claims, *_ephemeral(template)):
            yield template.name, template.urn, at(claim, "spec"), counts


def _ephemeral(template: PodTemplate) -> Iterator[Any]:
    return (found for volume in template.spec.volumes if (found := at(volume, "ephemeral", "volumeClaimTemplate")))


def node_charges(graph: Graph, placements: Sequence[Placement]) -> Found:
    """Yields the charges of a cluster's nodes and their disks; ``placements`` are the nodes at each scale."""
    groups = {group.urn: group for group in node_groups(graph)}
    amounts: dict[tuple[str, str, str, Capacity], list[int]] = defaultdict(lambda: [0, 0, 0])
    for scale, placement in enumerate(placements):
        for node in placement.nodes:
            amounts[node.urn, node.pool, node.instance.name, _capacity(node, groups.get(node.urn))][scale] += 1
    for (urn, pool, type_, capacity), (least, initial, most) in amounts.items():
        region = known_region(graph, graph.by_urn.get(urn))
        yield Charge("nodes", pool, type_, type_, region, urn, (least, initial, most), capacity)
    pools = node_pools(graph)
    volumes = {urn: volumes_of(group.template, group.disk_gib) for urn, group in groups.items()}
    yield from node_disks(graph, volumes | {pool.urn: volumes_of(pool.node_class) for pool in pools}, placements)
    types = {urn: type_ for urn, _, type_, _ in amounts}
    for group in groups.values():
        for why in _doubts(group, types.get(group.urn, "")):
            yield Uncounted(f"nodes of {group.pool}", why, group.urn)
    for pool in pools:
        if (pool.replicas or 0) > MOST_NODES:
            yield Uncounted(f"nodes of {pool.name}", _MORE, pool.urn)
        if pool.replicas and pool.urn not in types:
            yield Uncounted(f"nodes of {pool.name}", "their type is not in the catalog", pool.urn)
        if pool.urn in types and pool.node_class and pool.node_class.is_windows:
            yield Uncounted(f"nodes of {pool.name}", _WINDOWS, pool.urn)
    yield from _unseen(graph, placements)


def _doubts(group: NodeGroup, type_: str) -> Iterator[str]:
    """Yields what is not known of the nodes of a group that count as nodes of a type; empty if none count."""
    if None in group.sizes or not (type_ or group.sizes[2] == 0):
        yield "their number is unknown, or their type is not in the catalog"
    if any((size or 0) > MOST_NODES for size in group.sizes):
        yield _MORE
    if type_ and type_ != group.instance_types[0]:
        yield f"{group.instance_types[0]} is not in the catalog; they count as {type_}, their next type"
    if type_ and group.ami_type.startswith("WINDOWS"):
        yield _WINDOWS
    if type_ and group.template and group.template.tenancy not in ("", "default"):
        yield "dedicated hardware has another price; that of shared hardware is counted"


def _unseen(graph: Graph, placements: Sequence[Placement]) -> Found:
    unplaced = Counter[PodTemplate]()
    for placement in placements:
        unplaced |= Counter(pod.template for pod in placement.unplaced)
    has_pools = bool(node_groups(graph) or node_pools(graph))
    none_takes = "no pool with a type of the catalog takes" if has_pools else "the program makes no pool for"
    for template, number in unplaced.items():
        why = f"{none_takes} {counted(number, 'pod')} of it"
        yield Uncounted(f"nodes for {template.title}", why, template.urn)
    for template in {template: None for placement in placements for template in placement.uncounted}:
        yield Uncounted(
            f"nodes for {template.title}",
            f"its number of pods is unknown, or all together are more than {MOST_PODS:,}",
            template.urn,
        )
    for resource in graph.resources:
        if makes_other_nodes(resource):
            why = f"{resource.type} starts nodes that no preview knows"
            yield Uncounted(f"nodes of {text(resource.name)}", why, resource.urn)


def _capacity(node: PlacedNode, group: NodeGroup | None) -> Capacity:
    if group is None:
        return _BOUGHT.get(node.capacity_type, "on_demand")
    return "reserved" if group.is_reserved else _BOUGHT.get(group.capacity_type, "on_demand")


def service_charges(graph: Graph) -> Found:
    """Yields what the resources of a graph cost by themselves. Leaves out those that the program only reads."""
    for resource in graph.resources:
        if is_read(resource) or (not resource.custom and not resource.remote):
            continue
        region = known_region(graph, resource)
        if by_hand := _COUNTED.get(resource.type):
            yield from by_hand(resource, region)
        elif resource.package in _PACKAGES:
            yield from _billed(resource, region)


@cache
def _types() -> Mapping[str, Any]:
    return tomllib.loads(resources.files("eks_inference_tools.cost").joinpath("billed.toml").read_text("utf-8"))


def _billed(resource: Resource, region: str) -> Found:
    types, urn, name = _types(), resource.urn, text(resource.name)
    hourly, by_use = types["by_the_hour"].get(resource.type), types["by_use"].get(resource.type)
    if hourly:
        yield _one(hourly["part"], hourly["service"], resource, region)
    for service in by_use["services"] if by_use else ():
        yield ByUse(by_use["part"], name, service, region, urn)
    if not (hourly or by_use or resource.type.startswith(tuple(types["free"]["prefixes"]))):
        yield Uncounted(name, f"{resource.type} has no price here", urn)


def _one(part: Part, service: str, resource: Resource, region: str, amount: float = 1) -> Charge:
    return Charge(part, text(resource.name), "", service, region, resource.urn, (amount, amount, amount))


# -- resources whose price depends on their properties ---------------------------------------------------------------------------


def _control_plane(cluster: Resource, region: str) -> Found:
    version = text(cluster.inputs.get("version"))
    try:
        extended = today() > versions.support(version).standard
    except KeyError:
        yield Uncounted(text(cluster.name), "the end of standard support of its version is not known", cluster.urn)
        extended = False
    yield _one("control plane", "eks_extended" if extended else "eks_standard", cluster, region)


def _endpoint(endpoint: Resource, region: str) -> Found:
    name, kind, subnets = text(endpoint.name), text(endpoint.inputs.get("vpcEndpointType")), endpoint.inputs.get("subnetIds")
    if kind in ("", "Gateway"):
        return
    if kind != "Interface":
        yield Uncounted(name, f"endpoints of type {kind} have no price here", endpoint.urn)
    elif is_token(subnets):
        yield Uncounted(name, "the number of its zones is unknown", endpoint.urn)
    else:
        yield _one("network", "vpc_endpoint", endpoint, region, len(items(subnets)) or 1)
        yield ByUse("network", name, "vpc_endpoint_data", region, endpoint.urn)


def _file_system(system: Resource, region: str) -> Found:
    if text(system.inputs.get("throughputMode")) not in ("", "bursting", "elastic"):
        yield Uncounted(text(system.name), "its provisioned throughput has no price here", system.urn)
    yield from _billed(system, region)


def _lustre(system: Resource, region: str) -> Found:
    inputs, size = system.inputs, whole(system.inputs.get("storageCapacity"))
    throughput = whole(inputs.get("perUnitStorageThroughput"))
    tier = "scratch" if text(inputs.get("deploymentType")).startswith("SCRATCH") else throughput
    if size is None or text(inputs.get("storageType") or "SSD") != "SSD" or tier not in ("scratch", 125, 250, 500, 1000):
        yield Uncounted(text(system.name), "its size, its throughput or its kind of storage has no price here", system.urn)
    else:
        yield _one("storage", f"{_LUSTRE}_{tier}", system, region, size)


def _instance(instance: Resource, region: str) -> Found:
    name, type_ = text(instance.name), text(instance.inputs.get("instanceType"))
    if not type_ or is_token(type_):
        yield Uncounted(name, "its instance type is unknown", instance.urn)
    else:
        yield Charge("nodes", name, type_, type_, region, instance.urn, (1, 1, 1), "on_demand")
        yield Uncounted(f"disks of {name}", "only those of nodes are counted", instance.urn)


def _volume(volume: Resource, region: str) -> Found:
    inputs, size = volume.inputs, whole(volume.inputs.get("size"))
    kind = Volume(size, text(inputs.get("type")) or "gp2", whole(inputs.get("iops")) or 0, whole(inputs.get("throughput")) or 0)
    yield from volume_charges(text(volume.name), "volume", volume.urn, region, kind, (1, 1, 1))


def _load_balancer_resource(balancer: Resource, region: str) -> Found:
    kind = text(balancer.inputs.get("loadBalancerType")) or "application"
    if kind in ("application", "network"):
        yield _one("network", f"{kind}_load_balancer", balancer, region)
    else:
        yield Uncounted(text(balancer.name), f"load balancers of type {kind} have no price here", balancer.urn)


_COUNTED: Mapping[str, Callable[[Resource, str], Found]] = {
    CLUSTER_TYPE: _control_plane,
    REMOTE_CLUSTER_TYPE: _control_plane,
    "aws:ebs/volume:Volume": _volume,
    "aws:ec2/instance:Instance": _instance,
    "aws:ec2/vpcEndpoint:VpcEndpoint": _endpoint,
    "aws:efs/fileSystem:FileSystem": _file_system,
    "aws:fsx/lustreFileSystem:LustreFileSystem": _lustre,
    "aws:lb/loadBalancer:LoadBalancer": _load_balancer_resource,
}


def load_balancers(graph: Graph) -> Found:
    """Yields the load balancers that a controller makes for Services and Ingresses of one cluster.

    Ingresses of one group share a load balancer (AWS Load Balancer Controller, ``alb.ingress.kubernetes.io/group.name``).
    """
    region, groups = known_region(graph, None), set[str]()
    for resource in filter(is_kubernetes_object, graph.resources):
        group = text(at(resource.inputs, "metadata", "annotations", _INGRESS_GROUP))
        if not group or group not in groups:
            yield from _load_balancer(resource, region)
        if group:
            groups.add(group)


def _load_balancer(resource: Resource, region: str) -> Found:
    group, kind = group_kind(resource)
    if (group, kind) == ("core", "Service") and at(resource.inputs, "spec", "type") == "LoadBalancer":
        yield Charge("network", title_of(resource), "", "network_load_balancer", region, resource.urn, (1, 1, 1))
    elif (group, kind) == ("networking.k8s.io", "Ingress"):
        name = at(resource.inputs, "spec", "ingressClassName")
        if is_token(name) or text(name) == "alb":
            yield Charge("network", title_of(resource), "", "application_load_balancer", region, resource.urn, (1, 1, 1))
        else:
            yield Uncounted(title_of(resource), f"its ingress class '{text(name)}' may make a load balancer", resource.urn)
