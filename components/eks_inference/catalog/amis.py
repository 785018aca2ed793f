"""AMI types of EKS as data: ``amis.toml`` and its typed loader."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from eks_inference.catalog.accelerators import Accelerator
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.tables import arguments, missing, table, version_numbers


@dataclass(frozen=True)
class AmiType:
    """One value of the EKS API's ``amiType`` and the images behind it."""

    name: str
    """As the EKS API spells it, e.g. ``AL2023_x86_64_NEURON``."""
    operating_system: Literal["al2", "al2023", "bottlerocket"]
    architecture: Literal["x86_64", "arm64"]
    accelerators: tuple[Accelerator, ...]
    """Devices it has drivers for; empty when it is for CPUs only."""
    image_parameter: str
    """SSM parameter with the image id; ``{kubernetes_version}`` is filled in."""
    release_parameter: str
    """SSM parameter with the release, that is, what a node group's ``releaseVersion`` takes."""
    source: str
    """Where the row comes from."""
    read: str
    """When it was read: a month or a day, ISO."""
    first_kubernetes: str | None = None
    """First Kubernetes minor version with such an image. None: older than any the catalog has pins for."""
    last_kubernetes: str | None = None
    """Last Kubernetes minor version with such an image. None: still published."""
    ended: str = ""
    """Day after which EKS published no more of them, ISO; empty when it does."""
    note: str = ""
    """What to know, and what to use instead of an ended one."""

    def covers(self, kubernetes_version: str) -> bool:
        """Whether there are such images for a Kubernetes minor version (``1.35``)."""
        first, last = self.first_kubernetes or kubernetes_version, self.last_kubernetes or kubernetes_version
        return version_numbers(first) <= version_numbers(kubernetes_version) <= version_numbers(last)


@cache
def ami_types() -> dict[str, AmiType]:
    """All known AMI types by name."""
    return {name: AmiType(name=name, **arguments(row)) for name, row in table("amis.toml").items()}


def ami_type(name: str) -> AmiType:
    """The AMI type of that name; ``KeyError`` with the nearest names when there is none."""
    if name not in ami_types():
        raise missing(f"AMI type '{name}' is not in the catalog", name, ami_types())
    return ami_types()[name]


def ami_type_for(instance: InstanceType) -> AmiType:
    """The Amazon Linux 2023 AMI type an instance type starts from; ``KeyError`` where EKS has none (Neuron on arm64)."""
    accelerators = (instance.accelerator,) if instance.accelerator else ()
    for one in ami_types().values():
        if (one.operating_system, one.architecture, one.accelerators) == ("al2023", instance.architecture, accelerators):
            return one
    raise KeyError(f"EKS has no AMI type of Amazon Linux 2023 for {instance.name} ({instance.architecture})")
