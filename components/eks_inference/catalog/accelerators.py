"""The kinds of accelerators that rows of the catalog are for. The one place that compares their names."""

from typing import Literal, Protocol

Accelerator = Literal["neuron", "nvidia"]


class _Row(Protocol):
    @property
    def accelerator(self) -> Accelerator | None: ...


class ForAccelerator:
    """A row that is for one kind of accelerator, or for none, as its ``accelerator`` says."""

    @property
    def neuron(self: _Row) -> bool:
        """Whether it is for AWS Neuron devices."""
        return self.accelerator == "neuron"

    @property
    def nvidia(self: _Row) -> bool:
        """Whether it is for NVIDIA GPUs."""
        return self.accelerator == "nvidia"
