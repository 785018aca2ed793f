"""A pool that somebody else made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pulumi

from eks_inference.catalog import instances
from eks_inference.placement import Placement, Taint, place


@dataclass(frozen=True)
class ExistingPool:
    """Nodes the team already has: a node group, a Karpenter NodePool, anything with a label of its own.

    ``node_selector`` is what tells these nodes from others, ``taints`` what they carry, ``max_nodes`` how many there can be
    (None: not bounded), ``efa_interfaces`` how many EFA interfaces a node has, ``driver`` the version of their Neuron driver.
    Placements raise ``KeyError`` for instance types the catalog does not know.
    """

    pool: str
    node_selector: Mapping[str, str]
    instance_types: Sequence[str]
    taints: Sequence[Taint] = ()
    max_nodes: int | None = None
    zone_ids: Sequence[str] = ()
    ready: Sequence[pulumi.Resource] = ()
    efa_interfaces: int = 0
    driver: str | None = None

    def placement(self, instance_type: str | None = None) -> Placement:
        """Where a workload runs on this pool; see ``Pool``."""
        placement = place(
            self.pool,
            [instances.instance_type(name) for name in self.instance_types],
            instance_type,
            node_selector=self.node_selector,
            taints=self.taints,
            max_nodes=self.max_nodes,
            zone_ids=self.zone_ids,
            ready=self.ready,
        )
        return replace(placement, efa_interfaces=self.efa_interfaces, driver=self.driver)
