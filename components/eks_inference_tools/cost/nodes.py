"""Charges of nodes, by pool, and of EBS volumes: disks of nodes, and volumes that pods claim. Pure.

Nodes of managed node groups and NodePools with replicas are as many as given. Karpenter's are those that the pods ask for, placed
as the scheduler would (``placing/``).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference.catalog.disks import GP3
from eks_inference_tools.cost.price_book import Amounts, Capacity, Charge, Found, Uncounted
from eks_inference_tools.placing.footprint import Workloads
from eks_inference_tools.placing.node_pools import DEFAULT_DISK_GIB
from eks_inference_tools.placing.placed import MOST_NODES, MOST_PODS, PlacedNode, Placement
from eks_inference_tools.placing.placeholders import known_region
from eks_inference_tools.reading.graph_facts import makes_other_nodes
from eks_inference_tools.reading.kinds import EBS_DRIVERS, group_kind, is_default_class, name_of
from eks_inference_tools.reading.machines import GIB, Machine
from eks_inference_tools.reading.node_groups import NodeGroup, node_groups
from eks_inference_tools.reading.node_pools import node_pools
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.scalars import quantity, whole
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, table, text
from stackgraph.graph.wording import counted


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


_MORE = f"only {MOST_NODES:,} of them count"
_WINDOWS = "Windows costs more than Linux, whose price is counted"

_BOUGHT: Mapping[str, Capacity] = {"SPOT": "spot", "spot": "spot", "reserved": "reserved"}


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
