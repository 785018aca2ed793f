"""Plans shared file systems: add-ons, ports, zones, volumes and claims. Pure; no pulumi.

Sources: EKS user guide, "Use elastic file system storage with Amazon EFS", "Use high-performance app storage with Amazon FSx for
Lustre"; aws-efs-csi-driver 3.4.1 and aws-fsx-csi-driver 1.9.0, code and examples (static provisioning); EFS user guide, "Working
with access points"; FSx for Lustre user guide, "File system access control with Amazon VPC".
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from eks_inference.catalog import versions
from eks_inference.catalog.instances import EFS
from eks_inference.cluster.plan import Addon
from eks_inference.storage.spec import EfsStoreSpec, ExistingStoreSpec, FileSystem, LustreStoreSpec, StoreSpec

T = TypeVar("T")

DRIVERS: Mapping[FileSystem, str] = {"efs": "efs.csi.aws.com", "fsx_lustre": "fsx.csi.aws.com"}
"""Names of the CSI drivers."""

_ADDONS: Mapping[FileSystem, str] = {"efs": "aws-efs-csi-driver", "fsx_lustre": "aws-fsx-csi-driver"}

PORTS: Mapping[FileSystem, Sequence[tuple[int, int]]] = {"efs": ((2049, 2049),), "fsx_lustre": ((988, 988), (1018, 1023))}
"""Ranges of TCP ports of the servers: NFS, Lustre."""

MOUNT_OPTIONS: Mapping[FileSystem, Sequence[str]] = {"efs": (), "fsx_lustre": ("flock",)}
"""EFS needs none: its driver always encrypts traffic and treats the option ``tls`` as deprecated."""

DEPLOYMENTS: Mapping[str, str] = {"persistent": "PERSISTENT_2", "scratch": "SCRATCH_2"}
"""FSx names of the deployments of a ``LustreStoreSpec``."""

LUSTRE_VERSION = "2.15"
"""FSx recommends this version for all file systems. Its default for scratch is 2.10, which AL2023 cannot mount
(kubernetes-sigs/aws-fsx-csi-driver#437)."""

PERSISTENT_MB_PER_TIB = 250
"""Default throughput."""

EFS_USER = 1000
"""Owner of all files: the access point maps every client to this user, whatever its user in the container."""

EFS_FOLDER = "/store"
"""Root folder of the store, which the access point creates."""

EFS_SIZE_GIB = 1024
"""Size to declare in an EFS volume. Kubernetes requires a number; EFS has no limit."""


def driver_addon(file_system: FileSystem, kubernetes_version: str) -> Addon:
    """Returns the EKS add-on with the CSI driver of a file system.

    Its node part runs on every node, because both charts tolerate all taints, and mounts without AWS permissions. Only its
    controller would need permissions, to create or grow file systems; nothing here uses that, so it gets none.
    """
    return Addon(_ADDONS[file_system], versions.addon(_ADDONS[file_system], kubernetes_version), {})


def one_subnet_a_zone(subnets: Sequence[tuple[str, T]]) -> dict[str, T]:
    """Returns the first subnet of each zone, from (zone id, subnet id) pairs: EFS accepts one mount target per zone."""
    first: dict[str, T] = {}
    for zone_id, subnet_id in subnets:
        first.setdefault(zone_id, subnet_id)
    return first


def store_zone(spec: StoreSpec, pool_zone_ids: Sequence[str]) -> str | None:
    """Returns the only zone of a file system: the zone in its spec or, for FSx for Lustre, the pool's first zone.

    Returns None if the file system is in every zone of the network, or the zone is unknown.
    """
    if isinstance(spec, LustreStoreSpec):
        return spec.zone_id or next(iter(pool_zone_ids), None)
    return getattr(spec, "zone_id", None)


def volume(
    name: str,
    claim: str,
    namespace: str,
    *,
    driver: str,
    volume_handle: Any,
    attributes: Mapping[str, Any],
    mount_options: Sequence[str],
    size_gib: int,
) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of a PersistentVolume for an existing file system, reserved for one claim."""
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": f"{size_gib}Gi"},
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Filesystem",
            # Deleting the component deletes the file system; deleting a claim does not.
            "persistentVolumeReclaimPolicy": "Retain",
            # Empty, not omitted: the default class would create another volume.
            "storageClassName": "",
            # Without this, any claim without a class could bind the volume.
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim, "namespace": namespace},
            **({"mountOptions": list(mount_options)} if mount_options else {}),
            "csi": {
                "driver": driver,
                "volumeHandle": volume_handle,
                **({"volumeAttributes": dict(attributes)} if attributes else {}),
            },
        },
    }


def claim(name: str, namespace: str, *, volume: Any, size_gib: int) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the PersistentVolumeClaim for exactly that volume."""
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Filesystem",
            "storageClassName": "",
            "volumeName": volume,
            "resources": {"requests": {"storage": f"{size_gib}Gi"}},
        },
    }


# Source: FSx for Lustre user guide, "Performance characteristics of SSD and HDD storage classes": disk throughput, baseline.

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
