"""What a workload needs to know of a shared file system, whoever made it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import pulumi

from eks_inference.storage import plan
from eks_inference.storage.spec import ExistingStoreSpec


class Store(Protocol):
    """A file system that the pods of several nodes mount: ``SharedStore`` or ``ExistingStore``."""

    @property
    def driver(self) -> str:
        """Name of the CSI driver that mounts it."""
        ...

    @property
    def volume_handle(self) -> pulumi.Input[str]:
        """What the driver knows it by."""
        ...

    @property
    def volume_attributes(self) -> Mapping[str, pulumi.Input[str]]: ...
    @property
    def mount_options(self) -> Sequence[str]: ...
    @property
    def size_gib(self) -> int:
        """What a volume of it says; file systems that grow say a round number."""
        ...

    @property
    def zone_id(self) -> str | None:
        """The one zone it is in: nodes elsewhere pay for every byte. None: it is in every zone of the network."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """What must exist before a pod can mount it: the file system as nodes reach it, and the driver."""
        ...


@dataclass(frozen=True)
class ExistingStore:
    """A file system the team already has, and its CSI driver in the cluster.

    EFS: driver ``efs.csi.aws.com``, handle ``fs-…`` or, with an access point, ``fs-…::fsap-…``. FSx for Lustre: driver
    ``fsx.csi.aws.com``, handle ``fs-…``, attributes ``dnsname`` and ``mountname``, mount option ``flock``. Root in a container
    must be able to write to it.
    """

    driver: str
    volume_handle: pulumi.Input[str]
    volume_attributes: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    mount_options: Sequence[str] = ()
    size_gib: int = plan.EFS_SIZE_GIB
    zone_id: str | None = None
    ready: Sequence[pulumi.Resource] = ()

    @classmethod
    def described(cls, spec: ExistingStoreSpec, *, ready: Sequence[pulumi.Resource] = ()) -> Self:
        """The handle of what a stack file describes; ``ready`` is its driver where the stack installs it."""
        attributes = {"dnsname": spec.dns_name, "mountname": spec.mount_name}
        return cls(
            driver=plan.DRIVERS[spec.file_system],
            volume_handle="::".join([spec.file_system_id, *([spec.access_point_id] if spec.access_point_id else [])]),
            volume_attributes={key: value for key, value in attributes.items() if value},
            mount_options=plan.MOUNT_OPTIONS[spec.file_system],
            size_gib=spec.size_gib or plan.EFS_SIZE_GIB,
            zone_id=spec.zone_id,
            ready=ready,
        )
