"""Models the nodes that the pools of a graph start, as one shape for each instance type of a pool.

A shape leaves open what is secret, unknown or outside the catalog. It never guesses.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE, cores_of
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference.catalog.instances import DEVICE_RESOURCES, InstanceType, instance_types
from eks_inference.place.nodes import allocatable
from eks_inference.place.placement import (
    ARCHITECTURE_LABEL,
    CLAIMS,
    DEVICES_LABEL,
    HOSTNAME_LABEL,
    INSTANCE_TYPE_LABEL,
    KARPENTER_POOL_LABEL,
    ZONE_ID_LABEL,
    ZONE_LABEL,
    Taint,
)
from eks_inference_tools.reading.devices import OF_KIND
from eks_inference_tools.reading.expressions import Expression, Values
from eks_inference_tools.reading.machines import Subnets
from eks_inference_tools.reading.node_groups import NodeGroup, node_groups
from eks_inference_tools.reading.node_pools import FAMILY_LABEL, NodePool, node_pools
from stackgraph.graph.document import Graph
from stackgraph.graph.values import is_token, table, text

_OS_LABEL = "kubernetes.io/os"
_SIZE_LABEL = "karpenter.k8s.aws/instance-size"
_CPU_LABEL = "karpenter.k8s.aws/instance-cpu"

# Architectures in the catalog, and their values in the label.
_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}

# Labels that the kubelet, the cloud controller, EKS, Karpenter and device discovery set on nodes.
_SET_BY_OTHERS = (
    "beta.kubernetes.io/",
    "eks.amazonaws.com/",
    "failure-domain.beta.kubernetes.io/",
    "feature.node.kubernetes.io/",
    "k8s.amazonaws.com/",
    "karpenter.k8s.aws/",
    "karpenter.sh/",
    HOSTNAME_LABEL,
    "node-role.kubernetes.io/",
    "node.kubernetes.io/",
    "nvidia.com/",
    "topology.",
)
_KARPENTER_DOMAINS = ("karpenter.k8s.aws/", "karpenter.sh/")


@dataclass(frozen=True, eq=False)
class NodeShape:
    """Nodes of one instance type of one managed node group or Karpenter NodePool.

    ``type_name`` is empty when the type is unknown, ``instance`` is None when it is unknown or not in the catalog. ``anything``:
    nodes may have labels that the graph does not show. ``efa`` is the number of EFA interfaces of a node, None when unknown.
    ``max_nodes`` is None without a known limit. ``kubelet`` has fields of KubeletConfiguration.
    """

    pool: str
    by_karpenter: bool
    urn: str
    labels: Mapping[str, Values]
    anything: bool
    taints: tuple[Taint, ...]
    efa: int | None = None
    max_nodes: int | None = None
    type_name: str = ""
    instance: InstanceType | None = None
    kubelet: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def title(self) -> str:
        """``m5.2xlarge of pool core``."""
        return f"{self.type_name or 'nodes'} of pool {self.pool}"

    @cached_property
    def offers(self) -> Mapping[str, Decimal]:
        """What pods can request of one node, before any DaemonSet: CPUs, bytes, devices. Leaves out what is unknown."""
        if self.claimed:
            return self._claimable
        found = {} if self.efa is None else {EFA_RESOURCE: Decimal(self.efa)}
        if self.instance:
            neuron = self.instance.devices if self.instance.neuron else 0
            found |= {
                **self._room(self.instance),
                DEVICE_RESOURCE: Decimal(neuron),
                CORE_RESOURCE: Decimal(cores_of(neuron, self.instance)),
                GPU_RESOURCE: Decimal(self.instance.devices if self.instance.nvidia else 0),
            }
        return found

    @cached_property
    def claimed(self) -> bool:
        """Whether pods claim the devices of these nodes, instead of requesting them from a device plugin."""
        return self.labels.get(DEVICES_LABEL) == frozenset([CLAIMS])

    @property
    def _claimable(self) -> Mapping[str, Decimal]:
        """What nodes offer whose devices are claimed. Device plugins do not run there."""
        found = {name: Decimal() for name in (DEVICE_RESOURCE, CORE_RESOURCE, GPU_RESOURCE, EFA_RESOURCE)}
        if self.efa is not None:
            found[OF_KIND["efa"]] = Decimal(self.efa)
        if self.instance:
            found |= self._room(self.instance)
            found |= {
                OF_KIND[kind]: Decimal(self.instance.devices if self.instance.accelerator == kind else 0)
                for kind in DEVICE_RESOURCES
            }
        return found

    def _room(self, instance: InstanceType) -> dict[str, Decimal]:
        """CPUs and bytes."""
        room = allocatable(instance, self.kubelet)
        return {"cpu": Decimal(room.cpu_millis) / 1000, "memory": Decimal(room.memory_mib) * 2**20}

    def possible(self, key: str) -> Values:
        """The values that the label may have on these nodes."""
        if key in self.labels:
            return self.labels[key]
        without_gpu = key.startswith("nvidia.com/") and self.instance and not self.instance.nvidia
        if without_gpu or (key.startswith(_KARPENTER_DOMAINS) and not self.by_karpenter):
            return frozenset()
        return None if self.anything or key.startswith(_SET_BY_OTHERS) else frozenset()

    def can_have(self, wanted: Expression) -> bool:
        """Whether these nodes can fulfil an expression over labels."""
        possible = self.possible(wanted.key)
        if possible is None and wanted.key == INSTANCE_TYPE_LABEL and wanted.operator == "In":
            families = self.labels.get(FAMILY_LABEL)
            return families is None or any(is_token(value) or value.partition(".")[0] in families for value in wanted.values)
        return wanted.fulfilled_by(possible)


def node_shapes(graph: Graph) -> tuple[NodeShape, ...]:
    """The shapes of all pools of a graph."""
    of_groups = (shape for group in node_groups(graph) for shape in shapes_of_group(group))
    of_pools = (shape for pool in node_pools(graph) for shape in shapes_of_node_pool(pool))
    return (*of_groups, *of_pools)


# -- managed node groups ---------------------------------------------------------------------------------------------------------


def shapes_of_group(group: NodeGroup) -> tuple[NodeShape, ...]:
    """The shapes of a node group: one for each instance type, the preferred one first."""
    labels: dict[str, Values] = {
        **_zones(group.subnets),
        ARCHITECTURE_LABEL: None,
        _OS_LABEL: frozenset(["windows" if group.ami_type.startswith("WINDOWS") else "linux"]),
        "eks.amazonaws.com/capacityType": _value(group.capacity_type),
        **_labels(group.labels),
    }
    base = NodeShape(
        pool=group.pool,
        by_karpenter=False,
        urn=group.urn,
        labels=labels,
        # With a custom image, user data sets the labels.
        anything=group.own_image or is_token(group.labels),
        taints=_hard(group.taints),
        efa=group.template.efa_interfaces if group.template else None,
        max_nodes=group.sizes[2],
        kubelet=group.template.user_data.kubelet if group.template else {},
    )
    return tuple(_on(base, name) for name in group.instance_types or ("",))


# -- Karpenter -------------------------------------------------------------------------------------------------------------------


def shapes_of_node_pool(pool: NodePool) -> tuple[NodeShape, ...]:
    """The shapes of a NodePool: one for each instance type that its requirements may allow."""
    base = NodeShape(
        pool=pool.name,
        by_karpenter=True,
        urn=pool.urn,
        labels={
            **_zones(pool.subnets),
            ARCHITECTURE_LABEL: None,
            _OS_LABEL: None,
            KARPENTER_POOL_LABEL: _value(pool.name),
            **_labels(pool.labels),
        },
        anything=is_token(pool.labels),
        taints=_hard(pool.taints),
        max_nodes=pool.replicas,
        kubelet=pool.node_class.kubelet if pool.node_class else {},
    )
    interfaces = pool.node_class.efa_interfaces if pool.node_class else 0
    found = []
    for shape in _candidates(base, pool):
        # Without interfaces in its class, a node gets those that its pods request.
        efa = interfaces or (shape.instance.efa_interfaces if shape.instance and interfaces is not None else None)
        if (kept := _required(shape, pool.requirements)) is not None:
            found.append(replace(kept, efa=efa))
    return tuple(found)


def _candidates(base: NodeShape, pool: NodePool) -> Iterator[NodeShape]:
    """A shape for each instance type in the pool's types or families, and one of unknown type unless the catalog has them all."""
    names, families = pool.chosen(INSTANCE_TYPE_LABEL), pool.chosen(FAMILY_LABEL)
    if names:
        yield from (_on(base, name) for name in names)
        return
    known = [instance for instance in instance_types().values() if instance.family in families]
    yield from (_on(base, instance.name) for instance in known)
    complete = {instance.family for instance in known if instance.every_size}
    if not families or set(families) - complete:
        yield base


def _required(shape: NodeShape, requirements: Iterable[Expression]) -> NodeShape | None:
    """The shape with its labels narrowed by the requirements. None when they exclude it."""
    labels = dict(shape.labels)
    for expression in requirements:
        # The pool itself chooses the value of a label that nothing else sets.
        possible = labels.get(expression.key)
        if not expression.fulfilled_by(possible):
            return None
        if expression.operator == "In" and not any(is_token(value) for value in expression.values):
            labels[expression.key] = frozenset(expression.values) if possible is None else possible & frozenset(expression.values)
        else:
            labels.setdefault(expression.key, frozenset() if expression.operator == "DoesNotExist" else None)
    return replace(shape, labels=labels)


# -- both ------------------------------------------------------------------------------------------------------------------------


def _on(base: NodeShape, name: str) -> NodeShape:
    """The shape for an instance type."""
    if not name or is_token(name):
        return base
    instance = instance_types().get(name)
    family, _, size = name.partition(".")
    labels: dict[str, Values] = {**base.labels, INSTANCE_TYPE_LABEL: frozenset([name])}
    if base.by_karpenter:
        labels |= {FAMILY_LABEL: frozenset([family]), _SIZE_LABEL: frozenset([size])}
    if instance:
        labels[ARCHITECTURE_LABEL] = frozenset([_ARCHITECTURES[instance.architecture]])
        if base.by_karpenter:
            labels[_CPU_LABEL] = frozenset([str(instance.vcpus)])
    return replace(base, type_name=name, instance=instance, labels=labels)


def _labels(value: Any) -> dict[str, Values]:
    return {key: _value(item) for key, item in table(value).items()}


def _value(value: Any) -> Values:
    return None if is_token(value) else frozenset([text(value)])


def _hard(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """The taints with effect NoSchedule or NoExecute."""
    return tuple(taint for taint in taints if taint.effect in ("NoSchedule", "NoExecute"))


def _zones(subnets: Subnets) -> dict[str, Values]:
    """The zone labels, when all zones are known."""
    return {label: zones for label, zones in ((ZONE_LABEL, subnets.zones), (ZONE_ID_LABEL, subnets.zone_ids)) if zones}
