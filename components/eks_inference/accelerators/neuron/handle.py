"""What a workload needs to know of Neuron support, whoever installed it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pulumi

from eks_inference.accelerators.neuron.plan import SCHEDULER_NAME


class DeviceScheduler(Protocol):
    """A scheduler that hands out neighbouring Neuron devices: ``NeuronScheduler`` or ``ExistingNeuronScheduler``."""

    @property
    def scheduler_name(self) -> str:
        """What pods write in ``schedulerName``."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]: ...


@dataclass(frozen=True)
class ExistingNeuronScheduler:
    """A scheduler with the Neuron extension that the team already runs, e.g. from AWS's own chart."""

    scheduler_name: str = SCHEDULER_NAME
    ready: Sequence[pulumi.Resource] = ()
