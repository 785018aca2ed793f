"""A server of equal pods as data: counts, times, guards, and the parts of its Deployment that no engine decides. Pure; no pulumi.

Sources: Kubernetes documentation ("Deployments", "Pod Lifecycle", "Resource Quotas", "Specifying a Disruption Budget for your
Application", "Local ephemeral storage").
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eks_inference.accelerators.neuron.plan import needs_scheduler
from eks_inference.catalog.instances import InstanceType
from eks_inference.kubernetes.pod_security import RESTRICTED_CONTAINER, restricted_pod
from eks_inference.placement import Placement
from eks_inference.serving import pods, protection
from eks_inference.serving.hardware import Hardware
from eks_inference.serving.shape import ReplicatedServerSpec
from eks_inference.serving.spec import S3Model
from eks_inference.serving.storage_plan import PodStorage

MAX_NAME_LENGTH = 40
"""Of a server: its name is a DNS label, and the beginning of longer ones."""

USER = 1000
"""Whom the engine runs as."""

CONTAINER_SECURITY = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}

TMP = {"name": "tmp", "mountPath": "/tmp"}

_PROBE_SECONDS = 10
_DEAF_SECONDS = 60
"""A server that has not answered that long is started again."""


# -- counts and times -----------------------------------------------------------------------------------------------------------


def device_count(spec: ReplicatedServerSpec, shape: InstanceType) -> int:
    """Devices of one pod."""
    return spec.devices or shape.devices


def hardware(spec: ReplicatedServerSpec, shape: InstanceType) -> Hardware:
    return Hardware(shape.name, device_count(spec, shape), pods_min=spec.fewest, pods_max=spec.most - spec.surge)


def resources(spec: ReplicatedServerSpec, shape: InstanceType) -> dict[str, str]:
    """Requests and limits of one pod apart from its disk: what the spec says, or the devices' share of the node."""
    return pods.share_of_node(shape, device_count(spec, shape), cpu=spec.cpu, memory=spec.memory)


def model_copy_gib(spec: ReplicatedServerSpec) -> int:
    """Node disk that a copy of a model from S3 takes in one pod."""
    return spec.model.size_gib if isinstance(spec.model, S3Model) else 0


def startup_timeout_seconds(spec: ReplicatedServerSpec) -> int:
    """How long the server of a pod may take from the start of its process until it answers."""
    return spec.startup_timeout_seconds or spec.profile.startup.engine_s


def cold_start_seconds(spec: ReplicatedServerSpec) -> int:
    """Upper bound from the request for a pod until it answers."""
    return pods.cold_start_seconds(spec.profile.startup, startup_timeout_seconds(spec))


def progress_seconds(spec: ReplicatedServerSpec) -> int:
    """How long a roll-out may make no progress: one pod ends, and the next one starts from nothing."""
    return pods.TERMINATION_SECONDS + cold_start_seconds(spec)


def rollout_seconds(spec: ReplicatedServerSpec) -> int:
    """How long a roll-out may take in all: one pod after the other, or ``surge`` of them at a time.

    Pods of the roll-out itself are not among those that it replaces.
    """
    return progress_seconds(spec) * max(math.ceil((spec.most - spec.surge) / max(spec.surge, 1)), 1)


# -- names and guards -----------------------------------------------------------------------------------------------------------


def account(name: str) -> str:
    """Name of the service account of the pods."""
    return f"{name}-server"


def quota(name: str, spec: ReplicatedServerSpec, shape: InstanceType) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the ResourceQuota. A pod of a roll-out that still ends has a successor already."""
    devices = pods.quota_devices(spec.most, ending=max(spec.surge, 1), devices=device_count(spec, shape))
    return protection.device_quota(spec.namespace_of(name), pods.device_resource(shape), devices)


def disruption_budget(name: str, spec: ReplicatedServerSpec, labels: Mapping[str, str]) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the PodDisruptionBudget."""
    kept = {"minAvailable": spec.fewest} if spec.evictions == "refused" and spec.fewest else {"maxUnavailable": 1}
    return {
        "metadata": {"name": name, "namespace": spec.namespace_of(name)},
        "spec": {**kept, "selector": {"matchLabels": dict(labels)}},
    }


# -- manifests ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Engine:
    """What only the engine of a server decides about its pods. Values may be ones that are only known when deployed."""

    name: str
    """Of the container."""
    command: Sequence[str]
    arguments: Sequence[str]
    home: str
    """Folder that the engine works in: a volume, since the root file system cannot be written."""
    environment: Mapping[str, str]
    ports: Mapping[str, int]
    health: tuple[str, str]
    """Paths that answer while the server is alive, and while it is ready; both on the port ``http``."""
    disk_gib: int
    """Node disk that one pod asks for."""
    stop: Sequence[str]
    """Command that runs before the engine is told to end. Kubernetes takes a pod that ends out of its Service at once, but nodes
    learn of it one after the other: wait ``pods.SETTLE_SECONDS`` first."""
    mounts: Sequence[Mapping[str, Any]] = ()
    volumes: Sequence[Mapping[str, Any]] = ()
    """The volume of ``home`` among them. /tmp and /dev/shm come by themselves."""
    init_containers: Sequence[Mapping[str, Any]] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of the pods: digests of what must change them when it changes."""


def deployment(
    name: str,
    spec: ReplicatedServerSpec,
    placement: Placement,
    engine: Engine,
    *,
    labels: Mapping[str, str],
    image: Any,
    storage: PodStorage,
    secret_env: Sequence[Mapping[str, Any]] = (),
    scheduler_name: str | None = None,
) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Deployment. ``scheduler_name`` is used only where the number of devices needs it.

    The image and what stands in ``storage`` and ``secret_env`` may be values that are only known when deployed.
    """
    shape = placement.instance_type
    partial = shape.neuron and needs_scheduler(device_count(spec, shape), shape)
    first = [*engine.init_containers, *(_with_tmp(one) for one in storage.init_containers)]
    return {
        "metadata": {"name": name, "namespace": spec.namespace_of(name), "labels": dict(labels)},
        "spec": {
            **({} if spec.autoscaling else {"replicas": spec.replicas}),
            # Devices that a pod holds are free when it has ended. One more pod would wait for devices of its own: on nodes that
            # are full for ever, with Karpenter for another node.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": spec.surge, "maxUnavailable": 0 if spec.surge else 1},
            },
            "progressDeadlineSeconds": progress_seconds(spec),
            "selector": {"matchLabels": dict(labels)},
            "template": {
                "metadata": {"labels": dict(labels), "annotations": dict(engine.annotations)},
                "spec": {
                    "nodeSelector": dict(placement.node_selector),
                    "tolerations": placement.tolerations(),
                    **({"schedulerName": scheduler_name} if partial and scheduler_name else {}),
                    "topologySpreadConstraints": pods.spread_over_zones(labels),
                    "serviceAccountName": account(name),
                    # A server runs downloaded models and has no business with the API server.
                    "automountServiceAccountToken": False,
                    # A Service named vllm would otherwise put VLLM_PORT=tcp://... into every pod, which vLLM takes for its port.
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": pods.TERMINATION_SECONDS,
                    "securityContext": restricted_pod(USER),
                    **({"initContainers": first} if first else {}),
                    "containers": [_container(spec, shape, engine, image, storage, secret_env)],
                    "volumes": [
                        *engine.volumes,
                        {"name": "tmp", "emptyDir": {}},
                        {
                            "name": "shared-memory",
                            "emptyDir": {"medium": "Memory", "sizeLimit": f"{spec.shared_memory_gib}Gi"},
                        },
                        *storage.volumes,
                    ],
                },
            },
        },
    }


def service(name: str, spec: ReplicatedServerSpec, labels: Mapping[str, str], ports: Mapping[str, int]) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Service in front of the pods that can answer."""
    return {
        "metadata": {
            "name": name,
            "namespace": spec.namespace_of(name),
            "labels": dict(labels),
            # Pulumi would wait for a pod, which comes later. The Deployment waits for all of them.
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {
            "type": "ClusterIP",
            "selector": dict(labels),
            "ports": [{"name": port, "port": number, "targetPort": port} for port, number in ports.items()],
        },
    }


def _container(
    spec: ReplicatedServerSpec,
    shape: InstanceType,
    engine: Engine,
    image: Any,
    storage: PodStorage,
    secret_env: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    sizes = {**resources(spec, shape), "ephemeral-storage": f"{engine.disk_gib}Gi"}
    live, ready = (
        {"httpGet": {"path": path, "port": "http"}, "periodSeconds": _PROBE_SECONDS, "timeoutSeconds": _PROBE_SECONDS}
        for path in engine.health
    )
    return {
        "name": engine.name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        # An image's own entry point starts what it thinks fit, or writes to the root file system.
        "command": list(engine.command),
        "args": list(engine.arguments),
        "workingDir": engine.home,
        "env": [
            *(dict(entry) for entry in secret_env if entry["name"] not in engine.environment),
            *storage.env,
            *({"name": key, "value": value} for key, value in engine.environment.items()),
        ],
        "ports": [{"name": port, "containerPort": number} for port, number in engine.ports.items()],
        # Requests equal limits: devices allow nothing else.
        "resources": {"requests": sizes, "limits": sizes},
        "startupProbe": {**live, "failureThreshold": math.ceil(startup_timeout_seconds(spec) / _PROBE_SECONDS)},
        "readinessProbe": ready,
        "livenessProbe": {**live, "failureThreshold": _DEAF_SECONDS // _PROBE_SECONDS},
        "lifecycle": {"preStop": {"exec": {"command": list(engine.stop)}}},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            *engine.mounts,
            TMP,
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            *storage.mounts,
        ],
    }


def _with_tmp(container: Mapping[str, Any]) -> dict[str, Any]:
    return {**container, "securityContext": CONTAINER_SECURITY, "volumeMounts": [*container["volumeMounts"], TMP]}
