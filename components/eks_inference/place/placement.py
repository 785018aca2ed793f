"""The one value that connects node pools and workloads, so that no label, taint or instance shape is written twice."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from eks_inference.catalog.instances import InstanceType
from eks_inference.faults import Fault, SpecError, did_you_mean
from eks_inference.place.nodes import allocatable, amount, pod_size
from eks_inference.place.wiring import ANYWHERE, Home

if TYPE_CHECKING:  # specs and plans use taints and labels but must not import pulumi
    import pulumi

POOL_LABEL = "eks-inference/pool"
"""The label that both kinds of pool put on their nodes and that placements select."""

ARCHITECTURE_LABEL = "kubernetes.io/arch"
HOSTNAME_LABEL = "kubernetes.io/hostname"
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
ZONE_LABEL = "topology.kubernetes.io/zone"
"""Well-known Kubernetes labels. Architectures have Go's names (``amd64``)."""

ZONE_ID_LABEL = "topology.k8s.aws/zone-id"
"""EKS sets it on EC2 nodes."""

NODE_GROUP_LABEL = "eks.amazonaws.com/nodegroup"
"""EKS sets it on the nodes of a managed node group, to the name of the group."""

CAPACITY_TYPE_LABEL = "karpenter.sh/capacity-type"
KARPENTER_POOL_LABEL = "karpenter.sh/nodepool"
"""Karpenter sets both on the nodes it starts: ``on-demand``, ``spot`` or ``reserved``, and the name of the NodePool."""

DEVICES_LABEL = "eks-inference/devices"
CLAIMS = "claims"
"""The label, with this value, of nodes whose devices a driver offers for claims. Device plugins do not run there."""

OfferedBy = Literal["plugin", "claims"]
"""What offers the devices of a pool's nodes: a device plugin as countable resources, or a driver for claims."""

TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


@dataclass(frozen=True)
class Taint:
    """A node taint, spelled as in Kubernetes."""

    key: str
    value: str
    effect: TaintEffect

    def manifest(self) -> dict[str, str]:
        """Returns the taint without an empty value: the definition of a NodePool refuses one."""
        return {"key": self.key, **({"value": self.value} if self.value else {}), "effect": self.effect}

    def toleration(self) -> dict[str, str]:
        """Returns the toleration that matches exactly this taint."""
        return {"key": self.key, "operator": "Equal", "value": self.value, "effect": self.effect}


@dataclass(frozen=True)
class Placement:
    """Where a workload runs: one instance type of one pool.

    ``max_nodes`` is the largest number of nodes in the pool (None where they follow the pods, bound by limits only);
    ``zone_ids`` are the zones it can start nodes in; the ``ready`` resources must exist before the workload.
    """

    pool: str
    instance_type: InstanceType
    """Its ``cores_per_device`` counts cores at the pool's ``logical_cores`` setting; memory per core follows from it."""
    node_selector: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    max_nodes: int | None = None
    zone_ids: tuple[str, ...] = ()
    ready: "Sequence[pulumi.Resource]" = ()
    efa_interfaces: int = 0
    """EFA interfaces of a node, which its pods share (``vpc.amazonaws.com/efa``)."""
    driver: str | None = None
    """Version of the driver of the nodes' devices; None without devices or when unknown to the catalog."""
    logical_cores: int | None = None
    """Logical NeuronCore configuration (LNC) of the pool; None: the chip's default."""
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    """Kubelet settings of the pool, as in KubeletConfiguration; they change what pods can use of a node."""
    disk_mib_s: int | None = None
    """Throughput of the disk that holds images and what pods download, in MiB/s; None: local disks, or unknown."""
    spot: bool = False
    """Whether nodes may be spot instances, which EC2 can interrupt."""
    reserved: bool = False
    """Whether nodes come only from a capacity reservation or capacity block."""
    devices: OfferedBy = "plugin"
    """What offers the devices of the nodes. With ``claims``, a pod names claims (``device_claims``) instead of resources."""
    others: "tuple[Placement, ...]" = ()
    """Where the same pods run instead, in this order, while the places before have no capacity."""
    home: Home = field(default=ANYWHERE, compare=False)
    """The cluster of the pool. Empty: unknown."""

    @property
    def claimed(self) -> bool:
        """Whether pods claim the devices of these nodes."""
        return self.devices == CLAIMS

    @property
    def places(self) -> "tuple[Placement, ...]":
        """This place and the others, each as the one of its pods."""
        found = (self, *self.others)
        return tuple(replace(one, others=(*found[:n], *found[n + 1 :])) for n, one in enumerate(found))

    def tolerations(self) -> list[dict[str, str]]:
        return [taint.toleration() for taint in dict.fromkeys(taint for one in (self, *self.others) for taint in one.taints)]

    def scheduling(self) -> dict[str, Any]:
        """Returns node selector, or affinity to several places, and tolerations, spelled as in pods and chart values.

        Karpenter starts a node for the first term that it can (``removeRequiredNodeAffinityTerm``). The scheduler takes any node
        that stands.
        """
        if not self.others:
            return {"nodeSelector": dict(self.node_selector), "tolerations": self.tolerations()}
        terms = [_term(one.node_selector) for one in (self, *self.others)]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return {"affinity": {"nodeAffinity": required}, "tolerations": self.tolerations()}

    def resources(
        self, devices: int | None = None, *, cpu: str | None = None, memory: str | None = None
    ) -> dict[str, dict[str, str]]:
        """Returns requests and limits of a container of your own, spelled as in pods.

        ``devices`` are Neuron devices or GPUs; default: all of the node. CPU and memory are Kubernetes quantities; default: what
        a node leaves to pods, in proportion to the devices. On a pool whose devices are claimed, the devices are not among them:
        ``device_claims`` has the rest of the pod. Raises ``SpecError`` for what no such node can give a pod.
        """
        shape = self.instance_type
        wanted = shape.devices if devices is None else devices
        allowed = shape.legal_device_counts or range(min(1, shape.devices), shape.devices + 1)
        faults = list(self._too_large(cpu=cpu, memory=memory))
        if type(wanted) is not int or wanted not in allowed:
            hint = "" if shape.devices else f"{shape.name} has no accelerator: leave devices out"
            faults.append(Fault(("devices",), f"{shape.name} cannot give a pod this many", str(wanted), _listed(allowed), hint))
        if faults:
            raise SpecError(faults)
        size = pod_size(shape, wanted, cpu=cpu, memory=memory, kubelet=self.kubelet, claimed=self.claimed)
        return {"requests": size, "limits": dict(size)}

    def _too_large(self, **given: str | None) -> "Iterator[Fault]":
        """Quantities that are none, or more than a node has for pods."""
        usable = allocatable(self.instance_type, self.kubelet)
        most = {"cpu": f"{usable.cpu_millis}m", "memory": f"{usable.memory_mib}Mi"}
        for key, quantity in given.items():
            if quantity is None:
                continue
            try:
                fits = isinstance(quantity, str) and 0 < amount(quantity) <= amount(most[key])
            except ValueError:
                fits = False
            if not fits:
                allowed = f"a Kubernetes quantity up to {most[key]}, as text"
                yield Fault((key,), f"{self.instance_type.name} cannot give a pod this much", repr(quantity), allowed)


def _term(labels: Mapping[str, str]) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]}


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))


class Pool(Protocol):
    """Anything that can place a workload: ``ManagedPool``, ``KarpenterPool``, ``ExistingPool``."""

    def placement(self, instance_type: str | None = None) -> Placement:
        """Returns the placement on one instance type of the pool, which may be omitted when the pool has only one.

        Raises ``SpecError`` listing the pool's instance types when the type is not one of them.
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
    """Returns the placement on one of ``types``; implements ``Pool.placement`` for every pool.

    ``node_selector`` defaults to the pool's label. In a pool of several instance types the selector also names the chosen type,
    because the placement promises its shape. Raises ``SpecError`` listing the types when ``wanted`` is not one of them, or is
    omitted although there are several.
    """
    chosen = [instance for instance in types if wanted in (None, instance.name)]
    if len(chosen) != 1:
        names = [instance.name for instance in types]
        hint = did_you_mean(str(wanted), names) if wanted else ""
        fault = "has no such instance type" if wanted else "has several instance types and the placement names none"
        raise SpecError([Fault(("instance_type",), f"pool {pool} {fault}", str(wanted or ""), ", ".join(names), hint)])
    selector = {POOL_LABEL: pool} if node_selector is None else dict(node_selector)
    if len(types) > 1:
        selector[INSTANCE_TYPE_LABEL] = chosen[0].name
    return Placement(pool, chosen[0], selector, tuple(taints), max_nodes, tuple(zone_ids), ready)
