"""What a workload needs to know of a shared file system, whoever made it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pulumi


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
    size_gib: int = 1024
    ready: Sequence[pulumi.Resource] = ()
