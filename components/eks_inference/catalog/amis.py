"""EKS AMI types: loads ``amis.toml``."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from eks_inference.catalog.accelerators import Accelerator
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.tables import NotInCatalogError, Row, find, load, version_numbers


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
