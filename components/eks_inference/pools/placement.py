"""The one value that joins node pools and workloads: no label, taint or instance shape is typed twice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import pulumi

from eks_inference.catalog.instances import InstanceType

POOL_LABEL = "eks-inference/pool"
"""The label both kinds of pool put on their nodes and every placement selects."""

TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


@dataclass(frozen=True)
class Taint:
    """A node taint in Kubernetes spelling."""

    key: str
    value: str
    effect: TaintEffect

    def manifest(self) -> dict[str, str]:
        return {"key": self.key, "value": self.value, "effect": self.effect}

    def toleration(self) -> dict[str, str]:
        """The toleration that answers exactly this taint."""
        return {"key": self.key, "operator": "Equal", "value": self.value, "effect": self.effect}


@dataclass(frozen=True)
class Placement:
    """Where a workload runs: one instance type of one pool.

    ``max_nodes`` is the number of nodes the pool can have at most (None: bounded by cpu limits only, as Karpenter pools are);
    ``zone_ids`` are the zones it can start nodes in; ``ready`` must exist before the workload.
    """

    pool: str
    instance_type: InstanceType
    node_selector: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    max_nodes: int | None = None
    zone_ids: tuple[str, ...] = ()
    ready: Sequence[pulumi.Resource] = ()

    def tolerations(self) -> list[dict[str, str]]:
        return [taint.toleration() for taint in self.taints]


class Pool(Protocol):
    """Anything that can place a workload: ``ManagedPool``, ``KarpenterPool``, ``ExistingPool``."""

    def placement(self, instance_type: str | None = None) -> Placement:
        """The placement on one instance type of the pool; may be left out when the pool has just one.

        Raises ``ValueError`` naming the pool's instance types when the type is not one of them.
        """
        ...
