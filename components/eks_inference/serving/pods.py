"""Plans what the pods of all model servers share: label, resources, flags, spread. Pure functions; no pulumi."""

from collections.abc import Mapping
from typing import Any

from eks_inference.catalog.accelerators import DEVICE_RESOURCES
from eks_inference.catalog.engines import EngineProfile, Startup
from eks_inference.catalog.instances import InstanceType
from eks_inference.placement import ZONE_LABEL

SERVER_LABEL = "eks-inference/server"
"""Label of every pod of a model server. Its value is the server's name."""

ROLE_LABEL = "eks-inference/role"
"""Label of pods of a server that do different things. Its value is theirs: ``prefill``, ``router``, ``prefetch``."""

REVISION_LABEL = "eks-inference/revision"
"""Label of pods that work only with pods of the same revision. Its value is a hash of what they have to have in common."""

SETTLE_SECONDS = 10
"""Time until every node's kube-proxy has stopped sending requests to a terminating pod."""
DRAIN_SECONDS = 180
"""Time for running requests: that of a long generation."""
TERMINATION_SECONDS = SETTLE_SECONDS + DRAIN_SECONDS + 60
"""Termination grace period of a pod. The last minute is for the shutdown of the engine."""
BALANCED_SETTLE_SECONDS = 40
"""The same where a load balancer sends the requests: its controller sees the end of the pod, AWS takes the target out, and each
part of the load balancer learns of it. AWS publishes no bound."""


KEEP_ALIVE_SECONDS = 4010
"""How long a server keeps a connection of a load balancer that is idle: longer than any load balancer does (4000 s), or else a
request may come just when the server closes, and fails (Elastic Load Balancing user guide, "Connection idle timeout")."""


def settle_seconds(behind_load_balancer: bool) -> int:
    """Returns how long a terminating pod still gets new requests."""
    return BALANCED_SETTLE_SECONDS if behind_load_balancer else SETTLE_SECONDS


def termination_seconds(behind_load_balancer: bool) -> int:
    """Returns the termination grace period of a pod."""
    return TERMINATION_SECONDS - SETTLE_SECONDS + settle_seconds(behind_load_balancer)


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
