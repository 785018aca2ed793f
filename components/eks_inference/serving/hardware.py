"""The hardware under a server, as load test results name it. Pure; no pulumi."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Hardware:
    """An instance type, the Neuron devices or GPUs of each pod, and the number of pods without those of a rollout."""

    instance_type: str
    devices_per_pod: int
    pods_min: int
    pods_max: int

    @property
    def devices(self) -> int | None:
        """Devices of all pods together; None when the number of pods varies with load."""
        return self.devices_per_pod * self.pods_max if self.pods_min == self.pods_max else None
