"""What a user decides about a file system that several nodes share."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from eks_inference.spec import Spec, ZoneId
from eks_inference.storage.capacity import SMALLEST_GIB, STEP_GIB, is_lustre_size, lustre_size_gib

FileSystem = Literal["efs", "fsx_lustre"]
"""Amazon EFS, Amazon FSx for Lustre."""


def _a_size_lustre_has(gib: int) -> int:
    if not is_lustre_size(gib):
        fault = f"FSx for Lustre has {SMALLEST_GIB} GiB and multiples of {STEP_GIB} GiB: give {lustre_size_gib(gib)}"
        raise PydanticCustomError("STO003", "{fault}", {"fault": fault})
    return gib


class EfsStoreSpec(Spec):
    """Amazon EFS: grows and shrinks with its content, is there in every zone of the network, and is paid by use.

    Its throughput is elastic; nothing about it has to be sized. Files belong to one user, whoever wrote them, so pods need not
    run as root to write. Source: EFS user guide, "Throughput modes", "Working with access points".
    """

    kind: Literal["efs"] = Field(default="efs", description="Amazon EFS.")

    @property
    def file_system(self) -> FileSystem:
        return self.kind


class LustreStoreSpec(Spec):
    """Amazon FSx for Lustre on SSD storage: faster from one node, of one zone, of a fixed size, and paid by that size.

    Its root folder belongs to root: pods that write run as root or below a folder that root gave them. A change of ``deployment``
    or ``zone_id`` makes another, empty file system: stop the pods that mount it first. Nodes need an image whose kernel has the
    Lustre client, as AL2023's has. Source: FSx for Lustre user guide, "Deployment options", "Performance".
    """

    kind: Literal["fsx_lustre"] = Field(description="Amazon FSx for Lustre.")
    deployment: Literal["persistent", "scratch"] = Field(
        default="persistent",
        description="persistent (PERSISTENT_2): servers that fail are replaced, and their data are kept. scratch (SCRATCH_2): "
        "cheaper; data are lost with a server, and the key of the stack does not encrypt them, only a key of the service.",
    )
    size_gib: Annotated[int, AfterValidator(_a_size_lustre_has)] = Field(
        default=SMALLEST_GIB, description="Size: 1200, or a multiple of 2400. It can grow later, and never shrinks."
    )
    throughput_mb_per_tib: Literal[125, 250, 500, 1000] | None = Field(
        default=None, description="Throughput in MB/s for each TiB of the size. Default: 250. Scratch has 200 and no choice."
    )
    zone_id: ZoneId | None = Field(default=None, description="Zone it is in. Default: that of the pool that mounts it.")

    @property
    def file_system(self) -> FileSystem:
        return self.kind

    @model_validator(mode="after")
    def _scratch_has_one_throughput(self) -> Self:
        if self.deployment == "scratch" and self.throughput_mb_per_tib is not None:
            raise ValueError(
                "throughput_mb_per_tib is for deployment: persistent; scratch has 200 MB/s for each TiB: leave it out"
            )
        return self


class ExistingStoreSpec(Spec):
    """A file system the team already has, in reach of the cluster's nodes; nothing of it is made or deleted.

    Its security groups must let the cluster security group in: TCP 2049 for EFS; 988 and 1018-1023 for FSx for Lustre.
    """

    kind: Literal["existing"] = Field(description="A file system that is there already.")
    file_system: FileSystem = Field(description="What it is.")
    file_system_id: str = Field(pattern=r"^fs-[0-9a-f]+$", description="Its id.")
    access_point_id: str | None = Field(
        default=None,
        pattern=r"^fsap-[0-9a-f]+$",
        description="EFS: access point to mount it through, as a user that may write. Default: the file system's root.",
    )
    dns_name: str | None = Field(default=None, pattern=r"^fs-[0-9a-z.-]+$", description="FSx for Lustre: its DNS name.")
    mount_name: str | None = Field(default=None, pattern=r"^[0-9a-z]+$", description="FSx for Lustre: its mount name.")
    size_gib: int | None = Field(default=None, ge=1, description="FSx for Lustre: its size.")
    zone_id: ZoneId | None = Field(default=None, description="Zone it is in, where it is in one only.")

    @model_validator(mode="after")
    def _says_what_its_driver_asks_for(self) -> Self:
        lustre = {"dns_name": self.dns_name, "mount_name": self.mount_name, "size_gib": self.size_gib}
        missing = [key for key, value in lustre.items() if value is None]
        if self.file_system == "fsx_lustre" and missing:
            raise ValueError(f"FSx for Lustre needs {', '.join(missing)} (aws fsx describe-file-systems)")
        if self.file_system == "fsx_lustre" and self.access_point_id:
            raise ValueError("access_point_id is for EFS: leave it out")
        if self.file_system == "efs" and len(missing) < len(lustre):
            raise ValueError(f"{', '.join(key for key in lustre if key not in missing)}: only for FSx for Lustre, leave out")
        return self


def _efs_unless_said(given: Any) -> Any:
    return {"kind": "efs", **given} if isinstance(given, dict) else given


StoreSpec = Annotated[
    EfsStoreSpec | LustreStoreSpec | ExistingStoreSpec, Field(discriminator="kind"), BeforeValidator(_efs_unless_said)
]
"""A shared file system; without ``kind`` it is EFS."""
