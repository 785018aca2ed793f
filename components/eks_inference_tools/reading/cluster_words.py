"""Describes clusters, nodes and pods in a few words, for every view."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eks_inference.place.placement import CAPACITY_TYPE_LABEL, INSTANCE_TYPE_LABEL
from eks_inference_tools.reading.clusters import Cluster
from eks_inference_tools.reading.expressions import Expression
from eks_inference_tools.reading.machines import Machine, taint
from eks_inference_tools.reading.node_groups import NodeGroup, node_groups
from eks_inference_tools.reading.node_pools import FAMILY_LABEL, NodePool, node_pools
from eks_inference_tools.reading.served_models import Workload
from stackgraph.graph.describe import Words, efa_interfaces, span
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, is_token, joined, table, text, texts, unique


@dataclass(frozen=True)
class NodeCapacity:
    """Nodes of one managed node group or Karpenter NodePool.

    ``size`` is the number of nodes, with bounds where they differ (``2 (1–4)``); ``nodes`` is that number when it is known. A
    NodePool that follows its pods has ``limits`` instead. NodePools have ``requirements`` other than instance and capacity types.
    The devices of instance types are left out, because the pods show what they request.
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
        requirements=unique(_requirement(other) for other in others),
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


def cluster_version(cluster: Cluster) -> str:
    """``Kubernetes 1.35``."""
    return f"Kubernetes {cluster.version}" if cluster.version else ""


def nodes(capacity: NodeCapacity) -> str:
    """The number of nodes and their instance types: ``2 (1–4) × inf2.8xlarge``, ``as needed × any inf2``."""
    families = f"any {'/'.join(few(capacity.families))}" if capacity.families else ""
    types = " or ".join(unique((*few(capacity.instance_types), families))) or "any instance type"
    return f"{capacity.size or ('as needed' if capacity.manager == 'Karpenter' else '?')} × {types}"


def node_kind(capacity: NodeCapacity) -> str:
    """``node group, on-demand``."""
    return joined(capacity.manager, " or ".join(capacity.capacity_types), by=", ")


def node_traits(capacity: NodeCapacity) -> tuple[str, ...]:
    """The other traits of nodes: limits, image, disk, interfaces, requirements."""
    limits = [f"{value} {key}".strip() for key, value in capacity.limits.items()]
    unlimited = "no limit" if capacity.manager == "Karpenter" and not limits else ""
    return unique(
        (
            f"at most {' and '.join(limits)}" if limits else unlimited,
            capacity.image,
            capacity.root_disk,
            capacity.interfaces,
            *capacity.requirements,
        )
    )


def asks(workload: Workload) -> tuple[str, ...]:
    """The requests of one pod, accelerators first: ``neuron 1``, ``cpu 30``."""
    accelerators = [f"{resource.rpartition('/')[2]} {amount}" for resource, amount in workload.accelerators.items()]
    others = [f"{kind} {amount}" for kind, amount in (("cpu", workload.cpu), ("memory", workload.memory)) if amount]
    return (*accelerators, *others)


def selected_nodes(workload: Workload) -> tuple[str, ...]:
    """The node labels that a pod requires."""
    return tuple(label(key, "/".join(few(value.split(", ")))) for key, value in workload.node_selector.items())


def label(key: str, value: str) -> str:
    """A label without its domain: ``instance-type=inf2.8xlarge``."""
    return "=".join(unique((key.rpartition("/")[2], value)))


def few(names: Sequence[str], limit: int = 3) -> Sequence[str]:
    """The first names and the number of the others. A single further name is shown instead of counted."""
    return names if len(names) <= limit + 1 else (*names[:limit], f"{len(names) - limit} more")


# -- resources -------------------------------------------------------------------------------------------------------------------


def _scaled_object(inputs: Mapping[str, Any]) -> str:
    spec = inputs.get("spec")
    bounds = span(at(spec, "minReplicaCount"), at(spec, "maxReplicaCount"))
    return joined(bounds, at(spec, "scaleTargetRef", "name"), by=" × ")


WORDS: Words = {
    "aws:eks/nodeGroup:NodeGroup": lambda inputs: joined(
        text(at(inputs, "scalingConfig", "desiredSize")), ", ".join(texts(inputs.get("instanceTypes"))), by=" × "
    ),
    "kubernetes:keda.sh/v1alpha1:ScaledObject": _scaled_object,
}
