"""Plans what the pods of all model servers share: label, resources, flags, spread. Pure functions; no pulumi."""

from collections.abc import Mapping
from typing import Any

from eks_inference.catalog.accelerators import DEVICE_RESOURCES
from eks_inference.catalog.engines import EngineProfile, Startup
from eks_inference.catalog.instances import InstanceType
from eks_inference.placement import ZONE_LABEL

SERVER_LABEL = "eks-inference/server"
"""Label of every pod of a model server. Its value is the server's name."""

SETTLE_SECONDS = 10
"""Time until every node's kube-proxy has stopped sending requests to a terminating pod."""
DRAIN_SECONDS = 180
"""Time for running requests: that of a long generation."""
TERMINATION_SECONDS = SETTLE_SECONDS + DRAIN_SECONDS + 60
"""Termination grace period of a pod. The last minute is for the shutdown of the engine."""


def vllm_release(profile: EngineProfile) -> tuple[int, ...]:
    """Returns the vLLM release of an engine profile as numbers, without suffixes like ``post1``."""
    return tuple(int(part) for part in profile.vllm.split(".") if part.isdecimal())


def cold_start_seconds(startup: Startup, timeout_seconds: int) -> int:
    """Returns an upper bound from the creation of a pod until it answers. Its server may take ``timeout_seconds``."""
    return startup.node_start_s + startup.image_pull_s + timeout_seconds


def device_resource(shape: InstanceType) -> str:
    """Returns the extended resource of this instance type's devices. Raises ``ValueError`` for types without devices."""
    if shape.accelerator is None:
        raise ValueError(f"{shape.name} has no accelerator")
    return DEVICE_RESOURCES[shape.accelerator]


def quota_devices(most: int, *, ending: int, devices: int) -> int:
    """Returns the devices that the pods of a namespace may request together: ``devices`` for each of ``most`` pods.

    A quota counts a pod until it has ended. Up to ``ending`` pods may still be terminating when their successors are created.
    The quota must admit the successors although they wait for devices, because a refused controller retries ever less often.
    """
    return (most + ending) * devices


def spread_over_zones(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Prefers to spread pods over zones, but not over nodes: one pod per node would strand devices of large nodes."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": ZONE_LABEL,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(labels)},
        }
    ]
