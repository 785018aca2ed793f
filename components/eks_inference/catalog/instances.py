"""EC2 instance types, their accelerators, the EKS AMI types of their nodes, and their root disks: loads ``instances.toml``,
``instances_general.json``, ``amis.toml`` and ``disks.toml``, which has file systems and parallel image pulls, too.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol

from eks_inference.catalog.tables import (
    FOLDER,
    NotInCatalogError,
    Own,
    Row,
    arguments,
    extended,
    find,
    load,
    own,
    table,
    version_numbers,
)

Accelerator = Literal["neuron", "nvidia"]
"""Kinds of accelerators. Only this module compares their names."""

DEVICE_RESOURCES: Mapping[Accelerator, str] = {"neuron": "aws.amazon.com/neuron", "nvidia": "nvidia.com/gpu"}
"""The extended resource that the device plugin of each kind offers, whole devices (EKS user guide, "Neuron devices", "GPU")."""


class _Row(Protocol):
    @property
    def accelerator(self) -> Accelerator | None: ...


class ForAccelerator:
    """Mixin for rows with an ``accelerator`` column."""

    @property
    def neuron(self: _Row) -> bool:
        """Whether the row is for AWS Neuron devices."""
        return self.accelerator == "neuron"

    @property
    def nvidia(self: _Row) -> bool:
        """Whether the row is for NVIDIA GPUs."""
        return self.accelerator == "nvidia"


_ORIGIN = {"source": "EC2 DescribeInstanceTypes (moto 5.2.5)", "read": "2026-11"}
"""Origin of the types without accelerators."""


@dataclass(frozen=True)
class InstanceType(ForAccelerator, Row):
    """One EC2 instance type."""

    family: str
    vcpus: int
    memory_mib: int
    ebs_mb_s: float
    """Largest throughput to EBS volumes, in MB/s; small sizes reach it for half an hour a day (EC2, EBS-optimized instances)."""
    max_pods: int
    architecture: Literal["x86_64", "arm64"] = "x86_64"
    accelerator: Accelerator | None = None
    chip: str = ""
    """EC2's name of the devices: ``Trainium2``, ``L4``; empty without accelerators."""
    every_size: bool = False
    """Whether the catalog lists every size of the family that EC2 sells."""
    devices: int = 0
    cores_per_device: int = 0
    """Schedulable NeuronCores of a device at the default logical-core setting (LNC); 0 for GPUs."""
    physical_cores_per_device: int = 0
    """Physical NeuronCores of a device; 0 for GPUs."""
    logical_core_settings: tuple[int, ...] = ()
    """Allowed numbers of physical cores per schedulable core (LNC); empty for types without Neuron devices."""
    device_memory_gib: int = 0
    """Memory of one device, as EC2 says it."""
    cuda_memory_gib: float | None = None
    """Memory of one GPU that CUDA can give to programs, as logs of PyTorch and vLLM show it. None: no log was found."""
    legal_device_counts: tuple[int, ...] = ()
    """Device counts that one pod may request, because such sets are contiguous; empty for types without Neuron devices."""
    tensor_parallel: tuple[int, ...] = ()
    """Supported tensor parallel degrees. Neuron: those of the chip; a small size may lack the cores. GPUs: powers of two, up to
    the number of devices."""
    unlisted_tensor_parallel: tuple[int, ...] = ()
    """Degrees of Neuron chips that the documents do not list, yet AWS serves with."""
    partitioned: bool = False
    """Whether a device is a part of a GPU: EC2 counts no whole one."""
    compute_capability: tuple[int, int] | None = None
    """CUDA compute capability; None for types without GPUs."""
    efa_interfaces: int = 0
    network_cards: int = 1
    first_efa_card: int = 0
    """Index of the first network card that can carry an EFA interface; earlier cards carry plain interfaces only."""
    ip_card_step: int = 1
    """One in this many cards carries a plain interface in multi-card layouts: EC2 caps the total IP traffic of all cards."""
    nvme_gb: int = 0
    """Total local instance storage; 0 if none."""
    needs_reservation: bool = False
    """Whether nothing but reservations and capacity blocks is known to have capacity."""

    @property
    def default_logical_core_setting(self) -> int:
        """The logical-core setting (LNC) that ``cores_per_device`` assumes; 0 for types without Neuron devices."""
        return self.physical_cores_per_device // self.cores_per_device if self.cores_per_device else 0

    @property
    def memory_per_core_gib(self) -> float:
        """Device memory per schedulable core (per device on GPUs) that programs can use; 0 for types without accelerators."""
        return (self.cuda_memory_gib or self.device_memory_gib) / (self.cores_per_device or 1)

    @property
    def ebs_mib_s(self) -> int:
        """Largest throughput to EBS volumes, in MiB/s."""
        return int(self.ebs_mb_s * 1_000_000 / 1024**2)

    @property
    def has_bfloat16(self) -> bool:
        """Whether the accelerator supports bfloat16: all Neuron devices, and GPUs of compute capability 8.0 or higher."""
        return self.compute_capability >= (8, 0) if self.compute_capability else self.neuron


def instance_types() -> dict[str, InstanceType]:
    """All known instance types by name."""
    return _instance_types(own())


@cache
def _instance_types(rows: Own) -> dict[str, InstanceType]:
    families = {**extended("instances.toml", Own()), **general()["families"], **rows.of("instances.toml")}
    return {one.name: one for family, row in families.items() for one in types_of(family, {**_ORIGIN, **row})}


@cache
def general() -> Mapping[str, Any]:
    """Families without accelerators (``families``), and by region those that not all of its zones offer (``zones``)."""
    found = json.loads((FOLDER / "instances_general.json").read_text("utf-8"))
    for row in found["families"].values():
        row["sizes"] = {size: dict(zip(found["columns"], values, strict=True)) for size, values in row["sizes"].items()}
    return found


def types_of(family: str, shared: Mapping[str, Any]) -> Iterator[InstanceType]:
    """The types of one table of ``instances.toml``: each size with the columns that all share."""
    for size, row in shared["sizes"].items():
        columns = {key: value for key, value in shared.items() if key != "sizes"} | row
        if "compute_capability" in columns:
            columns["tensor_parallel"] = [1 << power for power in range(columns["devices"].bit_length())]
        yield InstanceType(name=f"{family}.{size}", family=family, **arguments(columns))


def instance_type(name: str) -> InstanceType:
    """Returns one instance type. Raises ``KeyError`` with the nearest names if it is unknown."""
    return find("instance type", name, instance_types())


@dataclass(frozen=True)
class AmiType(Row):
    """One value of ``amiType`` in the EKS API, e.g. ``AL2023_x86_64_NEURON``, and its images."""

    operating_system: Literal["al2", "al2023", "bottlerocket"]
    architecture: Literal["x86_64", "arm64"]
    accelerators: tuple[Accelerator, ...]
    """Devices the image has drivers for; empty if it supports CPUs only."""
    image_parameter: str
    """SSM parameter that holds the image id; fill in ``{kubernetes_version}``."""
    release_parameter: str
    """SSM parameter that holds the release: the value for ``releaseVersion`` of a node group."""
    first_kubernetes: str | None = None
    """First Kubernetes minor version with such an image. None: older than any version with pins in the catalog."""
    last_kubernetes: str | None = None
    """Last Kubernetes minor version with such an image. None: still published."""
    ended: str = ""
    """Day of the last published image, ISO; empty if EKS still publishes them."""
    note: str = ""
    """A caveat, or the replacement of an ended type."""

    def covers(self, kubernetes_version: str) -> bool:
        """Whether EKS has such images for a Kubernetes minor version (``1.35``)."""
        first, last = self.first_kubernetes or kubernetes_version, self.last_kubernetes or kubernetes_version
        return version_numbers(first) <= version_numbers(kubernetes_version) <= version_numbers(last)


@cache
def ami_types() -> dict[str, AmiType]:
    """All known AMI types by name."""
    return load(AmiType, "amis.toml")


def ami_type(name: str) -> AmiType:
    """Returns one AMI type. Raises ``KeyError`` with the nearest names if it is unknown."""
    return find("AMI type", name, ami_types())


def ami_type_for(instance: InstanceType) -> AmiType:
    """Returns the Amazon Linux 2023 AMI type for an instance type. Raises ``KeyError`` if EKS has none (Neuron on arm64)."""
    accelerators = (instance.accelerator,) if instance.accelerator else ()
    for one in ami_types().values():
        if (one.operating_system, one.architecture, one.accelerators) == ("al2023", instance.architecture, accelerators):
            return one
    raise NotInCatalogError(f"EKS has no AMI type of Amazon Linux 2023 for {instance.name} ({instance.architecture})")


@dataclass(frozen=True)
class VolumeType(Row):
    """What EC2 takes for a volume of one type."""

    least_mib_s: int
    """Baseline throughput of every volume."""
    most_mib_s: int
    least_iops: int
    """Baseline operations a second of every volume."""
    most_iops: int
    iops_per_gib: int
    """Most operations a second for each GiB of the volume."""
    iops_per_mib_s: int
    """Operations a second that each MiB/s of throughput needs."""


@dataclass(frozen=True)
class FastImagePull(Row):
    """The feature gate of nodeadm that downloads and unpacks the layers of an image in parallel. Releases are AMI dates."""

    gate: str
    mib_s: int
    """Disk throughput below which a pull may take longer than without the gate."""
    vcpus: int
    memory_mib: int
    """Nodes with less CPU or memory ignore the gate."""
    first: str
    """First release with the gate; older ones ignore it."""
    smaller_first: str
    """Before this release, nodes with less than ``smaller_vcpus`` and ``smaller_memory_mib`` ignored the gate."""
    smaller_vcpus: int
    smaller_memory_mib: int
    first_local: str
    """First release that unpacks onto local disks; older ones unpack onto the root disk."""
    broken: tuple[str, ...]
    """Releases whose nodes do not join the cluster with the gate."""


@dataclass(frozen=True)
class ElasticFileSystem(Row):
    """What Amazon EFS gives a node."""

    node_mib_s: int
    """Largest throughput of one node, for reading and writing together."""


GP3 = VolumeType(name="gp3", **arguments(table("disks.toml")["gp3"]))
FAST_IMAGE_PULL = FastImagePull(name="fast_image_pull", **arguments(table("disks.toml")["fast_image_pull"]))
EFS = ElasticFileSystem(name="efs", **arguments(table("disks.toml")["efs"]))
