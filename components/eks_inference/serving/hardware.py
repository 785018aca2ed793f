"""What the pods of a server run on, as measurements of it name it. Pure; no pulumi."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Hardware:
    """One instance type, a number of Neuron devices or GPUs for each pod, and the number of pods, but for those of a roll-out."""

    instance_type: str
    devices_per_pod: int
    pods_min: int
    pods_max: int

    @property
    def devices(self) -> int | None:
        """Devices of all pods together; None where the number of pods changes with the load."""
        return self.devices_per_pod * self.pods_max if self.pods_min == self.pods_max else None
