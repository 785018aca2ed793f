"""Reads NodePools and EC2NodeClasses of Karpenter from a graph. Pure.

A value that the program leaves out is empty or None. A secret or unknown value is its token, unless stated otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eks_inference.place.placement import Taint
from eks_inference_tools.reading.expressions import Expression, expressions
from eks_inference_tools.reading.machines import Machine, Subnets, known, known_taints, subnets_of
from eks_inference_tools.reading.object_kinds import name_of
from eks_inference_tools.reading.scalars import whole
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at, items, table, text

NODE_POOL_TYPE = "kubernetes:karpenter.sh/v1:NodePool"
NODE_CLASS_TYPE = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"

FAMILY_LABEL = "karpenter.k8s.aws/instance-family"


@dataclass(frozen=True, eq=False)
class NodeClass(Machine):
    """An EC2NodeClass; ``document`` is its ``spec``."""

    resource: Resource
    subnets: Subnets

    @property
    def images(self) -> Sequence[Any]:
        """Its ``amiSelectorTerms``, each with ``alias``, ``id`` or ``name``."""
        return items(at(self.document, "amiSelectorTerms"))

    @property
    def own_image(self) -> bool:
        """Whether any of its images may not come from EKS."""
        return any(at(term, "alias") is None for term in self.images)

    @property
    def is_windows(self) -> bool:
        return any(text(at(term, "alias")).startswith("windows") for term in self.images)

    @property
    def kubelet(self) -> Mapping[str, Any]:
        return table(at(self.document, "kubelet"))

    @property
    def uses_instance_store(self) -> bool:
        """Whether pods use the instance store as their disk."""
        return at(self.document, "instanceStorePolicy") == "RAID0"

    @property
    def has_user_data(self) -> bool:
        return at(self.document, "userData") is not None


@dataclass(frozen=True, eq=False)
class NodePool:
    """A NodePool. ``node_class`` is None when its EC2NodeClass is outside the graph."""

    resource: Resource
    node_class: NodeClass | None

    @property
    def urn(self) -> str:
        return self.resource.urn

    @cached_property
    def name(self) -> str:
        return name_of(self.resource)

    @property
    def class_name(self) -> str:
        """The name of its EC2NodeClass. Empty when unknown."""
        return known(at(self._template, "spec", "nodeClassRef", "name"))

    @cached_property
    def requirements(self) -> tuple[Expression, ...]:
        return expressions(at(self._template, "spec", "requirements"))

    def chosen(self, label: str) -> tuple[str, ...]:
        """The values of a label that its requirements list with ``In``."""
        return tuple(value for one in self.requirements if (one.key, one.operator) == (label, "In") for value in one.values)

    @property
    def labels(self) -> Any:
        return at(self._template, "metadata", "labels")

    @property
    def given_taints(self) -> Sequence[Any]:
        return items(at(self._template, "spec", "taints"))

    @cached_property
    def taints(self) -> tuple[Taint, ...]:
        """The known taints."""
        return known_taints(self.given_taints)

    @property
    def replicas(self) -> int | None:
        """The fixed number of nodes. None: nodes follow the pods, or the number is unknown."""
        return whole(at(self._spec, "replicas"))

    @property
    def limits(self) -> Any:
        return at(self._spec, "limits")

    @property
    def weight(self) -> int:
        return whole(at(self._spec, "weight")) or 0

    @property
    def subnets(self) -> Subnets:
        return self.node_class.subnets if self.node_class else Subnets()

    @property
    def _spec(self) -> Any:
        return self.resource.inputs.get("spec")

    @property
    def _template(self) -> Any:
        return at(self._spec, "template")


def node_pools(graph: Graph) -> tuple[NodePool, ...]:
    """The NodePools of a graph. Leaves out objects that it only reads."""
    classes = {text(at(node_class.resource.inputs, "metadata", "name")): node_class for node_class in node_classes(graph)}
    return tuple(
        NodePool(resource, classes.get(text(at(resource.inputs, "spec", "template", "spec", "nodeClassRef", "name"))))
        for resource in graph.of_type(NODE_POOL_TYPE)
        if is_kubernetes_object(resource)
    )


def node_classes(graph: Graph) -> tuple[NodeClass, ...]:
    """The EC2NodeClasses of a graph. Leaves out objects that it only reads."""
    return tuple(
        NodeClass(one.inputs.get("spec"), one, subnets_of(graph, one, "spec", at(one.inputs.get("spec"), "subnetSelectorTerms")))
        for one in graph.of_type(NODE_CLASS_TYPE)
        if is_kubernetes_object(one)
    )
