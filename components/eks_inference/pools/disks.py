"""Plans the disks of nodes: size, throughput and operations of the root disk, and where images are. Pure; no pulumi."""

from typing import Any

from eks_inference.catalog.disks import FAST_IMAGE_PULL, GP3
from eks_inference.catalog.instances import InstanceType
from eks_inference.pools.spec import PoolSpec

_DEFAULT_ROOT_GIB = 100
_DEFAULT_ACCELERATED_ROOT_GIB = 500  # the source systems' size: a Neuron image and a 70B checkpoint do not fit in 100


def root_volume_gib(spec: PoolSpec) -> int:
    """Returns the size of the root disk in GiB."""
    if spec.root_volume_gib is not None:
        return spec.root_volume_gib
    return _DEFAULT_ACCELERATED_ROOT_GIB if spec.instances()[0].accelerator else _DEFAULT_ROOT_GIB


def root_volume_mib_s(spec: PoolSpec) -> int:
    """Returns the throughput of the root disk in MiB/s.

    At EC2's own 125, 19 GB of a Neuron image and 26 GB of weights take six minutes to write, and at the default here 72 seconds.
    """
    if spec.root_volume_mib_s is not None:
        return spec.root_volume_mib_s
    loads_models = spec.instances()[0].accelerator and not all(one.nvme_gb for one in spec.instances())
    return FAST_IMAGE_PULL.mib_s if loads_models else GP3.least_mib_s


def root_volume_iops(spec: PoolSpec) -> int:
    """Returns the operations a second of the root disk."""
    return spec.root_volume_iops or max(GP3.least_iops, GP3.iops_per_mib_s * root_volume_mib_s(spec))


def paid_mib_s(spec: PoolSpec) -> int | None:
    """Returns the throughput to ask for, or None where it is what every gp3 volume has.

    What every volume has is left out: a change of the launch template would replace the nodes of existing stacks for nothing.
    """
    throughput = root_volume_mib_s(spec)
    return throughput if throughput > GP3.least_mib_s else None


def paid_iops(spec: PoolSpec) -> int | None:
    """Returns the operations a second to ask for, like ``paid_mib_s``."""
    iops = root_volume_iops(spec)
    return iops if iops > GP3.least_iops else None


def has_local_disks(spec: PoolSpec) -> bool:
    """Returns whether any instance type of the pool has an instance store. nodeadm skips the RAID on types without one."""
    return any(instance.nvme_gb > 0 for instance in spec.instances())


def image_disk_mib_s(spec: PoolSpec, instance: InstanceType) -> int | None:
    """Returns the throughput of the disk that holds images and what pods download; None: local disks, whose speed is unknown."""
    return None if instance.nvme_gb else min(root_volume_mib_s(spec), instance.ebs_mib_s)


def feature_gates(spec: PoolSpec) -> dict[str, Any]:
    """Returns the part of a NodeConfig that turns on parallel image pulls; empty where they are off."""
    return {"featureGates": {FAST_IMAGE_PULL.gate: True}} if spec.fast_image_pull else {}
