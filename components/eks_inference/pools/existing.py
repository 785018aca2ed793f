"""The handle of an existing pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import pulumi

from eks_inference.catalog import instances
from eks_inference.cluster.handle import ControlPlane
from eks_inference.component import Handle, comparing
from eks_inference.faults import Fault, SpecError
from eks_inference.place.placement import INSTANCE_TYPE_LABEL, OfferedBy, Placement, Taint, place
from eks_inference.place.wiring import home_of
from eks_inference.specs.base import ZoneId


@dataclass(frozen=True)
class ExistingPool(Handle):
    """Existing nodes: a node group, a Karpenter NodePool, or any other nodes with a distinguishing label.

    ``node_selector`` selects these nodes and no others, ``taints`` are their taints, ``max_nodes`` is their largest number (None:
    unbounded), ``efa_interfaces`` the number of EFA interfaces per node, ``driver`` the version of their devices' driver, and
    ``devices`` what offers their devices: device plugins, or drivers for claims.
    Raises ``SpecError`` for instance types that are not in the catalog, and for a ``node_selector`` of another type.
    """

    pool: str
    node_selector: Mapping[str, str]
    instance_types: Sequence[str]
    taints: Sequence[Taint] = ()
    max_nodes: int | None = None
    zone_ids: Sequence[ZoneId] = ()
    ready: Sequence[pulumi.Resource] = ()
    efa_interfaces: int = 0
    driver: str | None = None
    devices: OfferedBy = "plugin"
    cluster: ControlPlane | None = None
    """The cluster where it is; None: not said, so that it goes with any."""

    def __post_init__(self) -> None:
        known = instances.instance_types()
        unknown = {position: name for position, name in enumerate(self.instance_types) if name not in known}
        if unknown:
            message = "this instance type is not in the catalog"
            nearest = {name: ", ".join(get_close_matches(name, known)) for name in unknown.values()}
            raise SpecError(
                Fault(("instance_types", position), message, name, nearest[name]) for position, name in unknown.items()
            )
        selected = self.node_selector.get(INSTANCE_TYPE_LABEL)
        if selected and selected not in self.instance_types:
            path, message = ("node_selector", INSTANCE_TYPE_LABEL), "it selects no node of instance_types"
            raise SpecError([Fault(path, message, selected, ", ".join(self.instance_types))])

    @comparing
    def placement(self, instance_type: str | None = None) -> Placement:
        """Returns the placement of a workload on this pool; see ``Pool``."""
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
        return replace(
            placement, efa_interfaces=self.efa_interfaces, driver=self.driver, devices=self.devices, home=home_of(self)
        )
