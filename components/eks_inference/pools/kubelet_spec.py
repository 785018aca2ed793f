"""Settings of the kubelet, with the names that KubeletConfiguration gives them.

Only settings that the library can judge are here. Others are EKS's (credentials, authorization, cgroups, DNS): nodes that change
them do not join, or let anyone who reaches them run commands in every pod.
Sources: Kubernetes, KubeletConfiguration (v1beta1); Karpenter, "NodeClasses", spec.kubelet.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from eks_inference.quantity import cpu_millis
from eks_inference.spec import Memory, Quantity, Spec

Reserved = Literal["cpu", "memory", "ephemeral-storage", "pid"]
Signal = Literal[
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
]
Threshold = Annotated[
    str,
    Field(
        pattern=r"^(\d+(\.\d+)?(m|k|[MGT]|[KMGT]i)?|\d{1,2}(\.\d+)?%|100%)$",
        description="A quantity, or a share of the whole: '200Mi', '5%'. 0% and 100% turn a threshold off.",
    ),
]
GracePeriod = Annotated[str, Field(pattern=r"^(0|(\d+(\.\d+)?(h|m|s|ms))+)$", description="'90s', '2m30s', '1.5h'.")]


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def _seconds(period: str) -> float:
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|s)", period))


class KarpenterKubeletSpec(Spec):
    """Settings that Karpenter can give a node. Reservations and thresholds count in every rule about what fits a node."""

    maxPods: int | None = Field(default=None, ge=1, description="Most pods of a node, DaemonSets included.")
    podsPerCore: int | None = Field(default=None, ge=0, description="Most pods per core; 0: no such limit.")
    systemReserved: dict[Reserved, Quantity] | None = Field(default=None, description="Kept for the system.")
    kubeReserved: dict[Reserved, Quantity] | None = Field(
        default=None, description="Kept for kubelet and container runtime, instead of what AL2023 keeps."
    )
    evictionHard: dict[Signal, Threshold] | None = Field(default=None, description="Below it pods end at once.")
    evictionSoft: dict[Signal, Threshold] | None = Field(default=None, description="Below it pods end after a grace period.")
    evictionSoftGracePeriod: dict[Signal, GracePeriod] | None = Field(
        default=None, description="The grace period of each signal of evictionSoft."
    )
    evictionMaxPodGracePeriod: int | None = Field(
        default=None,
        ge=-1,
        description="Longest time of a pod to end in a soft eviction, in seconds; -1: as long as the pod says itself.",
    )
    imageGCHighThresholdPercent: int | None = Field(
        default=None, ge=1, le=100, description="Disk use above which images are removed."
    )
    imageGCLowThresholdPercent: int | None = Field(
        default=None, ge=0, le=99, description="Disk use down to which images are removed."
    )
    cpuCFSQuota: bool | None = Field(default=None, description="Whether CPU limits of containers are enforced.")

    def settings(self) -> dict[str, Any]:
        """Returns the given settings as in KubeletConfiguration."""
        return self.model_dump(mode="json", exclude_none=True)

    @model_validator(mode="after")
    def _soft_thresholds_have_a_period(self) -> Self:
        soft, periods = set(self.evictionSoft or ()), set(self.evictionSoftGracePeriod or ())
        if soft != periods:
            raise ValueError(
                "the kubelet starts only if evictionSoft and evictionSoftGracePeriod have the same signals; only one has: "
                + ", ".join(sorted(soft ^ periods))
            )
        return self

    @model_validator(mode="after")
    def _images_are_removed_downwards(self) -> Self:
        # Defaults of the kubelet.
        high = 85 if self.imageGCHighThresholdPercent is None else self.imageGCHighThresholdPercent
        low = 80 if self.imageGCLowThresholdPercent is None else self.imageGCLowThresholdPercent
        if low >= high:
            raise ValueError(
                f"the kubelet starts only if imageGCLowThresholdPercent ({low}) is below imageGCHighThresholdPercent ({high})"
            )
        return self


class KubeletSpec(KarpenterKubeletSpec):
    """Settings of the nodes of a managed pool."""

    registryPullQPS: int | None = Field(default=None, ge=0, description="Image pulls per second; 0: no limit.")
    registryBurst: int | None = Field(
        default=None, ge=0, description="Most image pulls at once, within registryPullQPS. 0 only if that is 0."
    )
    serializeImagePulls: bool | None = Field(default=None, description="Pull one image at a time.")
    maxParallelImagePulls: int | None = Field(default=None, ge=1, description="Images pulled at a time.")
    containerLogMaxSize: Memory | None = Field(default=None, description="Size at which a container's log file is rotated.")
    containerLogMaxFiles: int | None = Field(default=None, ge=2, description="Log files of a container.")
    podPidsLimit: int | None = Field(default=None, ge=-1, description="Most processes of a pod, at least 100; -1: no limit.")
    cpuManagerPolicy: Literal["none", "static"] | None = Field(
        default=None, description="static: pods of whole CPUs have them to themselves."
    )
    topologyManagerPolicy: Literal["none", "best-effort", "restricted", "single-numa-node"] | None = Field(
        default=None, description="Whether CPUs and devices of a pod come from one NUMA node."
    )
    shutdownGracePeriod: GracePeriod | None = Field(default=None, description="Time that pods have when a node shuts down.")
    shutdownGracePeriodCriticalPods: GracePeriod | None = Field(
        default=None, description="The part of it that is for critical pods."
    )

    @model_validator(mode="after")
    def _one_way_to_pull(self) -> Self:
        if (self.maxParallelImagePulls or 1) > 1 and self.serializeImagePulls is not False:
            raise ValueError("the kubelet starts with maxParallelImagePulls above 1 only if serializeImagePulls is false")
        return self

    @model_validator(mode="after")
    def _exclusive_cpus_leave_some(self) -> Self:
        # What AL2023 keeps where the settings say nothing is above 0.
        kept = [(one or {}).get("cpu") for one in (self.kubeReserved, self.systemReserved)]
        if self.cpuManagerPolicy == "static" and kept[0] is not None and not any(cpu_millis(one) for one in kept if one):
            raise ValueError(
                "the kubelet starts with cpuManagerPolicy static only if kubeReserved or systemReserved has CPU above 0"
            )
        return self

    @model_validator(mode="after")
    def _shutdown_has_time_for_critical_pods(self) -> Self:
        whole, part = self.shutdownGracePeriod or "0", self.shutdownGracePeriodCriticalPods or "0"
        if _seconds(part) > _seconds(whole):
            raise ValueError(
                f"the kubelet starts only if shutdownGracePeriodCriticalPods ({part}) is within shutdownGracePeriod ({whole})"
            )
        return self

    @model_validator(mode="after")
    def _limits_let_pods_start(self) -> Self:
        if self.registryBurst == 0 and self.registryPullQPS != 0:
            raise ValueError("registryBurst 0 lets no image be pulled, unless registryPullQPS is 0 too, which is no limit")
        if self.podPidsLimit is not None and self.podPidsLimit != -1 and self.podPidsLimit < 100:
            raise ValueError(f"podPidsLimit {self.podPidsLimit} is too few for an engine: at least 100, or -1 for no limit")
        return self
