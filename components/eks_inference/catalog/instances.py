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
    families = tomllib.loads(files("eks_inference.catalog").joinpath("instances.toml").read_text("utf-8"))
    types: dict[str, InstanceType] = {}
    for family, table in families.items():
        shared = {key: value for key, value in table.items() if key != "sizes"}
        for size, row in table["sizes"].items():
            facts = shared | row
            facts["legal_device_counts"] = tuple(facts.get("legal_device_counts", ()))
            types[f"{family}.{size}"] = InstanceType(name=f"{family}.{size}", family=family, **facts)
    return types


def instance_type(name: str) -> InstanceType:
    """The instance type of that name; ``KeyError`` with the nearest names when it is not in the catalog."""
    types = instance_types()
    if name in types:
        return types[name]
    nearest = get_close_matches(name, types, n=3, cutoff=0.5)
    hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
    raise KeyError(f"instance type '{name}' is not in the catalog{hint}")
