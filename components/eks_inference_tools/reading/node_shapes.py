"""The nodes that the pools of a graph start: one shape for each instance type of a pool.

What is secret, unknown or outside the catalog stays open: a shape then says "may be anything", never a guess.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE, cores_of
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.placement import (
    ARCHITECTURE_LABEL,
    HOSTNAME_LABEL,
    INSTANCE_TYPE_LABEL,
    KARPENTER_POOL_LABEL,
    POOL_LABEL,
    ZONE_ID_LABEL,
    ZONE_LABEL,
    Taint,
)
from eks_inference.pools.plan import allocatable
from eks_inference_tools.reading.facts import LAUNCH_TEMPLATE_TYPE, NODE_CLASS_TYPE, NODE_GROUP_TYPE, NODE_POOL_TYPE
from eks_inference_tools.reading.words import taint_effect
from eks_inference_tools.reading.workloads import whole
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, table, text, texts

Values = frozenset[str] | None
"""Values a label may have on a node: empty, the node has no such label; None, it may be there with any value."""

SUBNET_TYPE = "aws:ec2/subnet:Subnet"

_OS_LABEL = "kubernetes.io/os"
_FAMILY_LABEL = "karpenter.k8s.aws/instance-family"
_SIZE_LABEL = "karpenter.k8s.aws/instance-size"
_CPU_LABEL = "karpenter.k8s.aws/instance-cpu"

# Names in the catalog to those in the label.
_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}

# Labels that the kubelet, the cloud controller, EKS, Karpenter and the discovery of devices put on nodes.
_PUT_ON_BY_OTHERS = (
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
_KARPENTERS = ("karpenter.k8s.aws/", "karpenter.sh/")
_NVIDIAS = "nvidia.com/"


@dataclass(frozen=True, eq=False)
class NodeShape:
    """Nodes of one instance type of one managed node group or Karpenter NodePool.

    ``instance`` is None when the type is not known or not in the catalog, ``type_name`` is its name when that is known.
    ``anything`` is True where nodes may have labels that the graph does not show. ``efa`` counts the EFA interfaces of a node,
    None when that is not known; ``max_nodes`` is None without a known limit.
    """

    pool: str
    by_karpenter: bool
    urn: str
    type_name: str
    instance: InstanceType | None
    labels: Mapping[str, Values]
    anything: bool
    taints: tuple[Taint, ...]
    efa: int | None
    max_nodes: int | None = None

    @cached_property
    def title(self) -> str:
        """``m5.2xlarge of pool core``."""
        return f"{self.type_name or 'nodes'} of pool {self.pool}"

    @cached_property
    def offers(self) -> Mapping[str, Decimal]:
        """What pods can ask of one such node, before any DaemonSet: CPUs, bytes, devices. Empty of what is not known."""
        found = {} if self.efa is None else {EFA_RESOURCE: Decimal(self.efa)}
        if self.instance:
            room = allocatable(self.instance)
            neuron = self.instance.devices if self.instance.accelerator == "neuron" else 0
            found |= {
                "cpu": Decimal(room.cpu_millis) / 1000,
                "memory": Decimal(room.memory_mib) * 2**20,
                DEVICE_RESOURCE: Decimal(neuron),
                CORE_RESOURCE: Decimal(cores_of(neuron, self.instance)),
                GPU_RESOURCE: Decimal(self.instance.devices if self.instance.accelerator == "nvidia" else 0),
            }
        return found

    def possible(self, key: str) -> Values:
        """The values that label may have on these nodes."""
        if key in self.labels:
            return self.labels[key]
        if key.startswith(_NVIDIAS) and self.instance and self.instance.accelerator != "nvidia":
            return frozenset()
        if key.startswith(_KARPENTERS) and not self.by_karpenter:
            return frozenset()
        return None if self.anything or key.startswith(_PUT_ON_BY_OTHERS) else frozenset()

    def can_have(self, key: str, operator: str, values: tuple[str, ...]) -> bool:
        """Whether these nodes can fulfil an expression of a selector."""
        possible = self.possible(key)
        if possible is None and key == INSTANCE_TYPE_LABEL and operator == "In":
            families = self.labels.get(_FAMILY_LABEL)
            return families is None or any(is_token(value) or value.partition(".")[0] in families for value in values)
        return _matches(operator, values, possible)


def node_shapes(graph: Graph) -> tuple[NodeShape, ...]:
    """The shapes of every pool that the graph makes."""
    subnets = {r.urn: r.inputs for r in graph.of_type(SUBNET_TYPE)}
    templates = {r.urn: r.inputs for r in graph.of_type(LAUNCH_TEMPLATE_TYPE)}
    classes = {text(at(r.inputs, "metadata", "name")): r for r in graph.of_type(NODE_CLASS_TYPE)}
    found: list[NodeShape] = []
    for resource in graph.of_type(NODE_GROUP_TYPE):
        if not is_read(resource):
            found += _of_group(resource, templates, subnets)
    for resource in graph.of_type(NODE_POOL_TYPE):
        if is_kubernetes_object(resource):
            found += _of_node_pool(resource, classes, subnets)
    return tuple(found)


def launch_template(group: Resource, templates: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The inputs of a node group's launch template; empty when it has none, None when the graph does not make it."""
    if group.inputs.get("launchTemplate") is None:
        return {}
    urns = group.property_dependencies.get("launchTemplate", ())
    return next((templates[urn] for urn in urns if urn in templates), None)


def efa_count(template: Any) -> int | None:
    """EFA interfaces of a launch template or node class; None when that is not known."""
    interfaces = at(template, "networkInterfaces")
    if is_token(interfaces):
        return None
    return sum(text(at(interface, "interfaceType")).startswith("efa") for interface in items(interfaces))


def _matches(operator: str, values: tuple[str, ...], possible: Values) -> bool:
    """Whether a label that has one of the possible values can fulfil an expression."""
    if possible is None or any(is_token(value) for value in values):
        return True
    if operator == "In":
        return any(value in possible for value in values)
    if operator == "NotIn":
        return not possible or any(value not in values for value in possible)
    if operator == "Exists":
        return bool(possible)
    if operator == "DoesNotExist":
        return not possible
    limit = whole(values[0]) if values else None
    numbers = [whole(value) for value in possible]
    if operator in ("Gt", "Lt") and limit is not None:
        return any(number is None or (number > limit if operator == "Gt" else number < limit) for number in numbers)
    return True


# -- managed node groups ---------------------------------------------------------------------------------------------------------


def _of_group(
    group: Resource, templates: Mapping[str, Mapping[str, Any]], subnets: Mapping[str, Mapping[str, Any]]
) -> Iterator[NodeShape]:
    inputs = group.inputs
    template = launch_template(group, templates)
    labels = inputs.get("labels")
    known: dict[str, Values] = {
        **_zones(group, "subnetIds", len(items(inputs.get("subnetIds"))), subnets),
        ARCHITECTURE_LABEL: None,
        _OS_LABEL: frozenset(["windows" if text(inputs.get("amiType")).startswith("WINDOWS") else "linux"]),
        "eks.amazonaws.com/capacityType": _value(inputs.get("capacityType") or "ON_DEMAND"),
        **_labels(labels),
    }
    # With an image of one's own, user data gives the labels.
    own_image = template is None or at(template, "imageId") is not None or inputs.get("amiType") == "CUSTOM"
    base = NodeShape(
        pool=text(inputs.get("nodeGroupName")) or text(at(labels, POOL_LABEL)) or text(group.name),
        by_karpenter=False,
        urn=group.urn,
        type_name="",
        instance=None,
        labels=known,
        anything=own_image or is_token(labels),
        taints=_taints(inputs.get("taints")),
        efa=None if template is None else efa_count(template),
        max_nodes=whole(at(inputs.get("scalingConfig"), "maxSize")),
    )
    names = texts(inputs.get("instanceTypes")) or texts(at(template, "instanceType"))
    for name in names or ("",):
        yield _on(base, name)


# -- Karpenter -------------------------------------------------------------------------------------------------------------------


def _of_node_pool(
    pool: Resource, classes: Mapping[str, Resource], subnets: Mapping[str, Mapping[str, Any]]
) -> Iterator[NodeShape]:
    template = at(pool.inputs, "spec", "template")
    node_class = classes.get(text(at(template, "spec", "nodeClassRef", "name")))
    class_spec = node_class.inputs.get("spec") if node_class else None
    name = text(at(pool.inputs, "metadata", "name")) or text(pool.name)
    labels = at(template, "metadata", "labels")
    zones = _zones(node_class, "spec", len(items(at(class_spec, "subnetSelectorTerms"))), subnets) if node_class else {}
    base = NodeShape(
        pool=name,
        by_karpenter=True,
        urn=pool.urn,
        type_name="",
        instance=None,
        labels={
            **zones,
            ARCHITECTURE_LABEL: None,
            _OS_LABEL: None,
            KARPENTER_POOL_LABEL: _value(name),
            **_labels(labels),
        },
        anything=is_token(labels) or is_token(template),
        taints=_taints(at(template, "spec", "taints")),
        efa=None,
    )
    requirements = items(at(template, "spec", "requirements"))
    interfaces = efa_count(class_spec)
    for shape in _candidates(base, requirements):
        # Without interfaces of its own the node gets those its pods ask for.
        efa = interfaces or (shape.instance.efa_interfaces if shape.instance and interfaces is not None else None)
        if (kept := _required(shape, requirements)) is not None:
            yield replace(kept, efa=efa)


def _candidates(base: NodeShape, requirements: Any) -> Iterator[NodeShape]:
    """A shape for each instance type that type and family leave; one of no known type where the catalog may not know them all."""
    names = _chosen(requirements, INSTANCE_TYPE_LABEL)
    families = _chosen(requirements, _FAMILY_LABEL)
    if names:
        yield from (_on(base, name) for name in names)
        return
    known = [instance for instance in instance_types().values() if instance.family in families]
    yield from (_on(base, instance.name) for instance in known)
    # The catalog has every size of a Neuron family, but not of others.
    complete = {instance.family for instance in known if instance.accelerator == "neuron"}
    if not families or set(families) - complete:
        yield base


def _chosen(requirements: Any, key: str) -> tuple[str, ...]:
    return tuple(
        value
        for requirement in requirements
        if at(requirement, "key") == key and at(requirement, "operator") == "In"
        for value in texts(at(requirement, "values"))
    )


def _required(shape: NodeShape, requirements: Any) -> NodeShape | None:
    """The shape with what the requirements say of its labels; None when they exclude it."""
    labels = dict(shape.labels)
    for requirement in requirements:
        key, operator = text(at(requirement, "key")), text(at(requirement, "operator"))
        values = texts(at(requirement, "values"))
        # A label that nothing else sets is the pool's own choice.
        possible = labels.get(key)
        if not _matches(operator, values, possible):
            return None
        if operator == "In" and not any(is_token(value) for value in values):
            labels[key] = frozenset(values) if possible is None else possible & frozenset(values)
        else:
            labels.setdefault(key, frozenset() if operator == "DoesNotExist" else None)
    return replace(shape, labels=labels)


# -- both ------------------------------------------------------------------------------------------------------------------------


def _on(base: NodeShape, name: str) -> NodeShape:
    """The shape on an instance type."""
    if not name or is_token(name):
        return base
    instance = instance_types().get(name)
    family, _, size = name.partition(".")
    labels: dict[str, Values] = {**base.labels, INSTANCE_TYPE_LABEL: frozenset([name])}
    if base.by_karpenter:
        labels |= {_FAMILY_LABEL: frozenset([family]), _SIZE_LABEL: frozenset([size])}
    if instance:
        labels[ARCHITECTURE_LABEL] = frozenset([_ARCHITECTURES[instance.architecture]])
        if base.by_karpenter:
            labels[_CPU_LABEL] = frozenset([str(instance.vcpus)])
    return replace(base, type_name=name, instance=instance, labels=labels)


def _labels(value: Any) -> dict[str, Values]:
    return {key: _value(item) for key, item in table(value).items()}


def _value(value: Any) -> Values:
    return None if is_token(value) else frozenset([text(value)])


def _taints(value: Any) -> tuple[Taint, ...]:
    """Taints that keep pods away."""
    found = []
    for one in items(value):
        effect = taint_effect(one)
        if effect in ("NoSchedule", "NoExecute") and not is_token(one) and not is_token(at(one, "key")):
            found.append(Taint(text(at(one, "key")), text(at(one, "value")), effect))
    return tuple(found)


def _zones(resource: Resource, property_: str, count: int, subnets: Mapping[str, Mapping[str, Any]]) -> dict[str, Values]:
    """Zones the subnets of a property are in, when the graph makes them all."""
    used = [subnets[urn] for urn in resource.property_dependencies.get(property_, ()) if urn in subnets]
    found: dict[str, Values] = {}
    for key, label in (("availabilityZone", ZONE_LABEL), ("availabilityZoneId", ZONE_ID_LABEL)):
        zones = [zone for subnet in used if (zone := text(subnet.get(key))) and not is_token(zone)]
        if zones and len(zones) == count:
            found[label] = frozenset(zones)
    return found
