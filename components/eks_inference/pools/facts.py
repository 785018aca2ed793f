"""The subject of the pool rules: one pool and its surroundings. Pure; no pulumi."""

from dataclasses import dataclass
from typing import ClassVar

from eks_inference.pools.spec import PoolSpec
from eks_inference.rules import Path


@dataclass(frozen=True)
class PoolFacts:
    """One pool. ``network_zone_ids`` are the zones with private subnets, or empty when unknown."""

    about: ClassVar[str] = "pools"

    name: str
    spec: PoolSpec
    kubernetes_version: str
    region: str
    network_zone_ids: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    """Names of the model servers that run on it."""

    def at(self, *key: str | int) -> Path:
        """Returns the path of a key of the pool in the stack object."""
        return ("pools", self.name, *key)
