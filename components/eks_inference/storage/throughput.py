"""Throughput of file systems. Pure; no pulumi.

Source: FSx for Lustre user guide, "Performance characteristics of SSD and HDD storage classes": disk throughput, baseline.
"""

from eks_inference.catalog.disks import EFS
from eks_inference.storage.plan import PERSISTENT_MB_PER_TIB
from eks_inference.storage.spec import EfsStoreSpec, ExistingStoreSpec, LustreStoreSpec

_SCRATCH_MB_PER_TIB = 200
_MB_PER_MIB = 1e6 / 1024**2


def node_mib_s(store: EfsStoreSpec | LustreStoreSpec | ExistingStoreSpec) -> int | None:
    """Returns the throughput that a node can count on, in MiB/s; None for an existing file system of unknown throughput.

    FSx for Lustre may be faster for a while: smaller ones burst, and servers cache what was read before.
    """
    if isinstance(store, LustreStoreSpec):
        persistent = store.throughput_mb_per_tib or PERSISTENT_MB_PER_TIB
        per_tib = persistent if store.deployment == "persistent" else _SCRATCH_MB_PER_TIB
        return int(store.size_gib / 1024 * per_tib * _MB_PER_MIB)
    return EFS.node_mib_s if store.file_system == "efs" else None
