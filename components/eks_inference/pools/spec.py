"""Specs of node pools: managed node groups of a fixed size, pools that Karpenter fills on demand, and Karpenter itself."""

import re
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from eks_inference.catalog.instances import InstanceType, instance_type, instance_types
from eks_inference.place.placement import DEVICES_LABEL, INSTANCE_TYPE_LABEL, POOL_LABEL, OfferedBy, Taint, TaintEffect
from eks_inference.pools.node_spec import (
    EfaSpec,
    KarpenterAmi,
    KarpenterKubeletSpec,
    KubeletSpec,
    ManagedAmi,
    PlacementGroupChoice,
    ReleaseAmi,
    RootDiskSpec,
)
from eks_inference.specs.base import Cpu, Form, Memory, Spec, ZoneId, distinct, listed, repeated, stated
from eks_inference.specs.late import Late

_MOST_TAINTS = 50
_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
LabelKey = Annotated[str, Field(pattern=rf"^({_PREFIX}/)?{_NAME}$")]
LabelValue = Annotated[str, Field(pattern=rf"^({_NAME})?$")]
# Source: S3 user guide, "General purpose bucket naming rules". In a URI, a slash ends the name.
BUCKET = (
    r"(?!xn--|sthree-|amzn-s3-demo-|\d+(\.\d+){3}(/|$))(?![^/]*(\.\.|(-s3alias|--ol-s3|\.mrap|--x-s3|--table-s3)(/|$)))"
    r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
)
BUCKET_WORDS = (
    "3 to 63 lower-case letters, digits, hyphens and single dots, not an address, and without a reserved beginning or end "
    "(xn--, sthree-, amzn-s3-demo-; -s3alias, --ol-s3, .mrap, --x-s3, --table-s3)"
)
BucketName = Annotated[Late, Form(BUCKET, f"the name of an S3 bucket: {BUCKET_WORDS}")]
Duration = Annotated[str, Field(pattern=r"^((\d+[smh])+|Never)$", description="'300s', '720h', '1h30m' or 'Never'.")]

GracePeriod = Annotated[str, Field(pattern=r"^(\d+[smh])+$", description="'600s', '2h' or '1h30m'.")]
ReservationId = Annotated[Late, Form(r"cr-[0-9a-f]{8,17}", "the id of a capacity reservation, such as cr-0123456789abcdef0")]
ReservationGroupArn = Annotated[
    Late,
    Form(
        r"arn:aws[a-z-]*:resource-groups:[a-z0-9-]+:\d{12}:group/.+",
        "the ARN of a resource group (arn:aws:resource-groups:<region>:<account>:group/<name>)",
    ),
]
KeyPairName = Annotated[Late, Form(r"[!-~]([ -~]{0,253}[!-~])?", "the name of an EC2 key pair: 1 to 255 ASCII characters")]


def seconds_of(value: str) -> int:
    """Returns the seconds of a duration such as 1h30m."""
    return sum(int(count) * {"s": 1, "m": 60, "h": 3600}[unit] for count, unit in re.findall(r"(\d+)([smh])", value))


def _lasts(value: str) -> str:
    if value != "Never" and seconds_of(value) < 3600:
        raise ValueError(
            f"nodes would end after {value}, and a model server takes up to an hour until it answers on a new one: Karpenter "
            "would replace nodes without end; give at least 1h, or Never"
        )
    return value


NodeLifetime = Annotated[Duration, AfterValidator(_lasts)]

# A kubelet may set labels under kubernetes.io with these two prefixes and below them (Kubernetes, "NodeRestriction"). The
# reserved ones belong to Kubernetes, Karpenter and EKS.
_OWN_PREFIXES = ("node.kubernetes.io", "kubelet.kubernetes.io")
_RESERVED_PREFIXES = ("kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.k8s.aws", "eks.amazonaws.com")


def _is_below(prefix: str, domains: tuple[str, ...]) -> bool:
    return any(prefix == domain or prefix.endswith(f".{domain}") for domain in domains)


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
    # Not min_length: it counts only valid items and would report a misspelt one twice.
    if not values:
        raise ValueError("give at least one")
    return values


Item = TypeVar("Item", bound=str)
Distinct = Annotated[tuple[Item, ...], AfterValidator(distinct)]
InstanceTypeName = Annotated[
    str,
    AfterValidator(_known_instance_type),
    Field(description="EC2 instance type.", json_schema_extra=listed("InstanceType")),
]
InstanceFamily = Annotated[
    str,
    AfterValidator(_known_family),
    Field(description="EC2 instance family, e.g. inf2.", json_schema_extra=listed("InstanceFamily")),
]


class TaintSpec(Spec):
    """A node taint."""

    key: LabelKey
    value: LabelValue = ""
    effect: TaintEffect = "NoSchedule"

    def taint(self) -> Taint:
        return Taint(self.key, self.value, self.effect)


class _PoolBase(RootDiskSpec):
    """The fields of both kinds of pool."""

    extra_labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description=f"Node labels in addition to {POOL_LABEL}=<pool>, which placements use."
    )
    taints: tuple[TaintSpec, ...] | None = Field(
        default=None,
        description="Replaces the default taint, which keeps other pods off accelerators: aws.amazon.com/neuron=true:NoSchedule "
        "or nvidia.com/gpu=true:NoSchedule by instance type, none for pools without accelerators.",
    )
    extra_taints: tuple[TaintSpec, ...] = Field(default=(), description="Node taints in addition to those above.")
    devices: OfferedBy = Field(
        default="plugin",
        # Like an unset key, the default is not an input of the component.
        exclude_if=lambda choice: choice == "plugin",
        description="What offers accelerators and EFA interfaces to pods. plugin: device plugins, as counted resources. claims: "
        "drivers for dynamic resource allocation, from which the scheduler itself allocates connected sets; needs "
        "Kubernetes 1.34 and a number of nodes that does not follow the pods.",
    )
    kubelet: KarpenterKubeletSpec = Field(
        default_factory=KarpenterKubeletSpec, description="Fields of KubeletConfiguration to set; only those that Karpenter has."
    )
    metadata_hop_limit: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Network hops that responses of the instance metadata service may take. 1: pods cannot get the node's "
        "credentials, except pods on the host network. 2: pods can read instance metadata.",
    )
    zone_ids: Distinct[ZoneId] = Field(
        default=(),
        description="Zones to start nodes in. Default: all zones of the network; for a managed pool with accelerators the first "
        "two, as far as they offer the instance type, so that adding a zone to the network replaces no node.",
    )

    def instances(self) -> tuple[InstanceType, ...]:
        """Returns the instance types of the catalog that this pool can start."""
        raise NotImplementedError

    @property
    def claimed(self) -> bool:
        """Whether pods claim the devices of the nodes."""
        return self.devices == "claims"

    @model_validator(mode="after")
    def _consistent_base(self) -> Self:
        # A pool has one image, for one architecture and one kind of driver, and one taint, for one kind of device.
        for what in ("accelerator", "architecture"):
            found = {instance.name: getattr(instance, what) for instance in self.instances()}
            if len(set(found.values())) > 1:
                raise ValueError(f"instance types of one pool differ in {what}: {found}; create a pool for each")
        if POOL_LABEL in self.extra_labels:
            raise ValueError(f"{POOL_LABEL} is the pool's name; placements rely on it")
        if INSTANCE_TYPE_LABEL in self.extra_labels:
            raise ValueError(f"{INSTANCE_TYPE_LABEL} is the node's own; placements rely on it")
        if DEVICES_LABEL in self.extra_labels:
            raise ValueError(f"{DEVICES_LABEL} says what offers the devices: set devices instead")
        if self.claimed and not any(instance.accelerator or instance.efa_interfaces for instance in self.instances()):
            raise ValueError("devices: claims is for pools with accelerators or EFA interfaces; leave it out")
        for key in self.extra_labels:
            prefix = key.rpartition("/")[0]
            if _is_below(prefix, _RESERVED_PREFIXES) and not _is_below(prefix, _OWN_PREFIXES):
                raise ValueError(f"label {key} is reserved: nodes may not set labels under {prefix}")
        if len(self.extra_taints) > _MOST_TAINTS:
            raise ValueError(f"extra_taints: {len(self.extra_taints)} given, at most {_MOST_TAINTS} (EKS API, CreateNodegroup)")
        if twice := repeated(f"{taint.key}:{taint.effect}" for taint in (*(self.taints or ()), *self.extra_taints)):
            raise ValueError(f"taints given more than once: {', '.join(twice)}")
        return self


class Autoscaled(Spec):
    """Declares that something outside this program, such as cluster-autoscaler or an operator, sets the number of nodes."""

    min: int = Field(ge=0, description="Smallest number of nodes.")
    max: int = Field(ge=1, le=450, description="Largest number of nodes. EKS allows 450 per group.")


class ManagedPoolSpec(_PoolBase):
    """A managed node group of a fixed size: nothing in this library scales it."""

    kind: Literal["managed"] = "managed"
    instance_types: Annotated[Distinct[InstanceTypeName], AfterValidator(_not_empty)] = Field(
        max_length=20, description="EC2 instance types, the preferred one first.", json_schema_extra={"minItems": 1}
    )
    size: int = Field(ge=0, le=450, description="Number of nodes; when autoscaled, only the initial number.")
    autoscaled: Autoscaled | None = Field(default=None, description="Bounds of an external autoscaler, which then owns the size.")
    capacity_type: Literal["on_demand", "spot", "capacity_block"] = Field(
        default="on_demand", description="Purchase option of the nodes."
    )
    capacity_reservation_id: ReservationId | None = Field(
        default=None,
        description="Start nodes only in this capacity reservation; required for a capacity block.",
    )
    capacity_reservation_group_arn: ReservationGroupArn | None = Field(
        default=None,
        description="Start nodes only in the capacity reservations of this resource group.",
    )
    efa: EfaSpec | None = Field(
        default=None,
        description="Give nodes EFA interfaces with the security group and placement group they need. All nodes of the pool are "
        "then in one zone. Default: plain interfaces.",
    )
    placement: PlacementGroupChoice = Field(
        default="auto",
        # Like an unset key, the default is not an input of the component.
        exclude_if=lambda choice: choice == "auto",
        description="Placement group of the nodes. auto: a new cluster placement group with efa, unless nodes come from a "
        "reservation, which has capacity only in the group it was made in. none: no group. {name: ...}: an existing group.",
    )
    logical_cores: Literal[1, 2] | None = Field(
        default=None,
        description="Number of NeuronCores per logical core (LNC) on the nodes. 1 doubles the cores and halves the memory of "
        "each; models must be compiled for the same setting. Default: that of the chip (Trn2: 2). Only for chips with the "
        "setting.",
    )
    kubelet: KubeletSpec = Field(default_factory=KubeletSpec, description="Fields of KubeletConfiguration to set.")
    ami: ManagedAmi = Field(default=ReleaseAmi(), description="The machine image.")
    s3_read_buckets: tuple[BucketName, ...] = Field(default=(), description="S3 buckets that the nodes themselves may read.")
    ssh_key_name: KeyPairName | None = Field(default=None, description="EC2 key pair for SSH. Session Manager needs none.")
    update_strategy: Literal["default", "minimal"] | None = Field(
        default=None,
        description="default: updates start new nodes first. minimal: updates stop old nodes first and need no spare capacity. "
        "Default: minimal with an accelerator.",
    )
    max_unavailable: int = Field(default=1, ge=1, le=100, description="Nodes that an update replaces at a time.")
    node_repair: bool = Field(
        default=False,
        description="Let EKS replace unhealthy nodes, or restart them. Off by default: there may be no capacity to replace an "
        "accelerator node, and the add-on eks-node-monitoring-agent, which a stack then gets, is known for false alarms.",
    )

    def instances(self) -> tuple[InstanceType, ...]:
        return tuple(instance_type(name) for name in self.instance_types)

    @property
    def reserved(self) -> bool:
        """Whether nodes come from a capacity reservation or capacity block."""
        return bool(self.capacity_reservation_id or self.capacity_reservation_group_arn)

    @property
    def max_nodes(self) -> int:
        return self.autoscaled.max if self.autoscaled else self.size

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        # The launch template contains the interfaces, and all instance types of the pool share it.
        cards = {instance.name: (instance.efa_interfaces, instance.network_cards) for instance in self.instances()}
        if self.efa and len(set(cards.values())) > 1:
            shown = ", ".join(f"{name}: {efa} on {count} cards" for name, (efa, count) in cards.items())
            raise ValueError(f"instance types of one EFA pool differ in EFA interfaces ({shown}); create a pool for each")
        for instance in self.instances():
            if self.logical_cores and len(instance.logical_core_settings) < 2:
                raise ValueError(f"{instance.name} has no setting for logical cores: omit logical_cores")
        if self.autoscaled and not self.autoscaled.min <= self.size <= self.autoscaled.max:
            raise ValueError(f"size {self.size} is not between {self.autoscaled.min} and {self.autoscaled.max}")
        # Source: EKS API, CreateNodegroup (labels, taints): at most 63 characters, and no empty value of a label.
        keys = [*self.extra_labels, *(taint.key for taint in (*(self.taints or ()), *self.extra_taints))]
        if long := [key for key in keys if len(key) > 63]:
            raise ValueError(f"EKS takes keys of labels and taints of at most 63 characters with their prefix: {', '.join(long)}")
        if empty := [key for key, value in self.extra_labels.items() if not value]:
            raise ValueError(f'EKS takes no label with an empty value: {", ".join(empty)}; give one, e.g. "true"')
        # Source: EKS user guide, "Use Capacity Blocks for ML with managed node groups".
        if self.capacity_reservation_id and self.capacity_reservation_group_arn:
            raise ValueError("give either capacity_reservation_id or capacity_reservation_group_arn")
        if self.capacity_type == "spot" and self.reserved:
            key = "capacity_reservation_id" if self.capacity_reservation_id else "capacity_reservation_group_arn"
            raise ValueError(f"spot instances cannot use a {key}")
        if self.capacity_type == "capacity_block":
            if not self.capacity_reservation_id:
                raise ValueError("a capacity block needs its capacity_reservation_id")
            if len(self.instance_types) != 1 or len(self.zone_ids) != 1:
                raise ValueError("a capacity block has exactly one instance type and one zone: give one of each")
        return self


_OF_DYNAMIC_POOLS = ("cpu_limit", "memory_limit", "weight", "consolidation_policy", "consolidate_after")


class KarpenterPoolSpec(_PoolBase):
    """A pool that Karpenter fills: one EC2NodeClass and one NodePool.

    Karpenter adds and removes nodes with demand from pods, or keeps a fixed number of them, when ``replicas`` is given.
    """

    kind: Literal["karpenter"] = Field(default="karpenter", json_schema_extra=stated)
    instance_types: Distinct[InstanceTypeName] = Field(default=(), description="Instance types; or set instance_families.")
    instance_families: Distinct[InstanceFamily] = Field(default=(), description="Instance families; or set instance_types.")
    capacity_types: Distinct[Literal["on_demand", "spot"]] = Field(
        default=("on_demand",),
        min_length=1,
        description="Purchase options; Karpenter prefers spot where both are given. An account that never had spot instances "
        "needs EC2's service-linked role for them, or Karpenter starts none without a word: "
        "`aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`.",
    )
    replicas: int | None = Field(
        default=None,
        ge=0,
        description="Number of nodes that Karpenter keeps whatever pods ask for (static capacity, alpha): set "
        "karpenter.static_capacity, too. Instance types and zones of the nodes are Karpenter's choice. Limits of CPU and memory, "
        "weight and consolidation are of pools that follow the pods. Giving or removing it replaces the pool with its nodes. "
        "Default: nodes follow the pods.",
    )
    ami: KarpenterAmi = Field(default=ReleaseAmi(), description="The machine image.")
    node_limit: int | None = Field(
        default=None,
        ge=0,
        description="Limit for the number of nodes, also while some are replaced; default: none.",
    )
    cpu_limit: Cpu | None = Field(default="1000", description="Limit for all vCPUs of the pool; null: no limit.")
    memory_limit: Memory | None = Field(default=None, description="Limit for all memory of the pool.")
    consolidation_policy: Literal["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"] = Field(
        default="WhenEmpty",
        description="Which nodes Karpenter removes. WhenEmpty never moves a model server, which takes long to load.",
    )
    consolidate_after: Duration = Field(default="300s", description="How long a node must be removable before it is removed.")
    expire_after: NodeLifetime = Field(
        default="720h", description="Age at which Karpenter drains and replaces a node; at least an hour."
    )
    termination_grace_period: GracePeriod | None = Field(
        default="2h",
        description="Time that pods and disruption budgets may hold up the end of a node, after which Karpenter ends it all the "
        "same; also nodes with an outdated image are replaced then. null: they may hold it up without end.",
    )
    weight: int | None = Field(
        default=None, ge=1, le=100, description="Priority among the pools that fit a pod; higher comes first."
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

    # Source: Karpenter 1.14, NodePools, spec.replicas; the API server refuses the limits and the weight.
    @model_validator(mode="after")
    def _follows_pods_or_not(self) -> Self:
        fields = type(self).model_fields
        if self.replicas is not None and (
            given := [key for key in _OF_DYNAMIC_POOLS if getattr(self, key) not in (fields[key].default, None)]
        ):
            raise ValueError(
                f"a pool with a fixed number of nodes takes none of these: leave out {', '.join(given)}, or replicas"
            )
        return self


PoolSpec = Annotated[ManagedPoolSpec | KarpenterPoolSpec, Field(discriminator="kind")]
"""A pool of either kind."""


class KarpenterSpec(Spec):
    """The Karpenter controller. One controller per cluster serves all Karpenter pools."""

    replicas: int = Field(default=2, ge=1, le=2, description="Controller pods, each on its own node of the core pool.")
    s3_read_buckets: tuple[BucketName, ...] = Field(default=(), description="S3 buckets that Karpenter's nodes may read.")
    node_repair: bool = Field(
        default=False,
        description="Let Karpenter replace unhealthy nodes of all its pools (feature gate NodeRepair, alpha): 10 minutes after "
        "an accelerator has failed, 30 minutes after anything else has, without regard to disruption budgets. Off by default for "
        "the reasons given at node_repair of managed pools.",
    )
    static_capacity: bool = Field(
        default=False,
        description="Keep pools of a fixed number of nodes: those with replicas (feature gate StaticCapacity, alpha).",
    )
    values: dict[str, Any] = Field(
        default_factory=dict,
        description="Values of the karpenter chart, beside ours; only what is below image or resources replaces ours.",
    )
