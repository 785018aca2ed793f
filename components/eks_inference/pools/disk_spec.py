"""Spec of a node's root disk, and of how images come onto it."""

from pydantic import Field

from eks_inference.catalog.disks import FAST_IMAGE_PULL, GP3
from eks_inference.spec import Spec


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
