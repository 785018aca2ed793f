"""The interface through which workloads depend on a driver that offers devices for claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pulumi


class DeviceDriver(Protocol):
    """Publishes the devices of nodes for claims: ``DraDriver``."""

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """Resources that must outlive a pod with claims: the kubelet cannot end it without the driver."""
        ...
