"""Reads what managed node groups and NodePools have in common: disks, interfaces, subnets, taints. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from eks_inference.place.placement import Taint, TaintEffect
from eks_inference_tools.reading.scalars import quantity, whole
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at, is_token, items, text, unique

SUBNET_TYPE = "aws:ec2/subnet:Subnet"

_EFFECTS_OF_EKS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}

GIB = 2**30


@dataclass(frozen=True)
class Disk:
    """One of the ``blockDeviceMappings`` of a launch template or EC2NodeClass.

    ``size`` is as given: GiB for EC2, a quantity for Karpenter; ``throughput`` in MiB/s. ``ebs`` is False for an instance store.
    """

    device: str
    size: Any
    type: str
    iops: Any
    throughput: Any
    encrypted: Any
    ebs: bool
    is_root: bool

    @property
    def gib(self) -> int | None:
        size, found = whole(self.size), quantity(self.size)
        return size if size is not None else None if found is None else int(found / GIB)


@dataclass(frozen=True)
class Subnet:
    """The zone name and zone id of a subnet. Each is empty when unknown."""

    zone: str
    zone_id: str


@dataclass(frozen=True)
class Subnets:
    """The subnets of nodes: ``named`` is how many the program gives, ``made`` those among them that the graph makes."""

    named: int = 0
    made: tuple[Subnet, ...] = ()

    @property
    def zones(self) -> frozenset[str]:
        """The names of all zones. Empty when any may be missing."""
        return self._all(subnet.zone for subnet in self.made)

    @property
    def zone_ids(self) -> frozenset[str]:
        """The ids of all zones. Empty when any may be missing."""
        return self._all(subnet.zone_id for subnet in self.made)

    def _all(self, found: Iterable[str]) -> frozenset[str]:
        known = [one for one in found if one]
        return frozenset(known) if len(known) >= self.named else frozenset()


@dataclass(frozen=True, eq=False)
class Machine:
    """The common fields of launch templates and EC2NodeClasses. ``document`` is the given launch template or ``spec``."""

    document: Any

    @cached_property
    def disks(self) -> tuple[Disk, ...]:
        return tuple(
            Disk(
                device=text(at(item, "deviceName")),
                size=at(item, "ebs", "volumeSize"),
                type=text(at(item, "ebs", "volumeType")),
                iops=at(item, "ebs", "iops"),
                throughput=at(item, "ebs", "throughput"),
                encrypted=at(item, "ebs", "encrypted"),
                ebs=at(item, "ebs") is not None,
                is_root=at(item, "rootVolume") is True,
            )
            for item in items(at(self.document, "blockDeviceMappings"))
        )

    @property
    def root_disk(self) -> Disk | None:
        """The disk with ``rootVolume``, else the first."""
        return next((disk for disk in self.disks if disk.is_root), next(iter(self.disks), None))

    @cached_property
    def interfaces(self) -> Sequence[Any]:
        return items(at(self.document, "networkInterfaces"))

    @cached_property
    def efa_interfaces(self) -> int | None:
        """The number of EFA interfaces. None when unknown."""
        if is_token(at(self.document, "networkInterfaces")):
            return None
        return sum(text(at(interface, "interfaceType")).startswith("efa") for interface in self.interfaces)


def subnets_of(graph: Graph, resource: Resource, property_: str, given: Any) -> Subnets:
    """The subnets that a property of a resource refers to. ``given`` is the list in it."""
    urns = resource.property_dependencies.get(property_, ())
    used = (graph.by_urn[urn] for urn in urns if urn in graph.by_urn and graph.by_urn[urn].type == SUBNET_TYPE)
    made = tuple(Subnet(known(one.inputs.get("availabilityZone")), known(one.inputs.get("availabilityZoneId"))) for one in used)
    return Subnets(len(items(given)), made)


def taint(value: Any) -> str:
    """``key=value:Effect`` of a taint in the spelling of Kubernetes or of the EKS API."""
    if not isinstance(value, Mapping):
        return text(value)
    effect = _effect(value)
    return "=".join(unique((text(value.get("key")), text(value.get("value"))))) + (f":{effect}" if effect else "")


def _effect(value: Any) -> str:
    effect = text(at(value, "effect"))
    return _EFFECTS_OF_EKS.get(effect, effect)


def known_taints(given: Sequence[Any]) -> tuple[Taint, ...]:
    """The taints without those that are secret or unknown."""
    return tuple(
        Taint(text(at(one, "key")), text(at(one, "value")), cast(TaintEffect, effect))
        for one in given
        if not any(is_token(inside) for inside in (one, at(one, "key"), at(one, "value")))
        and (effect := _effect(one)) in ("NoSchedule", "PreferNoSchedule", "NoExecute")
    )


def known(value: Any) -> str:
    """The value as a text. Empty when it is secret or unknown."""
    return "" if is_token(value) else text(value)
