"""What a workload needs to know of GPU support, whoever installed it."""

from collections.abc import Sequence
from typing import Protocol

import pulumi


class GpuPlugin(Protocol):
    """What makes GPUs a resource of their nodes: ``NvidiaDevicePlugin``."""

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """What must exist before a pod that asks for a GPU."""
        ...
