"""What a user decides about a file system that several nodes share."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from eks_inference.spec import Spec


class EfsStoreSpec(Spec):
    """Amazon EFS: grows and shrinks with its content, is there in every zone of the network, and is paid by use.

    Its throughput is elastic; nothing about it has to be sized. Source: EFS user guide, "Throughput modes".
    """

    kind: Literal["efs"] = Field(default="efs", description="Amazon EFS.")


class LustreStoreSpec(Spec):
    """Amazon FSx for Lustre: faster from one node, of one zone, of a fixed size, and paid by that size.

    Nodes need the Lustre client in their kernel, which AL2023 has. Source: FSx for Lustre user guide, "Deployment options",
    "Performance".
    """

    kind: Literal["fsx_lustre"] = Field(description="Amazon FSx for Lustre, persistent SSD storage.")
    size_gib: int = Field(
        default=1200, ge=1200, multiple_of=1200, description="Size. FSx takes multiples of 1200 here, and can grow it later."
    )
    throughput_mb_per_tib: Literal[125, 250, 500, 1000] = Field(
        default=250, description="Throughput in MB/s for each TiB of the size."
    )


def _efs_unless_said(given: Any) -> Any:
    return {"kind": "efs", **given} if isinstance(given, dict) else given


StoreSpec = Annotated[EfsStoreSpec | LustreStoreSpec, Field(discriminator="kind"), BeforeValidator(_efs_unless_said)]
"""A shared file system; without ``kind`` it is EFS."""
