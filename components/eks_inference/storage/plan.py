"""Shared file systems as data: add-ons, ports, zones, volumes and claims. Pure functions; no pulumi.

Sources: EKS user guide, "Use elastic file system storage with Amazon EFS", "Use high-performance app storage with Amazon FSx for
Lustre"; aws-efs-csi-driver 3.4.1 and aws-fsx-csi-driver 1.9.0, code and examples (static provisioning); EFS user guide, "Working
with access points"; FSx for Lustre user guide, "File system access control with Amazon VPC".
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from eks_inference.catalog import versions
from eks_inference.cluster.plan import Addon
from eks_inference.storage.spec import FileSystem, LustreStoreSpec, StoreSpec

T = TypeVar("T")

DRIVERS: Mapping[FileSystem, str] = {"efs": "efs.csi.aws.com", "fsx_lustre": "fsx.csi.aws.com"}
"""Names of the CSI drivers."""

_ADDONS: Mapping[FileSystem, str] = {"efs": "aws-efs-csi-driver", "fsx_lustre": "aws-fsx-csi-driver"}

PORTS: Mapping[FileSystem, Sequence[tuple[int, int]]] = {"efs": ((2049, 2049),), "fsx_lustre": ((988, 988), (1018, 1023))}
"""Ranges of TCP ports that nodes reach a file system at: NFS, Lustre."""

MOUNT_OPTIONS: Mapping[FileSystem, Sequence[str]] = {"efs": (), "fsx_lustre": ("flock",)}
"""EFS needs none: its driver encrypts what it carries of itself, and calls ``tls`` an option of the past."""

DEPLOYMENTS: Mapping[str, str] = {"persistent": "PERSISTENT_2", "scratch": "SCRATCH_2"}
"""What FSx calls the deployments of a ``LustreStoreSpec``."""

LUSTRE_VERSION = "2.15"
"""FSx recommends it for all file systems; of itself it would take 2.10 for scratch, which AL2023 cannot mount
(kubernetes-sigs/aws-fsx-csi-driver#437)."""

PERSISTENT_MB_PER_TIB = 250
"""Throughput where the spec does not say."""

EFS_USER = 1000
"""Whom files belong to: the access point makes every client that user, whoever it is in its container."""

EFS_FOLDER = "/store"
"""Where in the file system the store begins; the access point makes it."""

EFS_SIZE_GIB = 1024
"""What a volume of EFS says. Kubernetes wants a number; EFS has no limit."""


def driver_addon(file_system: FileSystem, kubernetes_version: str) -> Addon:
    """The EKS add-on with the CSI driver of a file system.

    Its node part runs on every node whatever the taints (both charts tolerate everything), and mounts without permissions in AWS.
    Only its controller would need some, to make or grow file systems by itself: nothing here asks it to, so it gets none.
    """
    return Addon(_ADDONS[file_system], versions.addon(_ADDONS[file_system], kubernetes_version), {})


def one_subnet_a_zone(subnets: Sequence[tuple[str, T]]) -> dict[str, T]:
    """Of subnets as (zone id, subnet id) the first of each zone: EFS takes one mount target a zone."""
    first: dict[str, T] = {}
    for zone_id, subnet_id in subnets:
        first.setdefault(zone_id, subnet_id)
    return first


def store_zone(spec: StoreSpec, pool_zone_ids: Sequence[str]) -> str | None:
    """The one zone a file system is in: as its spec says, for FSx for Lustre else the pool's first.

    None for what is there in every zone, and where nothing says it.
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
    """``metadata`` and ``spec`` of a PersistentVolume for a file system that is there already, kept for one claim."""
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": f"{size_gib}Gi"},
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Filesystem",
            # The file system goes with the component that made it, not with the claim of whoever used it.
            "persistentVolumeReclaimPolicy": "Retain",
            # Empty, not left out: left out is the default class, which would make another volume.
            "storageClassName": "",
            # Or any claim without a class could take it.
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
    """``metadata`` and ``spec`` of the PersistentVolumeClaim of exactly that volume."""
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
