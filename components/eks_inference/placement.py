"""The one value that joins node pools and workloads: no label, taint or instance shape is typed twice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from eks_inference.catalog.instances import InstanceType

if TYPE_CHECKING:  # specs and plans use taints and labels, and must not import pulumi
    import pulumi

POOL_LABEL = "eks-inference/pool"
"""The label both kinds of pool put on their nodes and every placement selects."""

ARCHITECTURE_LABEL = "kubernetes.io/arch"
HOSTNAME_LABEL = "kubernetes.io/hostname"
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
ZONE_LABEL = "topology.kubernetes.io/zone"
"""Well-known labels of Kubernetes. An architecture has the name that Go gives it."""

ZONE_ID_LABEL = "topology.k8s.aws/zone-id"
"""Of nodes on EC2."""

NODE_GROUP_LABEL = "eks.amazonaws.com/nodegroup"
"""EKS's, on the nodes of a managed node group: the group's name."""

CAPACITY_TYPE_LABEL = "karpenter.sh/capacity-type"
KARPENTER_POOL_LABEL = "karpenter.sh/nodepool"
"""Karpenter's, on the nodes it starts: ``on-demand``, ``spot`` or ``reserved``; the NodePool's name."""

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
    """Its ``cores_per_device`` counts the cores at ``logical_cores``, so memory per core follows from it."""
    node_selector: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    max_nodes: int | None = None
    zone_ids: tuple[str, ...] = ()
    ready: "Sequence[pulumi.Resource]" = ()
    efa_interfaces: int = 0
    """EFA interfaces of a node: what its pods can ask for together (``vpc.amazonaws.com/efa``)."""
    driver: str | None = None
    """Version of the Neuron driver on the nodes; None without Neuron devices or when the catalog does not know it."""
    logical_cores: int | None = None
    """How the pool sets logical NeuronCores (LNC); None: the chip's own setting."""
    spot: bool = False
    """Whether nodes may be spot capacity, which EC2 takes back."""
    reserved: bool = False
    """Whether nodes come out of a capacity reservation or capacity block only."""

    def tolerations(self) -> list[dict[str, str]]:
        return [taint.toleration() for taint in self.taints]

    def scheduling(self) -> dict[str, Any]:
        """Node selector and tolerations, as pods and values of charts spell them."""
        return {"nodeSelector": dict(self.node_selector), "tolerations": self.tolerations()}


class Pool(Protocol):
    """Anything that can place a workload: ``ManagedPool``, ``KarpenterPool``, ``ExistingPool``."""

    def placement(self, instance_type: str | None = None) -> Placement:
        """The placement on one instance type of the pool; may be left out when the pool has just one.

        Raises ``ValueError`` naming the pool's instance types when the type is not one of them.
        """
        ...


def place(
    pool: str,
    types: Sequence[InstanceType],
    wanted: str | None,
    *,
    node_selector: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    max_nodes: int | None = None,
    zone_ids: Sequence[str] = (),
    ready: "Sequence[pulumi.Resource]" = (),
) -> Placement:
    """The placement on one of ``types``, as every pool answers ``placement``.

    ``node_selector`` is the pool's label when left out. Where the pool has several instance types the selector also names the
    one chosen, because the placement promises its shape. Raises ``ValueError`` naming the types when ``wanted`` is not one of
    them, or is left out although there are several.
    """
    chosen = [instance for instance in types if wanted in (None, instance.name)]
    if len(chosen) != 1:
        names = ", ".join(instance.name for instance in types)
        fault = f"has no instance type {wanted}" if wanted else "has several instance types and the placement names none"
        raise ValueError(f"pool {pool} {fault}; its instance types: {names}")
    selector = {POOL_LABEL: pool} if node_selector is None else dict(node_selector)
    if len(types) > 1:
        selector[INSTANCE_TYPE_LABEL] = chosen[0].name
    return Placement(pool, chosen[0], selector, tuple(taints), max_nodes, tuple(zone_ids), ready)
