"""Instance types as data: ``instances.toml`` and its typed loader."""

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Literal


@dataclass(frozen=True)
class InstanceType:
    """One EC2 instance type. Sizes in MiB and GiB as named; counts are whole devices."""

    name: str
    family: str
    vcpus: int
    memory_mib: int
    max_pods: int
    architecture: Literal["x86_64", "arm64"] = "x86_64"
    accelerator: Literal["neuron", "nvidia"] | None = None
    devices: int = 0
    cores_per_device: int = 0
    """Schedulable NeuronCores a device has at its default logical-core setting; 0 for GPUs."""
    device_memory_gib: int = 0
    """Memory of one device."""
    legal_device_counts: tuple[int, ...] = ()
    """How many devices one pod may ask for so that they are neighbours; empty for types without Neuron devices."""
    efa_interfaces: int = 0
    network_cards: int = 1
    nvme_gb: int = 0
    """Local instance storage in all, 0 when there is none."""


@cache
def instance_types() -> dict[str, InstanceType]:
    """All known instance types by name."""
    ...


def instance_type(name: str) -> InstanceType:
    """The instance type of that name; ``KeyError`` with the nearest names when it is not in the catalog."""
    ...
