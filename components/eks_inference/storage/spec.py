"""Spec of a file system that several nodes share."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from eks_inference.specs.base import Spec, ZoneId, stated

# Source: FSx API reference, CreateFileSystem and UpdateFileSystem, StorageCapacity (SSD storage of SCRATCH_2 and PERSISTENT_2).

SMALLEST_GIB = 1200
STEP_GIB = 2400


def lustre_size_gib(needed_gib: float) -> int:
    """Returns the smallest available size for that much data: ``SMALLEST_GIB`` or a multiple of ``STEP_GIB``."""
    return SMALLEST_GIB if needed_gib <= SMALLEST_GIB else math.ceil(needed_gib / STEP_GIB) * STEP_GIB


FileSystem = Literal["efs", "fsx_lustre"]
"""Amazon EFS, Amazon FSx for Lustre."""


def _lustre_size(gib: int) -> int:
    if (next_size := lustre_size_gib(gib)) != gib:
        fault = f"FSx for Lustre has sizes of {SMALLEST_GIB} GiB and multiples of {STEP_GIB} GiB: choose {next_size}"
        raise PydanticCustomError("STO003", "{fault}", {"fault": fault})
    return gib


class EfsStoreSpec(Spec):
    """Amazon EFS: grows and shrinks with its contents, is in every zone of the network, and is billed by use.

    Its throughput is elastic, so nothing needs sizing. All files belong to one user, so pods need not run as root to write.
    Source: EFS user guide, "Throughput modes", "Working with access points".
    """

    kind: Literal["efs"] = Field(default="efs", description="Amazon EFS.")

    @property
    def file_system(self) -> FileSystem:
        return self.kind


class LustreStoreSpec(Spec):
    """Amazon FSx for Lustre on SSD storage: faster for a single node, in one zone, of a fixed size, and billed by size.

    Its root folder belongs to root: pods that write run as root, or in a folder that root gave them. A change of ``deployment``
    or ``zone_id`` creates another, empty file system: stop the pods that mount it first. Nodes need an image whose kernel has the
    Lustre client, such as AL2023. Source: FSx for Lustre user guide, "Deployment options", "Performance".
    """

    kind: Literal["fsx_lustre"] = Field(default="fsx_lustre", json_schema_extra=stated, description="Amazon FSx for Lustre.")
    deployment: Literal["persistent", "scratch"] = Field(
        default="persistent",
        description="persistent (PERSISTENT_2): failed servers are replaced and keep their data. scratch (SCRATCH_2): cheaper; "
        "data are lost with a server, and only a key of the service encrypts them, not the stack's key.",
    )
    size_gib: Annotated[int, AfterValidator(_lustre_size)] = Field(
        default=SMALLEST_GIB, description="Size: 1200 or a multiple of 2400. It can grow later but never shrink."
    )
    throughput_mb_per_tib: Literal[125, 250, 500, 1000] | None = Field(
        default=None, description="Throughput in MB/s per TiB of size. Default: 250. Always 200 for scratch."
    )
    zone_id: ZoneId | None = Field(default=None, description="Its zone. Default: that of the pool that mounts it.")

    @property
    def file_system(self) -> FileSystem:
        return self.kind

    @model_validator(mode="after")
    def _scratch_has_one_throughput(self) -> Self:
        if self.deployment == "scratch" and self.throughput_mb_per_tib is not None:
            raise ValueError("throughput_mb_per_tib is for deployment: persistent; scratch always has 200 MB/s per TiB: omit it")
        return self


class ExistingStoreSpec(Spec):
    """An existing file system that the cluster's nodes can reach; the stack neither creates nor deletes it.

    Its security groups must admit the cluster security group: TCP 2049 for EFS; 988 and 1018-1023 for FSx for Lustre.
    """

    kind: Literal["existing"] = Field(default="existing", json_schema_extra=stated, description="An existing file system.")
    file_system: FileSystem = Field(description="Kind of file system.")
    file_system_id: str = Field(pattern=r"^fs-[0-9a-f]{8,40}$", description="Its id.")
    access_point_id: str | None = Field(
        default=None,
        pattern=r"^fsap-[0-9a-f]{8,40}$",
        description="EFS: access point for mounting, with a user that can write. Default: the file system's root.",
    )
    dns_name: str | None = Field(
        default=None, pattern=r"^fs-[0-9a-f]{8,40}\.[0-9a-z.-]+$", description="FSx for Lustre: its DNS name."
    )
    mount_name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]{1,8}$", description="FSx for Lustre: its mount name.")
    size_gib: int | None = Field(default=None, ge=1, description="FSx for Lustre: its size.")
    zone_id: ZoneId | None = Field(default=None, description="Its zone, if it is in only one.")

    @model_validator(mode="after")
    def _says_what_its_driver_asks_for(self) -> Self:
        lustre = {"dns_name": self.dns_name, "mount_name": self.mount_name, "size_gib": self.size_gib}
        missing = [key for key, value in lustre.items() if value is None]
        if self.file_system == "fsx_lustre" and missing:
            raise ValueError(f"FSx for Lustre needs {', '.join(missing)} (aws fsx describe-file-systems)")
        if self.file_system == "fsx_lustre" and self.access_point_id:
            raise ValueError("access_point_id is for EFS: omit it")
        if self.file_system == "efs" and len(missing) < len(lustre):
            raise ValueError(f"{', '.join(key for key in lustre if key not in missing)}: only for FSx for Lustre: omit")
        return self


def _efs_unless_said(given: Any) -> Any:
    return {"kind": "efs", **given} if isinstance(given, dict) else given


NewStoreSpec = Annotated[EfsStoreSpec | LustreStoreSpec, Field(discriminator="kind"), BeforeValidator(_efs_unless_said)]
StoreSpec = Annotated[
    EfsStoreSpec | LustreStoreSpec | ExistingStoreSpec, Field(discriminator="kind"), BeforeValidator(_efs_unless_said)
]
"""A shared file system; without ``kind`` it is EFS."""
