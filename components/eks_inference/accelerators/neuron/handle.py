"""The interface through which workloads depend on the Neuron scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pulumi

from eks_inference.accelerators.neuron.plan import SCHEDULER_NAME
from eks_inference.cluster.handle import Cluster
from eks_inference.component import Handle


class DeviceScheduler(Protocol):
    """A scheduler that allocates contiguous Neuron devices: ``NeuronScheduler`` or ``ExistingNeuronScheduler``."""

    @property
    def scheduler_name(self) -> str:
        """The value of ``schedulerName`` in pods."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]: ...


@dataclass(frozen=True)
class ExistingNeuronScheduler(Handle):
    """A scheduler with the Neuron extension that the team already runs, e.g. from AWS's chart."""

    scheduler_name: str = SCHEDULER_NAME
    ready: Sequence[pulumi.Resource] = ()
    cluster: Cluster | None = None
    """The cluster where it is; None: not said, so that it goes with any."""
