"""The subject of the network rules: address ranges, and how many addresses nodes need. Pure; no pulumi."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from eks_inference.network.spec import NetworkSpec


@dataclass(frozen=True)
class NetworkFacts:
    """A network and its load. ``pods`` maps managed pools to the largest number of pods, of one address each, on their nodes."""

    about: ClassVar[str] = "networks"

    spec: NetworkSpec
    service_cidr: str
    zone_ids: tuple[str, ...]
    pods: Mapping[str, int]
