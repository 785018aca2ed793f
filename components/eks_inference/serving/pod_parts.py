"""Plans what the pods of all model servers share: labels, resources, flags, environment, scripts, spread, the hardware under
them, NetworkPolicies and device quotas. Pure functions; no pulumi.

Source: Kubernetes documentation, "Resource Quotas".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from eks_inference.catalog.engines import EngineProfile, Startup
from eks_inference.catalog.instances import DEVICE_RESOURCES, InstanceType
from eks_inference.catalog.models import Model
from eks_inference.kubernetes.network_policy import (
    DNS,
    EVERY_NAMESPACE,
    HTTPS,
    POD_IDENTITY,
    Rule,
    addresses,
    allow_from,
    allow_to,
    namespace,
    namespaces_labelled,
    network_policy,
)
from eks_inference.place.placement import ZONE_LABEL
from eks_inference.serving.shape import ServerSpec

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


def engine_environment(
    engine: EngineProfile, instance: InstanceType, model: Model | None, timeout_s: int, *, efa_interfaces: int = 0
) -> dict[str, str]:
    """Returns the variables of an engine that may take ``timeout_s`` to start, in a pod with so many EFA interfaces.

    An engine that fetches pictures follows no redirects: one leads from a domain that is allowed to any other (vLLM 0.30.0,
    docs/usage/security.md).

    Without the limits, vLLM gives its engine 600 seconds, however long the probes of a pod wait (vllm/envs.py of release 0.30.0,
    VLLM_ENGINE_READY_TIMEOUT_S).
    """
    waits = {name: str(getattr(engine.startup, phase)) for name, phase in engine.generation.waits.items()}
    affinity = engine.generation.efa_affinity
    lost = affinity if affinity and not affinity.finds(instance.name, efa_interfaces) else None
    skipping = {lost.switch: lost.skips} if lost else {}
    fetching = {"VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0"} if model and model.sees else {}
    return {"VLLM_ENGINE_READY_TIMEOUT_S": str(timeout_s), **waits, **skipping, **fetching}


DOWNLOAD = "download.py"
"""Downloads a model from the Hub into a folder, once: ``download.py REPOSITORY REVISION FOLDER``."""
DRAIN = "drain.py"
"""Gives running requests time before a pod ends: ``drain.py SECONDS``."""
KEEP_ARTIFACT = "keep_artifact.py"
"""Starts a server and keeps the compiled model: ``keep_artifact.py FOLDER PORT COMMAND...``."""


def script_texts(kind: str, *names: str) -> dict[str, str]:
    """Returns the texts of scripts by file name. ``kind`` is the folder of a kind of server."""
    serving = files("eks_inference.serving")
    places = (serving.joinpath(kind, "assets"), serving.joinpath("assets"))
    found = {name: next(path for place in places if (path := place.joinpath(name)).is_file()) for name in names}
    return {name: path.read_text("utf-8") for name, path in found.items()}


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


def egress(spec: ServerSpec) -> list[Rule]:
    """Returns where the pods of a server may connect: DNS, EKS Pod Identity, and over HTTPS what downloads need (Hub, S3)."""
    return [DNS, POD_IDENTITY, *over_https(spec)]


def over_https(spec: ServerSpec) -> list[Rule]:
    """Returns where they may connect over HTTPS."""
    if spec.egress is None:
        return [HTTPS]
    return [allow_to(*map(addresses, spec.egress), tcp=[443])] if spec.egress else []


def closed(server: str, space: str) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the NetworkPolicy that denies all traffic that no other policy allows."""
    return network_policy(f"{server}-closed", space, selector={}, ingress=(), egress=())


def server_policies(
    name: str, spec: ServerSpec, labels: Mapping[str, str], *, api: Sequence[int], metrics: int
) -> dict[str, dict[str, Any]]:
    """Returns the NetworkPolicies of a namespace by role. They open the ``api`` ports to clients, ``metrics`` to Prometheus."""
    space = spec.namespace_of(name)
    return {
        "closed": closed(name, space),
        "server": network_policy(
            name,
            space,
            selector=labels,
            ingress=[
                *(from_clients(spec.client_namespaces, port) for port in api),
                *from_prometheus(spec.metrics_namespaces, metrics),
            ],
            egress=egress(spec),
        ),
    }


def from_clients(client_namespaces: Mapping[str, str], port: int) -> Rule:
    """Returns the ingress rule of the API: from namespaces with these labels, or without labels from all namespaces."""
    return allow_from(namespaces_labelled(client_namespaces) if client_namespaces else EVERY_NAMESPACE, tcp=[port])


def from_prometheus(metrics_namespaces: Sequence[str], port: int) -> list[Rule]:
    """Returns the ingress rules of the metrics; none when no namespace reads them."""
    return [allow_from(*(namespace(each) for each in metrics_namespaces), tcp=[port])] if metrics_namespaces else []


def device_quota(space: str, hard: Mapping[str, int]) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the ResourceQuota that limits the devices of all pods in the namespace together."""
    return {
        "metadata": {"name": "accelerators", "namespace": space},
        "spec": {"hard": {resource: str(devices) for resource, devices in hard.items()}},
    }
