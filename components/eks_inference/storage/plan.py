"""Shared file systems as data: add-ons, ports, volumes and claims. Pure functions; no pulumi.

Sources: EKS user guide, "Use elastic file system storage with Amazon EFS", "Use high-performance app storage with Amazon FSx for
Lustre"; examples of aws-efs-csi-driver and aws-fsx-csi-driver (static provisioning); EFS user guide, "Working with access
points"; FSx for Lustre user guide, "File system access control with Amazon VPC".
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from eks_inference.catalog import versions
from eks_inference.cluster.plan import Addon

Kind = Literal["efs", "fsx_lustre"]

DRIVERS: Mapping[Kind, str] = {"efs": "efs.csi.aws.com", "fsx_lustre": "fsx.csi.aws.com"}
"""Names of the CSI drivers."""

_ADDONS: Mapping[Kind, str] = {"efs": "aws-efs-csi-driver", "fsx_lustre": "aws-fsx-csi-driver"}

PORTS: Mapping[Kind, Sequence[tuple[int, int]]] = {"efs": ((2049, 2049),), "fsx_lustre": ((988, 988), (1018, 1023))}
"""Ranges of TCP ports that nodes reach a file system at: NFS, Lustre."""

MOUNT_OPTIONS: Mapping[Kind, Sequence[str]] = {"efs": ("tls",), "fsx_lustre": ("flock",)}

EFS_USER = 1000
"""Whom files belong to: the access point makes every client that user, whoever it is in its container."""

EFS_FOLDER = "/store"
"""Where in the file system the store begins; the access point makes it."""

EFS_SIZE_GIB = 1024
"""What a volume of EFS says. Kubernetes wants a number; EFS has no limit."""


def driver_addon(kind: Kind, kubernetes_version: str) -> Addon:
    """The EKS add-on with the CSI driver of a kind.

    Its node part runs on every node whatever the taints (both charts tolerate everything), and mounts without permissions in AWS.
    Only its controller would need some, to make file systems or access points by itself: nothing here asks it to.
    """
    return Addon(_ADDONS[kind], versions.addon(_ADDONS[kind], kubernetes_version), {})


def one_subnet_a_zone(subnets: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Of subnets as (zone id, subnet id) the first of each zone: EFS takes one mount target a zone."""
    first: dict[str, Any] = {}
    for zone_id, subnet_id in subnets:
        first.setdefault(zone_id, subnet_id)
    return first


def volume(
    name: str, *, driver: str, volume_handle: Any, attributes: Mapping[str, Any], mount_options: Sequence[str], size_gib: int
) -> dict[str, Any]:
    """``metadata`` and ``spec`` of a PersistentVolume for a file system that is there already."""
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": f"{size_gib}Gi"},
            "accessModes": ["ReadWriteMany"],
            # The file system goes with the component that made it, not with the claim of whoever used it.
            "persistentVolumeReclaimPolicy": "Retain",
            # Empty, not left out: left out is the default class, which would make another volume.
            "storageClassName": "",
            "mountOptions": list(mount_options),
            "csi": {
                "driver": driver,
                "volumeHandle": volume_handle,
                **({"volumeAttributes": dict(attributes)} if attributes else {}),
            },
        },
    }


def claim(name: str, namespace: str, *, volume: str, size_gib: int) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the PersistentVolumeClaim of exactly that volume."""
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": volume,
            "resources": {"requests": {"storage": f"{size_gib}Gi"}},
        },
    }
