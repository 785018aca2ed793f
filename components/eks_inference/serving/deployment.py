"""Plans servers of equal pods: counts, times, guards, and the engine-independent parts of the Deployment. Pure; no pulumi.

Functions named after a kind of object return its ``metadata`` and ``spec``.

Sources: Kubernetes documentation ("Deployments", "Pod Lifecycle", "Resource Quotas", "Specifying a Disruption Budget for your
Application", "Local ephemeral storage").
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import needs_scheduler
from eks_inference.catalog.engines import Startup
from eks_inference.catalog.instances import InstanceType
from eks_inference.kubernetes import workloads
from eks_inference.kubernetes.workloads import RESTRICTED_CONTAINER, restricted_pod
from eks_inference.place.claimed_devices import DeviceClaims, claimed_resource, device_claims
from eks_inference.place.nodes import amount, pod_size
from eks_inference.place.placement import Placement
from eks_inference.serving import pod_parts
from eks_inference.serving.cold_start import cold_start
from eks_inference.serving.pod_parts import Hardware
from eks_inference.serving.shape import ReplicatedServerSpec
from eks_inference.serving.spec import S3Model
from eks_inference.serving.storage_plan import PodStorage

MAX_NAME_LENGTH = 40
"""Longest name of a server, which is a DNS label and the start of longer ones."""

USER = 1000
"""User and group id of the engine."""

CONTAINER_SECURITY = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}

ROOT_POD: Mapping[str, Any] = {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}
"""Security context of a pod whose engine runs as root."""

TMP = {"name": "tmp", "mountPath": "/tmp"}

_PROBE_SECONDS = 10
_UNRESPONSIVE_SECONDS = 60
"""A server that does not answer for this long is restarted."""


# -- counts and times -----------------------------------------------------------------------------------------------------------


def device_count(spec: ReplicatedServerSpec, shape: InstanceType) -> int:
    return spec.devices or shape.devices


def hardware(spec: ReplicatedServerSpec, shape: InstanceType) -> Hardware:
    return Hardware(shape.name, device_count(spec, shape), pods_min=spec.fewest, pods_max=spec.most - spec.surge)


def resources(spec: ReplicatedServerSpec, placement: Placement) -> dict[str, str]:
    """Returns one pod's requests and limits except disk: the spec's, or else a share of the smallest node."""
    found = [
        pod_size(shape, device_count(spec, shape), cpu=spec.cpu, memory=spec.memory, claimed=placement.claimed)
        for shape in (place.instance_type for place in placement.places)
    ]
    return found[0] | {what: min((size[what] for size in found), key=amount) for what in ("cpu", "memory")}


def claims(spec: ReplicatedServerSpec, placement: Placement, efa_interfaces: int = 0) -> DeviceClaims:
    """Returns what one pod claims; nothing where device plugins offer devices and EFA interfaces.

    Raises ``SpecError`` as ``device_claims`` does.
    """
    if not placement.claimed:
        return DeviceClaims({})
    return device_claims(placement, device_count(spec, placement.instance_type), efa_interfaces=efa_interfaces)


def model_copy_gib(spec: ReplicatedServerSpec) -> int:
    """Returns the node disk that one pod needs for a copy of a model from S3."""
    return spec.model.copy_gib if isinstance(spec.model, S3Model) else 0


def startup(spec: ReplicatedServerSpec, placement: Placement) -> Startup:
    """Returns the limits of a cold start on these nodes: of each phase, the longest."""
    found = (cold_start(spec, place, device_count(spec, place.instance_type)).startup for place in placement.places)
    return Startup(*map(max, zip(*map(astuple, found), strict=True)))


def startup_timeout_seconds(spec: ReplicatedServerSpec, placement: Placement) -> int:
    """Returns how long a server may take from the start of its process until it answers."""
    return spec.startup_timeout_seconds or startup(spec, placement).engine_s


def cold_start_seconds(spec: ReplicatedServerSpec, placement: Placement) -> int:
    """Returns an upper bound from the creation of a pod until it answers."""
    return pod_parts.cold_start_seconds(startup(spec, placement), startup_timeout_seconds(spec, placement))


def progress_seconds(spec: ReplicatedServerSpec, placement: Placement) -> int:
    """Returns how long a rollout may make no progress: one pod terminates, and the next one makes a cold start."""
    return pod_parts.TERMINATION_SECONDS + cold_start_seconds(spec, placement)


def rollout_seconds(spec: ReplicatedServerSpec, placement: Placement) -> int:
    """Returns how long a whole rollout may take: one pod after the other, or ``surge`` pods at a time.

    The surge pods themselves are not among those that the rollout replaces.
    """
    return progress_seconds(spec, placement) * max(math.ceil((spec.most - spec.surge) / max(spec.surge, 1)), 1)


# -- names and guards -----------------------------------------------------------------------------------------------------------


def revised(name: str, revision: str) -> str:
    """Returns the name of the Deployment of one revision."""
    return f"{name}-{revision}" if revision else name


def account_name(name: str) -> str:
    return f"{name}-server"


def quota(name: str, spec: ReplicatedServerSpec, placement: Placement) -> dict[str, Any]:
    """Allows for the rollout, in which terminating pods already have successors."""
    shape = placement.instance_type
    asked = claims(spec, placement).devices
    each = {claimed_resource(device_class): count for device_class, count in asked.items()} or {
        f"requests.{pod_parts.device_resource(shape)}": device_count(spec, shape)
    }
    hard = {
        resource: pod_parts.quota_devices(spec.most, ending=max(spec.surge, 1), devices=devices)
        for resource, devices in each.items()
    }
    return pod_parts.device_quota(spec.namespace_of(name), hard)


def disruption_budget(name: str, spec: ReplicatedServerSpec, labels: Mapping[str, str]) -> dict[str, Any]:
    """Lets a drain take one pod at a time. A budget that keeps all pods would hold up the end of their nodes for ever."""
    return {
        "metadata": {"name": name, "namespace": spec.namespace_of(name)},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": dict(labels)}},
    }


# -- manifests ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Engine:
    """What the engine of a server decides about its pods. Values may be unknown until deployed."""

    name: str
    """Name of the container."""
    command: Sequence[str]
    arguments: Sequence[str]
    home: str
    """Working directory of the engine: on a volume, because the root file system is read-only."""
    environment: Mapping[str, str]
    ports: Mapping[str, int]
    health: tuple[str, str]
    """Paths of the liveness and the readiness probe, both on the first of ``ports``."""
    disk_gib: int
    """Node disk that one pod requests."""
    stop: Sequence[str]
    """Command that runs before the engine receives SIGTERM. It must wait ``pods.settle_seconds`` first: Kubernetes removes a
    terminating pod from its Service at once, but nodes learn of it one after the other."""
    mounts: Sequence[Mapping[str, Any]] = ()
    volumes: Sequence[Mapping[str, Any]] = ()
    """Includes the volume of ``home``, but not /tmp and /dev/shm, which every pod has."""
    download: Sequence[str] = ()
    """Command that downloads the model before the engine starts, in the engine's image and environment; empty: there is none."""
    init_containers: Sequence[Mapping[str, Any]] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the pods: digests of content whose change must replace the pods."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Variables whose values are fields of the pod: ``status.podIP``."""
    side_ports: Mapping[str, int] = field(default_factory=dict)
    """Ports of the pods that no Service has."""
    efa_interfaces: int = 0
    security: Mapping[str, Any] | None = None
    """Security context of the container, in place of that of Pod Security "restricted"."""
    root: bool = False
    """Whether the engine runs as root: a capability has an effect for no other user."""
    lingers_seconds: int = 0
    """How long the engine may go on after SIGTERM beyond a minute."""


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
    revision: str = "",
) -> dict[str, Any]:
    """``scheduler_name`` applies only if the number of devices needs it. Deployments of different revisions exist side by side.

    The image and values in ``storage`` and ``secret_env`` may be unknown until deployed.
    """
    shape = placement.instance_type
    partial = shape.neuron and not placement.claimed and needs_scheduler(device_count(spec, shape), shape)
    claimed = claims(spec, placement, engine.efa_interfaces)
    labels = {**labels, **({pod_parts.REVISION_LABEL: revision} if revision else {})}
    env = _environment(engine, storage, secret_env)
    download = [_download(spec, placement, engine, image, env)] if engine.download else []
    first = [*download, *engine.init_containers, *(with_tmp(init_container) for init_container in storage.init_containers)]
    return {
        "metadata": {"name": revised(name, revision), "namespace": spec.namespace_of(name), "labels": dict(labels)},
        "spec": {
            **({} if spec.autoscaling else {"replicas": spec.replicas}),
            # A pod frees its devices when it has ended. A surge pod needs devices of its own: on full nodes it waits forever,
            # with Karpenter it waits for another node.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": spec.surge, "maxUnavailable": 0 if spec.surge else 1},
            },
            "progressDeadlineSeconds": progress_seconds(spec, placement) + engine.lingers_seconds,
            "selector": {"matchLabels": dict(labels)},
            "template": {
                "metadata": {"labels": dict(labels), "annotations": dict(engine.annotations)},
                "spec": {
                    **placement.scheduling(),
                    **({"schedulerName": scheduler_name} if partial and scheduler_name else {}),
                    "topologySpreadConstraints": pod_parts.spread_over_zones(labels),
                    "serviceAccountName": account_name(name),
                    # Pods that run downloaded models must not call the API server.
                    "automountServiceAccountToken": False,
                    # Otherwise a Service named vllm sets VLLM_PORT=tcp://... in every pod, and vLLM takes that for its port.
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": pod_parts.TERMINATION_SECONDS + engine.lingers_seconds,
                    "securityContext": ROOT_POD if engine.root else restricted_pod(USER),
                    **(claimed.of_pod(name) if claimed.templates else {}),
                    **({"initContainers": first} if first else {}),
                    "containers": [_container(spec, placement, engine, image, storage, env, claimed)],
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
    """Returns ``metadata`` and ``spec``. Pulumi does not wait for its pods: the Deployment waits for all of them."""
    named = ((port, number, port) for port, number in ports.items())
    return workloads.service(name, spec.namespace_of(name), labels, named, labels=labels)


def _container(
    spec: ReplicatedServerSpec,
    placement: Placement,
    engine: Engine,
    image: Any,
    storage: PodStorage,
    env: Sequence[Mapping[str, Any]],
    claimed: DeviceClaims,
) -> dict[str, Any]:
    sizes = _sizes(spec, placement, engine)
    live, ready = (
        {
            "httpGet": {"path": path, "port": next(iter(engine.ports))},
            "periodSeconds": _PROBE_SECONDS,
            "timeoutSeconds": _PROBE_SECONDS,
        }
        for path in engine.health
    )
    return {
        "name": engine.name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        # The entry point of an image may start something else, or write to the root file system.
        "command": list(engine.command),
        "args": list(engine.arguments),
        "workingDir": engine.home,
        "env": list(env),
        "ports": [{"name": port, "containerPort": number} for port, number in {**engine.ports, **engine.side_ports}.items()],
        "resources": {
            "requests": sizes,
            "limits": _limits(sizes, placement),
            **(claimed.of_container() if claimed.templates else {}),
        },
        "startupProbe": {**live, "failureThreshold": math.ceil(startup_timeout_seconds(spec, placement) / _PROBE_SECONDS)},
        "readinessProbe": ready,
        "livenessProbe": {**live, "failureThreshold": _UNRESPONSIVE_SECONDS // _PROBE_SECONDS},
        "lifecycle": {"preStop": {"exec": {"command": list(engine.stop)}}},
        "securityContext": dict(engine.security or CONTAINER_SECURITY),
        "volumeMounts": [
            *engine.mounts,
            TMP,
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            *storage.mounts,
        ],
    }


def _download(
    spec: ReplicatedServerSpec, placement: Placement, engine: Engine, image: Any, env: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    # Not the engine's own container: a container that starts again must not download again.
    devices = {pod_parts.device_resource(placement.instance_type), EFA_RESOURCE}
    sizes = {what: size for what, size in _sizes(spec, placement, engine).items() if what not in devices}
    return with_tmp(
        {
            "name": "download-model",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": list(engine.download),
            "env": list(env),
            # As much as the engine's, beside which a pod needs nothing more.
            "resources": {"requests": sizes, "limits": sizes},
            "volumeMounts": list(engine.mounts),
        }
    )


def _environment(engine: Engine, storage: PodStorage, secret_env: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        *(dict(entry) for entry in secret_env if entry["name"] not in engine.environment),
        *storage.env,
        *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in engine.fields.items()),
        *({"name": key, "value": value} for key, value in engine.environment.items()),
    ]


def _limits(sizes: Mapping[str, str], placement: Placement) -> dict[str, str]:
    """Requests must equal limits for devices. A limit of CPU would throttle an engine beside idle cores; the kubelet's static
    policy gives cores of its own only to pods that have one.
    """
    static = placement.kubelet.get("cpuManagerPolicy") == "static"
    return {what: size for what, size in sizes.items() if what != "cpu" or static}


def _sizes(spec: ReplicatedServerSpec, placement: Placement, engine: Engine) -> dict[str, str]:
    interfaces = {EFA_RESOURCE: str(engine.efa_interfaces)} if engine.efa_interfaces and not placement.claimed else {}
    return {**resources(spec, placement), **interfaces, "ephemeral-storage": f"{engine.disk_gib}Gi"}


def with_tmp(container: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a container with a read-only root file system and a writable /tmp."""
    return {**container, "securityContext": CONTAINER_SECURITY, "volumeMounts": [*container["volumeMounts"], TMP]}
