"""What the rules of pools judge: one pool, and what it stands on. Pure; no pulumi."""

from dataclasses import dataclass

from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec
from eks_inference.rules import Path


@dataclass(frozen=True)
class PoolFacts:
    """One pool. ``network_zone_ids`` are the zones with private subnets, empty when they are not known."""

    path: Path
    name: str
    spec: ManagedPoolSpec | KarpenterPoolSpec
    kubernetes_version: str
    region: str
    network_zone_ids: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    """Model servers that run on it."""

    def at(self, *key: str | int) -> Path:
        """Where in the stack a key of the pool stands."""
        return (*self.path, *key)
