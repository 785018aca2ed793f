"""Instance types as data: ``instances.toml`` and its typed loader."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from eks_inference.catalog.accelerators import Accelerator, ForAccelerator
from eks_inference.catalog.tables import arguments, missing, table


@dataclass(frozen=True)
class InstanceType(ForAccelerator):
    """One EC2 instance type. Sizes in MiB and GiB as named; counts are whole devices."""

    name: str
    family: str
    vcpus: int
    memory_mib: int
    max_pods: int
    architecture: Literal["x86_64", "arm64"] = "x86_64"
    accelerator: Accelerator | None = None
    chip: str = ""
    """The devices, as EC2 names them: ``Trainium2``, ``L4``; empty without accelerators."""
    every_size: bool = False
    """Whether the catalog has every size that EC2 sells of the family."""
    devices: int = 0
    cores_per_device: int = 0
    """Schedulable NeuronCores a device has at its default logical-core setting; 0 for GPUs."""
    physical_cores_per_device: int = 0
    """NeuronCores on a device; 0 for GPUs."""
    logical_core_settings: tuple[int, ...] = ()
    """How many physical cores may be joined to one schedulable core (LNC); empty for types without Neuron devices."""
    device_memory_gib: int = 0
    """Memory of one device."""
    legal_device_counts: tuple[int, ...] = ()
    """How many devices one pod may ask for so that they are neighbours; empty for types without Neuron devices."""
    tensor_parallel: tuple[int, ...] = ()
    """Supported tensor parallel degrees. Neuron: those of the chip, though a small size may not have the cores. GPUs: powers of
    two up to the number of devices."""
    compute_capability: tuple[int, int] | None = None
    """CUDA compute capability; None for types without GPUs."""
    efa_interfaces: int = 0
    network_cards: int = 1
    first_efa_card: int = 0
    """The first network card that takes an EFA; those before it take plain interfaces only."""
    ip_card_step: int = 1
    """Every how many cards one carries a plain interface, in layouts with several: the cards' IP traffic together is capped."""
    nvme_gb: int = 0
    """Local instance storage in all, 0 when there is none."""
    source: str = ""
    """Where the row comes from."""
    read: str = ""
    """When it was read: a month or a day, ISO."""

    @property
    def default_logical_core_setting(self) -> int:
        """The logical-core setting (LNC) ``cores_per_device`` counts by; 0 for types without Neuron devices."""
        return self.physical_cores_per_device // self.cores_per_device if self.cores_per_device else 0

    @property
    def memory_per_core_gib(self) -> float:
        """Device memory of one schedulable core, which is the whole device on GPUs; 0 for types without accelerators."""
        return self.device_memory_gib / (self.cores_per_device or 1)

    @property
    def has_bfloat16(self) -> bool:
        """Whether the accelerator computes in bfloat16: all Neuron devices, GPUs of compute capability 8.0 or later."""
        return self.compute_capability >= (8, 0) if self.compute_capability else self.neuron


@cache
def instance_types() -> dict[str, InstanceType]:
    """All known instance types by name."""
    return {
        f"{family}.{size}": _instance_type(family, size, {key: value for key, value in shared.items() if key != "sizes"} | row)
        for family, shared in table("instances.toml").items()
        for size, row in shared["sizes"].items()
    }


def instance_type(name: str) -> InstanceType:
    """The instance type of that name; ``KeyError`` with the nearest names when it is not in the catalog."""
    if name not in instance_types():
        raise missing(f"instance type '{name}' is not in the catalog", name, instance_types())
    return instance_types()[name]


def _instance_type(family: str, size: str, row: dict[str, Any]) -> InstanceType:
    if "compute_capability" in row:
        row["tensor_parallel"] = [1 << power for power in range(row["devices"].bit_length())]
    return InstanceType(name=f"{family}.{size}", family=family, **arguments(row))
