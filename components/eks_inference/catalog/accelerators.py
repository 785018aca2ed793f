"""Accelerator kinds of catalog rows. Only this module compares their names."""

from collections.abc import Mapping
from typing import Literal, Protocol

Accelerator = Literal["neuron", "nvidia"]

DEVICE_RESOURCES: Mapping[Accelerator, str] = {"neuron": "aws.amazon.com/neuron", "nvidia": "nvidia.com/gpu"}
"""The extended resource that the device plugin of each kind offers, whole devices (EKS user guide, "Neuron devices", "GPU")."""


class _Row(Protocol):
    @property
    def accelerator(self) -> Accelerator | None: ...


class ForAccelerator:
    """Mixin for rows with an ``accelerator`` column."""

    @property
    def neuron(self: _Row) -> bool:
        """Whether the row is for AWS Neuron devices."""
        return self.accelerator == "neuron"

    @property
    def nvidia(self: _Row) -> bool:
        """Whether the row is for NVIDIA GPUs."""
        return self.accelerator == "nvidia"
