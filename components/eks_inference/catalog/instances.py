"""EC2 instance types: loads ``instances.toml``, and those without accelerators from ``instances_general.json``."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from eks_inference.catalog.accelerators import Accelerator, ForAccelerator
from eks_inference.catalog.tables import FOLDER, Own, Row, arguments, extended, find, own

_ORIGIN = {"source": "EC2 DescribeInstanceTypes (moto 5.2.5)", "read": "2026-11"}
"""Of the types without accelerators."""


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
    return json.loads((FOLDER / "instances_general.json").read_text("utf-8"))


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
