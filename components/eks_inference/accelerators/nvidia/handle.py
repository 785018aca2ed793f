"""The interface through which workloads depend on GPU support."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pulumi


class GpuPlugin(Protocol):
    """Offers the GPUs of nodes: ``NvidiaDevicePlugin``, or ``DraDriver`` where they are claimed."""

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """Resources that must exist before a pod that requests a GPU."""
        ...
