"""Specs of node pools: groups that EKS manages at a fixed size, and pools that Karpenter fills on demand."""

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from eks_inference.catalog.instances import InstanceType, instance_type, instance_types
from eks_inference.placement import POOL_LABEL, Taint, TaintEffect
from eks_inference.pools.ami_spec import KarpenterAmi, ManagedAmi, ReleaseAmi
from eks_inference.spec import Quantity, Spec, ZoneId

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
LabelKey = Annotated[str, Field(pattern=rf"^({_PREFIX}/)?{_NAME}$")]
LabelValue = Annotated[str, Field(pattern=rf"^({_NAME})?$")]
BucketName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
Duration = Annotated[str, Field(pattern=r"^((\d+[smh])+|Never)$", description="'300s', '720h', '1h30m' or 'Never'.")]

# Of the labels under kubernetes.io a kubelet may only set these two kinds itself (Kubernetes, "NodeRestriction"); the others
# belong to Karpenter and to EKS.
_OWN_PREFIXES = ("node.kubernetes.io", "kubelet.kubernetes.io")
_RESERVED_PREFIXES = ("kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.k8s.aws", "eks.amazonaws.com")


def _known_instance_type(name: str) -> str:
    try:
        instance_type(name)
    except KeyError as error:
        raise PydanticCustomError("NEU001", "{fault}", {"fault": error.args[0]}) from None
    return name


def _known_family(name: str) -> str:
    families = {instance.family for instance in instance_types().values()}
    if name not in families:
        nearest = get_close_matches(name, families, n=3, cutoff=0.3) or sorted(families)
        raise ValueError(f"instance family '{name}' is not in the catalog; nearest: {', '.join(nearest)}")
    return name


def _not_empty(values: tuple[str, ...]) -> tuple[str, ...]:
    # Not min_length: it counts only legal items, and would blame a misspelt one twice.
    if not values:
        raise ValueError("give at least one")
    return values


InstanceTypeName = Annotated[str, AfterValidator(_known_instance_type), Field(description="EC2 instance type.")]
InstanceFamily = Annotated[str, AfterValidator(_known_family), Field(description="EC2 instance family, e.g. inf2.")]


class TaintSpec(Spec):
    """A node taint."""

    key: LabelKey
    value: LabelValue = ""
    effect: TaintEffect = "NoSchedule"

    def taint(self) -> Taint:
        return Taint(self.key, self.value, self.effect)


class _PoolBase(Spec):
    """What both kinds of pool have."""

    extra_labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description=f"Node labels beside {POOL_LABEL}=<pool>, which placements use."
    )
    taints: tuple[TaintSpec, ...] | None = Field(
        default=None,
        description="Replaces the taint that keeps other pods off accelerators: aws.amazon.com/neuron=true:NoSchedule or "
        "nvidia.com/gpu=true:NoSchedule by the instance types, none for pools without an accelerator.",
    )
    extra_taints: tuple[TaintSpec, ...] = Field(default=(), description="Node taints beside the ones above.")
    root_volume_gib: int | None = Field(
        default=None,
        ge=30,
        le=16384,
        description="Root disk (gp3, encrypted). Default: 500 with an accelerator, else 100. Images and checkpoints live on "
        "local disks instead where the instance type has them.",
    )
    kubelet: dict[str, Any] = Field(default_factory=dict, description="Fields of KubeletConfiguration to change.")
    metadata_hop_limit: int = Field(
        default=1,
        ge=1,
        le=64,
        description="How far answers of the instance metadata service travel. 1: pods cannot take the node's credentials "
        "(those on the host's network still can). 2: for a pod that has to read instance metadata.",
    )
    zone_ids: tuple[ZoneId, ...] = Field(default=(), description="Zones to start nodes in. Default: all zones of the network.")

    def instances(self) -> tuple[InstanceType, ...]:
        """The catalog's instance types this pool can start."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        """One image serves one architecture and one kind of driver, and one taint guards one kind of device."""
        for what in ("accelerator", "architecture"):
            found = {instance.name: getattr(instance, what) for instance in self.instances()}
            if len(set(found.values())) > 1:
                raise ValueError(f"instance types of one pool differ in {what}: {found}; make a pool for each")
        return self

    @model_validator(mode="after")
    def _legal_labels(self) -> Self:
        if POOL_LABEL in self.extra_labels:
            raise ValueError(f"{POOL_LABEL} is the pool's own name; placements rely on it")
        for key in self.extra_labels:
            prefix = key.rpartition("/")[0]
            reserved = any(prefix == taken or prefix.endswith(f".{taken}") for taken in _RESERVED_PREFIXES)
            if reserved and prefix not in _OWN_PREFIXES:
                raise ValueError(f"label {key} is reserved: nodes may not set labels under {prefix}")
        return self

    @model_validator(mode="after")
    def _distinct_taints(self) -> Self:
        _refuse_twins([(taint.key, taint.effect) for taint in (*(self.taints or ()), *self.extra_taints)])
        return self


def _refuse_twins(taints: Sequence[tuple[str, str]]) -> None:
    twins = [f"{key}:{effect}" for (key, effect), count in Counter(taints).items() if count > 1]
    if twins:
        raise ValueError(f"taints given twice: {', '.join(twins)}")


class Autoscaled(Spec):
    """Declares that something outside this program (cluster-autoscaler, an operator) sets the number of nodes."""

    min: int = Field(ge=0, description="Fewest nodes.")
    max: int = Field(ge=1, le=450, description="Most nodes. EKS allows 450 a group.")


EfaLayout = Literal["hybrid", "ip_optimized", "bandwidth", "all_efa"]


class EfaSpec(Spec):
    """Elastic Fabric Adapter: network interfaces that let nodes of one zone reach into each other's device memory.

    Sources: EC2 user guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards"; terraform-aws-eks
    and pulumi-eks, which both use hybrid.
    """

    layout: EfaLayout = Field(
        default="hybrid",
        description="What the network cards carry. hybrid: an EFA with an IP address on the first card, EFAs without one on the "
        "others. ip_optimized: plain primary interface and EFAs without addresses. bandwidth: as ip_optimized, with plain "
        "interfaces on the other cards too. all_efa: EFAs with addresses throughout, one VPC address each. Where a card has two "
        "slots only (Trn2, P5), ip_optimized and bandwidth leave pods the addresses of one interface, about 50: set "
        "kubelet.maxPods.",
    )
    interfaces: int | None = Field(
        default=None,
        ge=1,
        description="EFA interfaces of a node, one a network card. Default: all that the instance type offers.",
    )


class ExistingPlacementGroup(Spec):
    """A placement group that somebody else made, for instance together with a reservation."""

    name: str = Field(min_length=1, max_length=255, description="Name of the placement group.")


def _placement_form(given: Any) -> str:
    return "existing" if isinstance(given, dict | ExistingPlacementGroup) else "chosen"


PlacementGroupChoice = Annotated[
    Annotated[Literal["auto", "none"], Tag("chosen")] | Annotated[ExistingPlacementGroup, Tag("existing")],
    Discriminator(_placement_form),
]


class ManagedPoolSpec(_PoolBase):
    """A managed node group. Its size is fixed: nothing in this library scales it."""

    kind: Literal["managed"] = "managed"
    instance_types: Annotated[tuple[InstanceTypeName, ...], AfterValidator(_not_empty)] = Field(
        max_length=20, description="EC2 instance types, the preferred one first.", json_schema_extra={"minItems": 1}
    )
    size: int = Field(ge=0, le=450, description="Number of nodes; the first number of nodes when autoscaled.")
    autoscaled: Autoscaled | None = Field(default=None, description="Bounds of an external autoscaler; it then owns the size.")
    capacity_type: Literal["on_demand", "spot", "capacity_block"] = Field(
        default="on_demand", description="How nodes are bought."
    )
    capacity_reservation_id: str | None = Field(
        default=None,
        pattern=r"^cr-[0-9a-f]+$",
        description="Start nodes in this capacity reservation only; a capacity block needs it.",
    )
    capacity_reservation_group_arn: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:resource-groups:[a-z0-9-]+:\d{12}:group/.+$",
        description="Start nodes in the capacity reservations of this resource group.",
    )
    efa: EfaSpec | None = Field(
        default=None,
        description="Give nodes EFA interfaces, and the security group and placement group they need. Such a pool starts all its "
        "nodes in one zone. Default: plain interfaces.",
    )
    placement: PlacementGroupChoice = Field(
        default="auto",
        # Unset keys do not show as inputs of a component either.
        exclude_if=lambda choice: choice == "auto",
        description="Placement group of the nodes. auto: with efa a cluster placement group is made, unless nodes come out of a "
        "reservation, which has capacity only in the group it was made in. none; or {name: ...} of one that exists.",
    )
    logical_cores: Literal[1, 2] | None = Field(
        default=None,
        description="How many NeuronCores form one logical core (LNC) on the nodes. 1 doubles the cores and halves the memory of "
        "each; compiled models must agree. Default: the chip's own (Trn2: 2). Chips without the setting take none.",
    )
    ami: ManagedAmi = Field(default=ReleaseAmi(), description="The machine image.")
    s3_read_buckets: tuple[BucketName, ...] = Field(default=(), description="Buckets the nodes themselves may read.")
    ssh_key_name: str | None = Field(default=None, description="EC2 key pair for SSH. Session Manager works without one.")
    update_strategy: Literal["default", "minimal"] | None = Field(
        default=None,
        description="Updates start new nodes first (default), or stop old ones first (minimal), which needs no spare capacity. "
        "Default: minimal with an accelerator.",
    )
    max_unavailable: int = Field(default=1, ge=1, le=100, description="Nodes that an update replaces at the same time.")
    node_repair: bool = Field(
        default=False,
        description="Let EKS replace unhealthy nodes. Off: a replaced accelerator node may find no capacity to come back.",
    )

    def instances(self) -> tuple[InstanceType, ...]:
        return tuple(instance_type(name) for name in self.instance_types)

    @property
    def reserved(self) -> bool:
        """Whether nodes come out of a capacity reservation or capacity block."""
        return bool(self.capacity_reservation_id or self.capacity_reservation_group_arn)

    @model_validator(mode="after")
    def _one_interface_layout(self) -> Self:
        """The interfaces stand in the launch template, which all instance types of the pool share."""
        cards = {instance.name: (instance.efa_interfaces, instance.network_cards) for instance in self.instances()}
        if self.efa and len(set(cards.values())) > 1:
            shown = ", ".join(f"{name}: {efa} on {count} cards" for name, (efa, count) in cards.items())
            raise ValueError(f"instance types of one EFA pool differ in EFA interfaces ({shown}); make a pool for each")
        return self

    @model_validator(mode="after")
    def _settable_logical_cores(self) -> Self:
        for instance in self.instances():
            if self.logical_cores and len(instance.logical_core_settings) < 2:
                raise ValueError(f"the cores of {instance.name} cannot be joined or parted: leave logical_cores out")
        return self

    @model_validator(mode="after")
    def _size_within_bounds(self) -> Self:
        if self.autoscaled and not self.autoscaled.min <= self.size <= self.autoscaled.max:
            raise ValueError(f"size {self.size} is not between {self.autoscaled.min} and {self.autoscaled.max}")
        return self

    @model_validator(mode="after")
    def _whole_reservation(self) -> Self:
        """Source: EKS user guide, "Use Capacity Blocks for ML with managed node groups"."""
        if self.capacity_reservation_id and self.capacity_reservation_group_arn:
            raise ValueError("give either capacity_reservation_id or capacity_reservation_group_arn")
        if self.capacity_type == "spot" and self.reserved:
            key = "capacity_reservation_id" if self.capacity_reservation_id else "capacity_reservation_group_arn"
            raise ValueError(f"spot capacity does not come out of a {key}")
        if self.capacity_type == "capacity_block":
            if not self.capacity_reservation_id:
                raise ValueError("a capacity block needs its capacity_reservation_id")
            if len(self.instance_types) != 1 or len(self.zone_ids) != 1:
                raise ValueError("a capacity block has exactly one instance type and one zone: give one of each")
        return self


class KarpenterPoolSpec(_PoolBase):
    """A pool that Karpenter fills: one EC2NodeClass and one NodePool. Nodes come and go with the pods that ask for them."""

    kind: Literal["karpenter"]
    instance_types: tuple[InstanceTypeName, ...] = Field(default=(), description="Instance types, or else instance_families.")
    instance_families: tuple[InstanceFamily, ...] = Field(default=(), description="Instance families, or else instance_types.")
    capacity_types: tuple[Literal["on_demand", "spot"], ...] = Field(
        default=("on_demand",), min_length=1, description="How nodes may be bought; Karpenter prefers spot where both are given."
    )
    ami: KarpenterAmi = Field(default=ReleaseAmi(), description="The machine image.")
    cpu_limit: Quantity | None = Field(default="1000", description="vCPUs of all nodes of the pool together; none: no limit.")
    memory_limit: Quantity | None = Field(default=None, description="Memory of all nodes of the pool together.")
    consolidation_policy: Literal["WhenEmpty", "WhenEmptyOrUnderutilized"] = Field(
        default="WhenEmpty",
        description="Which nodes Karpenter removes. WhenEmpty never moves a model server that took long to load.",
    )
    consolidate_after: Duration = Field(default="300s", description="How long a node has to be removable before it goes.")
    expire_after: Duration = Field(default="720h", description="Age at which a node is drained and replaced.")
    weight: int | None = Field(
        default=None, ge=1, le=100, description="Preference among pools that fit a pod; higher goes first."
    )

    def instances(self) -> tuple[InstanceType, ...]:
        if self.instance_types:
            return tuple(instance_type(name) for name in self.instance_types)
        return tuple(instance for instance in instance_types().values() if instance.family in self.instance_families)

    @model_validator(mode="after")
    def _types_or_families(self) -> Self:
        if bool(self.instance_types) == bool(self.instance_families):
            raise ValueError("give either instance_types or instance_families")
        return self


PoolSpec = Annotated[ManagedPoolSpec | KarpenterPoolSpec, Field(discriminator="kind")]
"""A pool of either kind, told apart by ``kind``."""


class KarpenterSpec(Spec):
    """The Karpenter controller. One a cluster serves every ``KarpenterPool``."""

    replicas: int = Field(default=2, ge=1, le=2, description="Controller pods. No two share a node: the core pool needs as many.")
    s3_read_buckets: tuple[BucketName, ...] = Field(default=(), description="Buckets that nodes made by Karpenter may read.")
    values: dict[str, Any] = Field(default_factory=dict, description="Values of the karpenter chart, merged last.")
