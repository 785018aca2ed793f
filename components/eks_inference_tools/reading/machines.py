"""What managed node groups and NodePools have in common: disks, interfaces, subnets, taints. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from eks_inference.placement import Taint, TaintEffect
from eks_inference_tools.reading.scalars import quantity, whole
from eks_inference_tools.reading.taints import taint_effect
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, text

SUBNET_TYPE = "aws:ec2/subnet:Subnet"

GIB = 2**30


@dataclass(frozen=True)
class Disk:
    """One of the ``blockDeviceMappings`` of a launch template or EC2NodeClass.

    ``size`` is as it is given: GiB of EC2, or a quantity of Karpenter. ``ebs`` tells it from an instance store.
    """

    device: str
    size: Any
    type: str
    encrypted: Any
    ebs: bool
    is_root: bool

    @property
    def gib(self) -> int | None:
        if (size := whole(self.size)) is not None:
            return size
        found = quantity(self.size)
        return None if found is None else int(found / GIB)


@dataclass(frozen=True)
class Subnet:
    """Zone name and zone id, each empty where it is not known."""

    zone: str
    zone_id: str


@dataclass(frozen=True)
class Subnets:
    """The subnets that nodes start in: how many the program names, and those among them that the graph makes."""

    named: int = 0
    made: tuple[Subnet, ...] = ()

    @property
    def zones(self) -> frozenset[str]:
        """Names of all zones; empty when one of them may be missing."""
        return self._all([subnet.zone for subnet in self.made])

    @property
    def zone_ids(self) -> frozenset[str]:
        """Ids of all zones; empty when one of them may be missing."""
        return self._all([subnet.zone_id for subnet in self.made])

    def _all(self, found: list[str]) -> frozenset[str]:
        known = [one for one in found if one]
        return frozenset(known) if len(known) >= self.named else frozenset()


@dataclass(frozen=True, eq=False)
class Machine:
    """Fields that launch templates and EC2NodeClasses have in common. ``document`` is as it was given."""

    document: Any

    @cached_property
    def disks(self) -> tuple[Disk, ...]:
        return tuple(
            Disk(
                device=text(at(one, "deviceName")),
                size=at(one, "ebs", "volumeSize"),
                type=text(at(one, "ebs", "volumeType")),
                encrypted=at(one, "ebs", "encrypted"),
                ebs=at(one, "ebs") is not None,
                is_root=at(one, "rootVolume") is True,
            )
            for one in items(at(self.document, "blockDeviceMappings"))
        )

    @property
    def root_disk(self) -> Disk | None:
        """The disk that is called so, else the first."""
        return next((disk for disk in self.disks if disk.is_root), next(iter(self.disks), None))

    @cached_property
    def interfaces(self) -> Sequence[Any]:
        return items(at(self.document, "networkInterfaces"))

    @cached_property
    def efa_interfaces(self) -> int | None:
        """How many of its interfaces are EFA; None when that is not known."""
        if is_token(at(self.document, "networkInterfaces")):
            return None
        return sum(text(at(interface, "interfaceType")).startswith("efa") for interface in self.interfaces)


def subnets_of(graph: Graph, resource: Resource, property_: str, given: Any) -> Subnets:
    urns = resource.property_dependencies.get(property_, ())
    used = (graph.by_urn[urn] for urn in urns if urn in graph.by_urn and graph.by_urn[urn].type == SUBNET_TYPE)
    made = tuple(Subnet(known(one.inputs.get("availabilityZone")), known(one.inputs.get("availabilityZoneId"))) for one in used)
    return Subnets(len(items(given)), made)


def known_taints(given: Sequence[Any]) -> tuple[Taint, ...]:
    return tuple(
        Taint(text(at(one, "key")), text(at(one, "value")), cast(TaintEffect, effect))
        for one in given
        if not any(is_token(inside) for inside in (one, at(one, "key"), at(one, "value")))
        and (effect := taint_effect(one)) in ("NoSchedule", "PreferNoSchedule", "NoExecute")
    )


def known(value: Any) -> str:
    return "" if is_token(value) else text(value)
