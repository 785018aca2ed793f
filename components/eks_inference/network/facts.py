"""What the rules of networks judge: addresses, and how many of them nodes take. Pure; no pulumi."""

from collections.abc import Mapping
from dataclasses import dataclass

from eks_inference.network.spec import NetworkSpec
from eks_inference.rules import Path


@dataclass(frozen=True)
class NetworkFacts:
    """A network and what it carries. ``pods`` is the number of pods (an address each) that managed pools may hold, by pool."""

    path: Path
    spec: NetworkSpec
    service_cidr: str
    service_cidr_path: Path
    zone_ids: tuple[str, ...]
    pods: Mapping[str, int]
