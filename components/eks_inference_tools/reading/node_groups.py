"""Reads managed node groups and their launch templates from a graph. Pure.

A value that the program leaves out is empty or None. A secret or unknown value is its token, unless stated otherwise.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email import message_from_string
from functools import cached_property
from typing import Any

import yaml

from eks_inference.place.placement import POOL_LABEL, Taint
from eks_inference_tools.reading.machines import Machine, Subnets, known, known_taints, subnets_of
from eks_inference_tools.reading.scalars import whole
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.values import at, is_token, items, table, text, texts

# Sources: awslabs/amazon-eks-ami, nodeadm/doc (NodeConfig, MIME documents); Neuron documentation, "EKS prerequisites".

_NODE_CONFIG = "application/node.eks.aws"
_LOGICAL_CORES = re.compile(r"NEURON_LOGICAL_NC_CONFIG=(\d+)")
_HUGE_PAGES = re.compile(r"vm[./]nr_hugepages\s*=\s*(\d+)")


@dataclass(frozen=True)
class UserData:
    """``kubelet`` has fields of KubeletConfiguration. ``raid``: pods use the instance store as their disk. ``logical_cores`` is
    the number of physical NeuronCores in a logical one, ``huge_pages`` the number of reserved pages of 2 MiB. ``read`` is False
    when the user data is unknown or cannot be parsed.
    """

    kubelet: Mapping[str, Any] = field(default_factory=dict)
    raid: bool = False
    logical_cores: int | None = None
    huge_pages: int | None = None
    read: bool = True


def user_data(encoded: Any) -> UserData:
    """Reads user data in base64. None and an empty text have no settings."""
    if encoded is None or encoded == "":
        return UserData()
    try:
        if not isinstance(encoded, str) or is_token(encoded):
            return UserData(read=False)
        return _read(base64.b64decode(encoded, validate=True).decode())
    except (ValueError, yaml.YAMLError):
        return UserData(read=False)


def _read(content: str) -> UserData:
    parts = list(_parts(content))
    specs = [at(yaml.safe_load(part), "spec") for media_type, part in parts if media_type == _NODE_CONFIG]
    cores, pages = ([int(n) for _, part in parts for n in pattern.findall(part)[:1]] for pattern in (_LOGICAL_CORES, _HUGE_PAGES))
    return UserData(
        kubelet={key: value for spec in specs for key, value in table(at(spec, "kubelet", "config")).items()},
        raid=any(at(spec, "instance", "localStorage", "strategy") == "RAID0" for spec in specs),
        logical_cores=cores[-1] if cores else None,
        huge_pages=pages[-1] if pages else None,
    )


def _parts(content: str) -> Iterator[tuple[str, str]]:
    """The parts as (media type, text). A document that is not MIME is a single script or NodeConfig."""
    if not content.lstrip().lower().startswith(("mime-version:", "content-type:")):
        yield (_NODE_CONFIG if "node.eks.aws/" in content and not content.startswith("#!") else "text/x-shellscript"), content
        return
    for part in message_from_string(content).walk():
        payload = part.get_payload()
        if isinstance(payload, str):
            yield part.get_content_type(), payload


NODE_GROUP_TYPE = "aws:eks/nodeGroup:NodeGroup"
LAUNCH_TEMPLATE_TYPE = "aws:ec2/launchTemplate:LaunchTemplate"

CUSTOM_IMAGE = "CUSTOM"
"""The AMI type of a node group whose launch template sets the image."""


@dataclass(frozen=True, eq=False)
class LaunchTemplate(Machine):
    """A launch template. That of a node group without one is empty and has no ``resource``."""

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
    def tenancy(self) -> str:
        return text(at(self.document, "placement", "tenancy"))

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
    """A managed node group. ``template`` is None when its launch template is outside the graph."""

    resource: Resource
    template: LaunchTemplate | None
    subnets: Subnets

    @property
    def urn(self) -> str:
        return self.resource.urn

    @cached_property
    def name(self) -> str:
        """Its name in EKS, else the logical name of the resource."""
        return known(self._inputs.get("nodeGroupName")) or text(self.resource.name)

    @cached_property
    def pool(self) -> str:
        """The name of its nodes for display: its name in EKS, else the pool in its labels, else the logical name."""
        named = known(self._inputs.get("nodeGroupName"))
        return named or text(at(self.labels, POOL_LABEL)) or text(self.resource.name)

    @property
    def title(self) -> str:
        return f"node group {self.name}"

    @cached_property
    def instance_types(self) -> tuple[str, ...]:
        """Its instance types, the preferred one first. A capacity block has its type in the launch template."""
        named = self.template.instance_type if self.template else ""
        return self.own_instance_types or ((named,) if named else ())

    @cached_property
    def own_instance_types(self) -> tuple[str, ...]:
        """The instance types that the group itself names."""
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
        """The known taints."""
        return known_taints(self.given_taints)

    @property
    def scaling(self) -> tuple[Any, Any, Any]:
        """Minimum, desired and maximum number of nodes, as given."""
        given = self._inputs.get("scalingConfig")
        return at(given, "minSize"), at(given, "desiredSize"), at(given, "maxSize")

    @cached_property
    def sizes(self) -> tuple[int | None, int | None, int | None]:
        """Minimum, desired and maximum number of nodes. None for each that is unknown."""
        low, size, high = map(whole, self.scaling)
        return low, size, high

    @property
    def ami_type(self) -> str:
        return text(self._inputs.get("amiType"))

    @property
    def release(self) -> str:
        """Its AMI release."""
        return text(self._inputs.get("releaseVersion"))

    @property
    def version(self) -> str:
        """Its Kubernetes version."""
        return text(self._inputs.get("version"))

    @property
    def own_image(self) -> bool:
        """Whether its image may not come from EKS."""
        return self.template is None or bool(self.template.image) or self.ami_type == CUSTOM_IMAGE

    @property
    def capacity_type(self) -> str:
        return text(self._inputs.get("capacityType")) or "ON_DEMAND"

    @property
    def is_capacity_block(self) -> bool:
        return self.capacity_type == "CAPACITY_BLOCK"

    @property
    def is_reserved(self) -> bool:
        """Whether it has no more nodes than a reservation does."""
        return self.is_capacity_block or (self.template is not None and self.template.names_reservation)

    @property
    def disk_gib(self) -> int | None:
        """The size of the root disk, from the launch template or the group itself."""
        disk = self.template.root_disk if self.template else None
        return disk.gib if disk and disk.gib else whole(self._inputs.get("diskSize"))

    @property
    def _inputs(self) -> Mapping[str, Any]:
        return self.resource.inputs


def node_groups(graph: Graph) -> tuple[NodeGroup, ...]:
    """The managed node groups of a graph. Leaves out groups that it only reads."""
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
    """The launch templates of a graph, by URN. Leaves out templates that it only reads."""
    return {one.urn: LaunchTemplate(one.inputs, one) for one in graph.of_type(LAUNCH_TEMPLATE_TYPE) if not is_read(one)}


def _template(group: Resource, templates: Mapping[str, LaunchTemplate]) -> LaunchTemplate | None:
    if group.inputs.get("launchTemplate") is None:
        return LaunchTemplate({})
    urns = group.property_dependencies.get("launchTemplate", ())
    return next((templates[urn] for urn in urns if urn in templates), None)
