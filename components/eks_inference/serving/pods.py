"""What the pods of all model servers have in common: label, resources, flags, spread. Pure functions; no pulumi."""

import json
from collections.abc import Mapping
from typing import Any

from eks_inference.accelerators.neuron.plan import DEVICE_RESOURCE
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference.catalog.engines import EngineProfile, Startup
from eks_inference.catalog.instances import InstanceType
from eks_inference.placement import ZONE_LABEL
from eks_inference.serving.node_share import share

SERVER_LABEL = "eks-inference/server"
"""On every pod of a model server: the server's name."""


SETTLE_SECONDS = 10
"""Until no node's kube-proxy sends requests to a pod that ends any more."""
DRAIN_SECONDS = 180
"""A long generation."""
TERMINATION_SECONDS = SETTLE_SECONDS + DRAIN_SECONDS + 60
"""How long a pod may take to end; the last minute is the end of the engine."""


def cold_start_seconds(startup: Startup, timeout_seconds: int) -> int:
    """Upper bound from the wish for a pod until it answers; ``timeout_seconds`` is what its server may take."""
    return startup.node_start_s + startup.image_pull_s + timeout_seconds


def device_resource(shape: InstanceType) -> str:
    """What a pod asks for to get a device of this instance type. Raises ``ValueError`` for types without devices."""
    if shape.accelerator is None:
        raise ValueError(f"{shape.name} has no accelerator")
    return {"neuron": DEVICE_RESOURCE, "nvidia": GPU_RESOURCE}[shape.accelerator]


def share_of_node(shape: InstanceType, devices: int, *, cpu: str | None, memory: str | None) -> dict[str, str]:
    """Requests and limits of a pod with that many devices: CPU and memory as given, or in proportion to the devices."""
    mine = share(shape, devices)
    return {
        "cpu": cpu or str(max(mine.cpu_millis // 1000, 1)),
        "memory": memory or f"{mine.memory_mib // 1024}Gi",
        device_resource(shape): str(devices),
    }


def quota_devices(most: int, *, ending: int, devices: int) -> int:
    """Devices that the pods of a namespace may ask for together: ``devices`` each of the ``most`` pods there are.

    A quota counts a pod until it has ended. ``ending`` pods may still do so when their successors are made, which then wait for
    devices, and must be let in to wait: a controller that is refused tries again ever more seldom.
    """
    return (most + ending) * devices


def engine_args(profile: EngineProfile, *, max_num_seqs: int, max_model_len: int, extra: Mapping[str, Any]) -> list[str]:
    """Flags beyond those of the shape: first the profile's, then the user's. vLLM takes the last of two."""
    return [*profile.flags(max_num_seqs=max_num_seqs, max_model_len=max_model_len), *flags(extra)]


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings of the engine as flags of ``vllm serve``: true and false become --flag and --no-flag, objects become JSON."""
    return [_flag(name.replace("_", "-"), value) for name, value in settings.items()]


def _flag(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value if isinstance(value, str | int | float) else json.dumps(value)}"


def spread_over_zones(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Pods over zones where there is a choice. Not over nodes: one pod a node would strand devices of large nodes."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": ZONE_LABEL,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(labels)},
        }
    ]
