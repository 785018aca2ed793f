"""The interface of a shared file system for workloads, created here or existing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import pulumi

from eks_inference.cluster.handle import Cluster
from eks_inference.component import Handle, comparing
from eks_inference.storage import plan
from eks_inference.storage.spec import ExistingStoreSpec


class Store(Protocol):
    """A file system that pods on several nodes mount: ``SharedStore`` or ``ExistingStore``."""

    @property
    def driver(self) -> str:
        """Name of its CSI driver."""
        ...

    @property
    def volume_handle(self) -> pulumi.Input[str]:
        """Its id for the driver."""
        ...

    @property
    def volume_attributes(self) -> Mapping[str, pulumi.Input[str]]: ...
    @property
    def mount_options(self) -> Sequence[str]: ...
    @property
    def size_gib(self) -> int:
        """Size to declare in a volume; a round number for file systems that grow."""
        ...

    @property
    def zone_id(self) -> str | None:
        """Its only zone: traffic from nodes in other zones costs money. None: it is in every zone of the network."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """Resources that must exist before a pod can mount it: file system, network access and driver."""
        ...


@dataclass(frozen=True)
class ExistingStore(Handle):
    """An existing file system whose CSI driver is in the cluster.

    EFS: driver ``efs.csi.aws.com``, handle ``fs-…`` or, with an access point, ``fs-…::fsap-…``. FSx for Lustre: driver
    ``fsx.csi.aws.com``, handle ``fs-…``, attributes ``dnsname`` and ``mountname``, mount option ``flock``. Root in a container
    must be able to write to the file system.
    """

    driver: str
    volume_handle: pulumi.Input[str]
    volume_attributes: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    mount_options: Sequence[str] = ()
    size_gib: int = plan.EFS_SIZE_GIB
    zone_id: str | None = None
    ready: Sequence[pulumi.Resource] = ()
    cluster: Cluster | None = None
    """The cluster where it is; None: not said, so that it goes with any."""

    @classmethod
    @comparing
    def described(cls, spec: ExistingStoreSpec, *, ready: Sequence[pulumi.Resource] = ()) -> Self:
        """Returns the handle of an existing file system in a stack file; ``ready`` is the driver where the stack installs it."""
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
