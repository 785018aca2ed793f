"""Root disks of nodes, parallel image pulls onto them, and file systems: loads ``disks.toml``."""

from dataclasses import dataclass

from eks_inference.catalog.tables import Row, arguments, table


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
