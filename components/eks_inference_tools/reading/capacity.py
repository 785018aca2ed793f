"""Describes the nodes of a graph's pools for display: types, sizes, limits, labels, taints, images, disks. Pure.

It leaves out the devices of instance types, because the pods show what they request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eks_inference.placement import CAPACITY_TYPE_LABEL, INSTANCE_TYPE_LABEL
from eks_inference_tools.reading.expressions import Expression
from eks_inference_tools.reading.machines import Machine, taint
from eks_inference_tools.reading.node_groups import NodeGroup, node_groups
from eks_inference_tools.reading.node_pools import FAMILY_LABEL, NodePool, node_pools
from eks_inference_tools.reading.scalars import span
from stackgraph.graph.describe import efa_interfaces
from stackgraph.graph.document import Graph
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, joined, table, text, unique


@dataclass(frozen=True)
class NodeCapacity:
    """Nodes of one managed node group or Karpenter NodePool.

    ``size`` is the number of nodes, with bounds where they differ (``2 (1–4)``); ``nodes`` is that number when it is known. A
    NodePool that follows its pods has ``limits`` instead. NodePools have ``requirements`` other than instance and capacity types.
    """

    urn: str
    name: str
    manager: str
    instance_types: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    size: str = ""
    nodes: int | None = None
    capacity_types: tuple[str, ...] = ()
    limits: Mapping[str, str] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    image: str = ""
    root_disk: str = ""
    interfaces: str = ""


def node_capacity(graph: Graph) -> tuple[NodeCapacity, ...]:
    """The managed node groups of a graph, then its NodePools."""
    groups = (_of_group(group) for group in node_groups(graph))
    return (*groups, *(_of_node_pool(pool) for pool in node_pools(graph)))


def _of_group(group: NodeGroup) -> NodeCapacity:
    low, size, high = group.scaling
    # EKS rejects a maximum of 0, so a group with a fixed size of 0 has bounds 0 and 1.
    fixed = low == size and (high == size or (size == 0 and high == 1))
    bounds = "" if fixed else span(low, high)
    bought, template = group.capacity_type, group.template
    return NodeCapacity(
        urn=group.urn,
        name=group.name,
        manager="node group",
        instance_types=group.instance_types,
        size=joined(size, f"({bounds})" if "–" in bounds else ""),
        nodes=group.sizes[1],
        capacity_types=(bought if is_token(bought) else bought.lower().replace("_", "-"),),
        labels=_labels(group.labels),
        taints=tuple(taint(item) for item in group.given_taints),
        image=joined(group.ami_type or (template.image if template else ""), group.release),
        root_disk=_root_disk(template),
        interfaces=efa_interfaces(template.document) if template else "",
    )


def _of_node_pool(pool: NodePool) -> NodeCapacity:
    others = (one for one in pool.requirements if one.key != _OS_LABEL and not (one.operator == "In" and one.key in _CHOICES))
    image = next(iter(pool.node_class.images), None) if pool.node_class else None
    return NodeCapacity(
        urn=pool.urn,
        name=pool.name,
        manager="Karpenter",
        instance_types=pool.chosen(INSTANCE_TYPE_LABEL),
        families=pool.chosen(FAMILY_LABEL),
        size=text(pool.replicas),
        nodes=pool.replicas,
        capacity_types=pool.chosen(CAPACITY_TYPE_LABEL),
        limits=_labels(pool.limits),
        requirements=unique(_requirement(one) for one in others),
        labels=_labels(pool.labels),
        taints=tuple(taint(item) for item in pool.given_taints),
        image=text(at(image, "alias") or at(image, "id") or at(image, "name")),
        root_disk=_root_disk(pool.node_class),
    )


_OS_LABEL = "kubernetes.io/os"
_CHOICES = (INSTANCE_TYPE_LABEL, FAMILY_LABEL, CAPACITY_TYPE_LABEL)
_OPERATORS = {"In": "", "NotIn": "not", "Gt": ">", "Lt": "<", "Gte": "≥", "Lte": "≤", "Exists": "any", "DoesNotExist": "none"}


def _requirement(wanted: Expression) -> str:
    label = wanted.key.rpartition("/")[2] if wanted.is_known else wanted.key
    return joined(label, _OPERATORS.get(wanted.operator, wanted.operator), " or ".join(wanted.values))


def _root_disk(machine: Machine | None) -> str:
    disk = machine.root_disk if machine else None
    size = text(disk.size) if disk else ""
    # Launch templates give GiB, EC2NodeClasses give quantities with units.
    return joined(f"{size} GiB" if size.isdecimal() else size, disk.type, "root disk") if disk and size else ""


def _labels(value: Any) -> dict[str, str]:
    """A table with texts as values. The token of an unknown table becomes its only value, with an empty key."""
    if is_token(value):
        return {"": text(value)}
    return {text(key): text(item) for key, item in sorted(table(value).items())}
