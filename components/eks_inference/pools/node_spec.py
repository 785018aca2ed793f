"""Specs of a pool's nodes: machine image, root disk, EFA interfaces, placement group and kubelet."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from eks_inference.catalog.instances import FAST_IMAGE_PULL, GP3
from eks_inference.place.nodes import cpu_millis
from eks_inference.specs.base import Form, Memory, Quantity, Spec, stated
from eks_inference.specs.late import Late


class ReleaseAmi(Spec):
    """An AL2023 image that EKS publishes, in the variant for the accelerator of the pool's instance types."""

    kind: Literal["release"] = "release"
    release_version: str | None = Field(
        default=None,
        pattern=r"^1\.\d\d\.\d+-\d{8}$",
        description="EKS AMI release, e.g. 1.35.6-20260714; it decides the Neuron or NVIDIA driver. Default: the catalog's pin.",
    )


ImageId = Annotated[Late, Form(r"ami-[0-9a-f]{8,17}", "the id of an image, such as ami-0123456789abcdef0")]


class ImageIdAmi(Spec):
    """A custom image, built from the AL2023 EKS recipe. It must contain nodeadm."""

    kind: Literal["image_id"] = Field(default="image_id", json_schema_extra=stated)
    id: ImageId = Field(description="Image id in the stack's region.")


class SsmParameterAmi(Spec):
    """A custom image whose id is in an SSM parameter of your account, read at each deployment.

    Parameters that AWS publishes (``/aws/service/…``) cannot be read this way; use ``{kind: release}`` for their images.
    """

    kind: Literal["ssm_parameter"] = Field(default="ssm_parameter", json_schema_extra=stated)
    # Source: Systems Manager API, PutParameter (Name); user guide, "Creating Parameter Store parameters": names that fail.
    name: str = Field(
        pattern=r"^([A-Za-z0-9_.-]+|(/[A-Za-z0-9_.-]+){1,15}|aws/.*)$",
        max_length=1011,
        description="Parameter name; a path begins with a slash and has up to 15 levels. Not under /aws/.",
    )

    @model_validator(mode="after")
    def _own_parameter(self) -> Self:
        if re.match(r"aws|ssm|/(aws|ssm)/", self.name, re.IGNORECASE):
            raise ValueError(
                f"given: {self.name}; names that begin with aws or ssm, and parameters under /aws/, belong to AWS: "
                "use {kind: release}"
            )
        return self


def _refuse_al2(value: Any) -> Any:
    """Refuses Amazon Linux 2. Sources: awslabs/amazon-eks-ami#2545; Neuron release notes."""
    texts = value.values() if isinstance(value, dict) else [value]
    if any(isinstance(text, str) and re.match(r"AL2_|.*amazon-linux-2(?!023)", text) for text in texts):
        fault = (
            f"given: {value!r}; Amazon Linux 2 is refused: EKS has published no AL2 image since 26 November 2025, 1.32 was the "
            "last Kubernetes version with one, and the Neuron runtime dropped it in SDK 2.20. Use {kind: release}, which is "
            "AL2023 with the driver of the pool's accelerator"
        )
        raise PydanticCustomError("NEU016", "{fault}", {"fault": fault})
    return value


ManagedAmi = Annotated[
    Annotated[ReleaseAmi | ImageIdAmi | SsmParameterAmi, Field(discriminator="kind")], BeforeValidator(_refuse_al2)
]
KarpenterAmi = Annotated[Annotated[ReleaseAmi | ImageIdAmi, Field(discriminator="kind")], BeforeValidator(_refuse_al2)]


class RootDiskSpec(Spec):
    """The root disk of a pool's nodes, an encrypted gp3 volume."""

    root_volume_gib: int | None = Field(
        default=None,
        ge=30,
        le=16384,
        description="Root disk (gp3, encrypted). Default: 500 with an accelerator, else 100. Images and checkpoints are on local "
        "disks instead where the instance type has them.",
    )
    root_volume_mib_s: int | None = Field(
        default=None,
        ge=GP3.least_mib_s,
        le=GP3.most_mib_s,
        description="Throughput of the root disk in MiB/s, which bounds image pulls and downloads. Default: "
        f"{FAST_IMAGE_PULL.mib_s} with an accelerator and without local disks, else {GP3.least_mib_s}, which every gp3 volume "
        "has at no charge.",
    )
    root_volume_iops: int | None = Field(
        default=None,
        ge=GP3.least_iops,
        le=GP3.most_iops,
        description=f"Operations a second of the root disk. Default: {GP3.iops_per_mib_s} for each MiB/s of its throughput, the "
        f"fewest that EC2 takes, and at least {GP3.least_iops}, which every gp3 volume has at no charge.",
    )
    fast_image_pull: bool = Field(
        default=False,
        # Like an unset key, the default is not an input of the component.
        exclude_if=lambda on: not on,
        description="Download and unpack the layers of an image in parallel (SOCI snapshotter), which takes more CPU and memory "
        f"meanwhile. For nodes of at least {FAST_IMAGE_PULL.vcpus} vCPU and {FAST_IMAGE_PULL.memory_mib // 1024} GiB whose disk "
        f"has at least {FAST_IMAGE_PULL.mib_s} MiB/s. Off by default: nodeadm calls it experimental.",
    )


EfaLayout = Literal["hybrid", "ip_optimized", "bandwidth", "all_efa"]


class EfaSpec(Spec):
    """Elastic Fabric Adapter: network interfaces with direct access to the device memory of other nodes in the zone.

    Sources: EC2 user guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards"; terraform-aws-eks
    and pulumi-eks, which both use hybrid.
    """

    layout: EfaLayout = Field(
        default="hybrid",
        description="Interfaces of the network cards. hybrid: an EFA with an IP address on the first card, EFAs without one on "
        "the others. ip_optimized: a plain primary interface and EFAs without addresses. bandwidth: like ip_optimized, with "
        "plain interfaces on the other cards too. all_efa: EFAs with one VPC address each on all cards. Where a card has only "
        "two slots (Trn2, P5), ip_optimized and bandwidth leave pods the addresses of one interface, about 50: set "
        "kubelet.maxPods.",
    )
    interfaces: int | None = Field(
        default=None,
        ge=1,
        description="EFA interfaces per node, one per network card. Default: all that the instance type offers.",
    )


PlacementGroupName = Annotated[Late, Form(r"[ -~]{1,255}", "the name of a placement group: 1 to 255 ASCII characters")]


class ExistingPlacementGroup(Spec):
    """An existing placement group, for example one created together with a reservation."""

    name: PlacementGroupName = Field(description="Name of the placement group, in ASCII.")


def _placement_form(given: Any) -> str:
    return "existing" if isinstance(given, dict | ExistingPlacementGroup) else "chosen"


PlacementGroupChoice = Annotated[
    Annotated[Literal["auto", "none"], Tag("chosen")] | Annotated[ExistingPlacementGroup, Tag("existing")],
    Discriminator(_placement_form),
]

# Only settings of the kubelet that the library can judge are here. Others are EKS's (credentials, authorization, cgroups, DNS):
# nodes that change them do not join, or let anyone who reaches them run commands in every pod. Sources: Kubernetes,
# KubeletConfiguration (v1beta1); Karpenter, "NodeClasses", spec.kubelet.

Reserved = Literal["cpu", "memory", "ephemeral-storage", "pid"]
Signal = Literal[
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
]
Threshold = Annotated[
    str,
    Field(
        pattern=r"^(\d+(\.\d+)?(k|[MGT]|[KMGT]i)?|\d{1,2}(\.\d+)?%|100%)$",
        description="A quantity, or a share of the whole: '200Mi', '5%'. 0% and 100% turn a threshold off.",
    ),
]
GracePeriod = Annotated[str, Field(pattern=r"^(0|(\d+(\.\d+)?(h|m|s|ms))+)$", description="'90s', '2m30s', '1.5h'.")]

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def period_seconds(period: str) -> float:
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|s)", period))


class KarpenterKubeletSpec(Spec):
    """Settings that Karpenter can give a node. Reservations and thresholds count in every rule about what fits a node."""

    maxPods: int | None = Field(default=None, ge=1, description="Most pods of a node, DaemonSets included.")
    podsPerCore: int | None = Field(default=None, ge=0, description="Most pods per core; 0: no such limit.")
    systemReserved: dict[Reserved, Quantity] | None = Field(default=None, description="Kept for the system.")
    kubeReserved: dict[Reserved, Quantity] | None = Field(
        default=None, description="Kept for kubelet and container runtime, instead of what AL2023 keeps."
    )
    evictionHard: dict[Signal, Threshold] | None = Field(default=None, description="Below it pods end at once.")
    evictionSoft: dict[Signal, Threshold] | None = Field(default=None, description="Below it pods end after a grace period.")
    evictionSoftGracePeriod: dict[Signal, GracePeriod] | None = Field(
        default=None, description="The grace period of each signal of evictionSoft."
    )
    evictionMaxPodGracePeriod: int | None = Field(
        default=None,
        ge=-1,
        description="The most seconds that a pod gets to end in a soft eviction; -1: its own grace period.",
    )
    imageGCHighThresholdPercent: int | None = Field(
        default=None, ge=1, le=100, description="Disk use above which images are removed."
    )
    imageGCLowThresholdPercent: int | None = Field(
        default=None, ge=0, le=99, description="Disk use down to which images are removed."
    )
    cpuCFSQuota: bool | None = Field(default=None, description="Whether CPU limits of containers are enforced.")

    def settings(self) -> dict[str, Any]:
        """Returns the given settings as in KubeletConfiguration."""
        return self.model_dump(mode="json", exclude_none=True)

    @model_validator(mode="after")
    def _soft_thresholds_have_a_period(self) -> Self:
        soft, periods = set(self.evictionSoft or ()), set(self.evictionSoftGracePeriod or ())
        if soft != periods:
            raise ValueError(
                "the kubelet starts only if evictionSoft and evictionSoftGracePeriod have the same signals; only one has: "
                + ", ".join(sorted(soft ^ periods))
            )
        return self

    @model_validator(mode="after")
    def _only_cpu_has_thousandths(self) -> Self:
        for key, kept in [*(self.systemReserved or {}).items(), *(self.kubeReserved or {}).items()]:
            if key != "cpu" and kept.endswith("m"):
                raise ValueError(
                    f"{key}: {kept} is less than one: m means thousandths, such as of a CPU; memory and disks take Mi"
                )
        return self

    @model_validator(mode="after")
    def _images_are_removed_downwards(self) -> Self:
        # Defaults of the kubelet.
        high = 85 if self.imageGCHighThresholdPercent is None else self.imageGCHighThresholdPercent
        low = 80 if self.imageGCLowThresholdPercent is None else self.imageGCLowThresholdPercent
        if low >= high:
            raise ValueError(
                f"the kubelet starts only if imageGCLowThresholdPercent ({low}) is below imageGCHighThresholdPercent ({high})"
            )
        return self


class KubeletSpec(KarpenterKubeletSpec):
    """Settings of the nodes of a managed pool."""

    registryPullQPS: int | None = Field(default=None, ge=0, description="Image pulls per second; 0: no limit.")
    registryBurst: int | None = Field(
        default=None, ge=0, description="Most image pulls at once, within registryPullQPS. 0 only if that is 0."
    )
    serializeImagePulls: bool | None = Field(default=None, description="Pull one image at a time.")
    maxParallelImagePulls: int | None = Field(default=None, ge=1, description="Images pulled at a time.")
    containerLogMaxSize: Memory | None = Field(default=None, description="Size at which a container's log file is rotated.")
    containerLogMaxFiles: int | None = Field(default=None, ge=2, description="Log files of a container.")
    podPidsLimit: int | None = Field(default=None, ge=-1, description="Most processes of a pod, at least 100; -1: no limit.")
    cpuManagerPolicy: Literal["none", "static"] | None = Field(
        default=None, description="static: pods of whole CPUs have them to themselves."
    )
    topologyManagerPolicy: Literal["none", "best-effort", "restricted", "single-numa-node"] | None = Field(
        default=None, description="Whether CPUs and devices of a pod come from one NUMA node."
    )
    shutdownGracePeriod: GracePeriod | None = Field(default=None, description="Time that pods have when a node shuts down.")
    shutdownGracePeriodCriticalPods: GracePeriod | None = Field(
        default=None, description="The part of it reserved for critical pods."
    )

    @model_validator(mode="after")
    def _one_way_to_pull(self) -> Self:
        if (self.maxParallelImagePulls or 1) > 1 and self.serializeImagePulls is not False:
            raise ValueError("the kubelet starts with maxParallelImagePulls above 1 only if serializeImagePulls is false")
        return self

    @model_validator(mode="after")
    def _exclusive_cpus_leave_some(self) -> Self:
        # What AL2023 keeps where the settings say nothing is above 0.
        kept = [(one or {}).get("cpu") for one in (self.kubeReserved, self.systemReserved)]
        if self.cpuManagerPolicy == "static" and kept[0] is not None and not any(cpu_millis(one) for one in kept if one):
            raise ValueError(
                "the kubelet starts with cpuManagerPolicy static only if kubeReserved or systemReserved has CPU above 0"
            )
        return self

    @model_validator(mode="after")
    def _limits_let_pods_start(self) -> Self:
        if self.registryBurst == 0 and self.registryPullQPS != 0:
            raise ValueError("registryBurst 0 lets no image be pulled, unless registryPullQPS is 0 too, which is no limit")
        if self.podPidsLimit is not None and self.podPidsLimit != -1 and self.podPidsLimit < 100:
            raise ValueError(f"podPidsLimit {self.podPidsLimit} is too few for an engine: at least 100, or -1 for no limit")
        return self
