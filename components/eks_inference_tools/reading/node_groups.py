"""Managed node groups of a graph and their launch templates. Pure.

What the program leaves open is empty or None; what is secret or unknown is what stands for it, unless something else is said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eks_inference.placement import POOL_LABEL, Taint
from eks_inference_tools.reading.machines import Machine, Subnets, known, known_taints, subnets_of
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.reading.user_data import UserData, user_data
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.values import at, items, text, texts

NODE_GROUP_TYPE = "aws:eks/nodeGroup:NodeGroup"
LAUNCH_TEMPLATE_TYPE = "aws:ec2/launchTemplate:LaunchTemplate"

CUSTOM_IMAGE = "CUSTOM"
"""AMI type of a node group whose image comes with its launch template."""


@dataclass(frozen=True, eq=False)
class LaunchTemplate(Machine):
    """A launch template; an empty one, without ``resource``, is that of a node group which leaves all to EKS."""

    resource: Resource | None = None

    @property
    def image(self) -> str:
        return text(at(self.document, "imageId"))

    @property
    def instance_type(self) -> str:
        return text(at(self.document, "instanceType"))

    @property
    def placement_group(self) -> str:
        return text(at(self.document, "placement", "groupName") or at(self.document, "placement", "groupId"))

    @property
    def names_reservation(self) -> bool:
        return at(self.document, "capacityReservationSpecification", "capacityReservationTarget") is not None

    @property
    def market_type(self) -> str:
        return text(at(self.document, "instanceMarketOptions", "marketType"))

    @cached_property
    def user_data(self) -> UserData:
        return user_data(at(self.document, "userData"))


@dataclass(frozen=True, eq=False)
class NodeGroup:
    """A managed node group. ``template`` is None when it has one that the graph does not make."""

    resource: Resource
    template: LaunchTemplate | None
    subnets: Subnets

    @property
    def urn(self) -> str:
        return self.resource.urn

    @cached_property
    def name(self) -> str:
        """Its name at EKS, else the resource's."""
        return known(self._inputs.get("nodeGroupName")) or text(self.resource.name)

    @cached_property
    def pool(self) -> str:
        """What people call its nodes: its name at EKS, the pool that its labels name, or the resource's name."""
        named = known(self._inputs.get("nodeGroupName"))
        return named or text(at(self.labels, POOL_LABEL)) or text(self.resource.name)

    @property
    def title(self) -> str:
        return f"node group {self.name}"

    @cached_property
    def instance_types(self) -> tuple[str, ...]:
        """The preferred one first. A capacity block's stands in the template."""
        named = self.template.instance_type if self.template else ""
        return self.own_instance_types or ((named,) if named else ())

    @cached_property
    def own_instance_types(self) -> tuple[str, ...]:
        """Those the group itself names."""
        return texts(self._inputs.get("instanceTypes"))

    @cached_property
    def subnet_ids(self) -> tuple[str, ...]:
        return texts(self._inputs.get("subnetIds"))

    @property
    def labels(self) -> Any:
        return self._inputs.get("labels")

    @property
    def given_taints(self) -> Sequence[Any]:
        return items(self._inputs.get("taints"))

    @cached_property
    def taints(self) -> tuple[Taint, ...]:
        """Those that are known."""
        return known_taints(self.given_taints)

    @property
    def scaling(self) -> tuple[Any, Any, Any]:
        """Least, desired and most nodes as they are given."""
        given = self._inputs.get("scalingConfig")
        return at(given, "minSize"), at(given, "desiredSize"), at(given, "maxSize")

    @cached_property
    def sizes(self) -> tuple[int | None, int | None, int | None]:
        """Least, desired and most nodes; None for what is not known."""
        low, size, high = self.scaling
        return whole(low), whole(size), whole(high)

    @property
    def ami_type(self) -> str:
        return text(self._inputs.get("amiType"))

    @property
    def release(self) -> str:
        """The AMI release."""
        return text(self._inputs.get("releaseVersion"))

    @property
    def version(self) -> str:
        """Its Kubernetes version."""
        return text(self._inputs.get("version"))

    @property
    def own_image(self) -> bool:
        """Whether its image is, or may be, none of EKS."""
        return self.template is None or bool(self.template.image) or self.ami_type == CUSTOM_IMAGE

    @property
    def capacity_type(self) -> str:
        return text(self._inputs.get("capacityType")) or "ON_DEMAND"

    @property
    def is_capacity_block(self) -> bool:
        return self.capacity_type == "CAPACITY_BLOCK"

    @property
    def disk_gib(self) -> int | None:
        """The root disk, by its launch template or by itself."""
        disk = self.template.root_disk if self.template else None
        return disk.gib if disk and disk.gib else whole(self._inputs.get("diskSize"))

    @property
    def _inputs(self) -> Mapping[str, Any]:
        return self.resource.inputs


def node_groups(graph: Graph) -> tuple[NodeGroup, ...]:
    """The managed node groups that the graph makes."""
    templates = launch_templates(graph)
    return tuple(
        NodeGroup(
            resource,
            _template(resource, templates),
            subnets_of(graph, resource, "subnetIds", resource.inputs.get("subnetIds")),
        )
        for resource in graph.of_type(NODE_GROUP_TYPE)
        if not is_read(resource)
    )


def launch_templates(graph: Graph) -> Mapping[str, LaunchTemplate]:
    """The launch templates that the graph makes, by URN."""
    return {one.urn: LaunchTemplate(one.inputs, one) for one in graph.of_type(LAUNCH_TEMPLATE_TYPE) if not is_read(one)}


def _template(group: Resource, templates: Mapping[str, LaunchTemplate]) -> LaunchTemplate | None:
    if group.inputs.get("launchTemplate") is None:
        return LaunchTemplate({})
    urns = group.property_dependencies.get("launchTemplate", ())
    return next((templates[urn] for urn in urns if urn in templates), None)
