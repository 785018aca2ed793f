"""Charges of EBS volumes: disks of nodes, and volumes that pods claim. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference.catalog.disks import GP3
from eks_inference_tools.cost.charges import Amounts, Charge, Found, Uncounted
from eks_inference_tools.placing.node_pools import DEFAULT_DISK_GIB
from eks_inference_tools.placing.placed import Placement
from eks_inference_tools.placing.placeholders import known_region
from eks_inference_tools.placing.scale import Workloads
from eks_inference_tools.reading.machines import GIB, Machine
from eks_inference_tools.reading.objects import group_kind, name_of
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.scalars import quantity, whole
from eks_inference_tools.reading.storage_classes import EBS_DRIVERS, is_default_class
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, table, text


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
    """Yields what the volumes cost that claims of the graph, of its charts and of its pod templates ask of the EBS driver.

    Other drivers take the volume from a file system, which is a resource of its own.
    """
    region = known_region(graph, None)
    classes = {name_of(one): one for one in graph.resources if group_kind(one)[1] == "StorageClass"}
    for owner, urn, spec, amounts in _claims(graph, workloads):
        name = at(spec, "storageClassName")
        if name == "" or at(spec, "volumeName"):
            # The volume exists already: what is behind it is a resource of its own, if it is the stack's.
            continue
        default = next((one for one in classes.values() if is_default_class(one.inputs)), None)
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
    return (found for one in template.spec.volumes if (found := at(one, "ephemeral", "volumeClaimTemplate")))
