"""The Deployment of a vLLM server as data. Pure functions; no pulumi.

Sources: vLLM documentation ("OpenAI-Compatible Server", "Environment Variables", "Using Kubernetes"), vLLM issue 24885 (a server
that is told to end breaks off what it does), Neuron documentation (vLLM on NxD Inference), the source system's pod (its flags);
Kubernetes documentation ("Deployments", "Pod Lifecycle", "Local ephemeral storage").
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from eks_inference.accelerators.neuron.plan import needs_scheduler
from eks_inference.catalog.instances import InstanceType
from eks_inference.kubernetes.pod_security import RESTRICTED_CONTAINER, restricted_pod
from eks_inference.placement import Placement
from eks_inference.serving import pods
from eks_inference.serving.hardware import Hardware
from eks_inference.serving.pods import SERVER_LABEL
from eks_inference.serving.spec import HubModel, S3Model
from eks_inference.serving.storage_plan import CACHE_VARIABLE, Compilation, PodStorage, compile_cache_place, model_folder
from eks_inference.serving.vllm.spec import VllmServerSpec

PORT_NAME = "http"
"""Of API and metrics, in pod and Service."""

HEALTH = "/health"
SCRIPT_FILE = "drain.py"

MAX_NAME_LENGTH = 40
"""Of a server: its name is a DNS label, and the beginning of longer ones."""

_SCRIPT_FOLDER = "/eks-inference"
_SCRATCH = "/scratch"
_PROBE_SECONDS = 10
_DEAF_SECONDS = 60  # a server that has not answered that long is started again
_USER = 1000
_CONTAINER_SECURITY = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}


def namespace(name: str, spec: VllmServerSpec) -> str:
    """Namespace of the server of that name."""
    return spec.namespace or name


def account(name: str) -> str:
    """Name of the pods' service account."""
    return f"{name}-server"


def port(spec: VllmServerSpec) -> int:
    """Where the server listens."""
    return spec.port or spec.profile.port


def device_count(spec: VllmServerSpec, shape: InstanceType) -> int:
    """Devices of one pod."""
    return spec.devices or shape.devices


def hardware(spec: VllmServerSpec, shape: InstanceType) -> Hardware:
    return Hardware(shape.name, device_count(spec, shape), pods_min=spec.fewest, pods_max=spec.most - spec.surge)


def resources(spec: VllmServerSpec, shape: InstanceType) -> dict[str, str]:
    """Requests and limits of one pod but for its disk: what the spec says, or the devices' share of the node."""
    return pods.share_of_node(shape, device_count(spec, shape), cpu=spec.cpu, memory=spec.memory)


def disk_gib(spec: VllmServerSpec) -> int:
    """Node disk one pod asks for."""
    return spec.disk_gib + (spec.model.size_gib if isinstance(spec.model, S3Model) else 0)


def startup_timeout_seconds(spec: VllmServerSpec) -> int:
    """How long a pod's server may take from the start of its process until it answers."""
    return spec.startup_timeout_seconds or spec.profile.startup.engine_s


def cold_start_seconds(spec: VllmServerSpec) -> int:
    """Upper bound from the wish for a pod until it answers."""
    return pods.cold_start_seconds(spec.profile.startup, startup_timeout_seconds(spec))


def progress_seconds(spec: VllmServerSpec) -> int:
    """How long a roll-out may make no progress: one pod ends, and the next one starts from nothing."""
    return pods.TERMINATION_SECONDS + cold_start_seconds(spec)


def rollout_seconds(spec: VllmServerSpec) -> int:
    """How long a roll-out may take in all: a pod after the other, or ``surge`` of them at a time."""
    return progress_seconds(spec) * max(math.ceil((spec.most - spec.surge) / max(spec.surge, 1)), 1)


def engine_args(spec: VllmServerSpec) -> list[str]:
    """Flags beyond those of the shape: the profile's, then the user's, of which vLLM takes the last."""
    return pods.engine_args(spec.profile, max_num_seqs=spec.max_num_seqs, max_model_len=spec.max_model_len, extra=spec.extra_args)


def arguments(spec: VllmServerSpec) -> list[str]:
    """What follows ``vllm serve``. A flag and its value are two words where ``drain.py`` or a person looks for them."""
    model = spec.model
    folder = model_folder(model)
    revision = ["--revision", model.revision] if isinstance(model, HubModel) and model.revision else []
    return [
        *([folder, "--served-model-name", model.id] if folder else [model.id]),
        *revision,
        *("--host", "0.0.0.0", "--port", str(port(spec))),
        *("--tensor-parallel-size", str(spec.tensor_parallel)),
        *("--max-model-len", str(spec.max_model_len)),
        *("--max-num-seqs", str(spec.max_num_seqs)),
        *engine_args(spec),
    ]


def compilation(spec: VllmServerSpec, shape: InstanceType) -> Compilation:
    """What the compiler of a pod sees."""
    return Compilation(
        image=spec.compiled_image,
        engine=spec.engine,
        family=shape.family,
        model=spec.model,
        tensor_parallel=spec.tensor_parallel,
        max_model_len=spec.max_model_len,
        max_num_seqs=spec.max_num_seqs,
        engine_args=engine_args(spec),
    )


def environment(spec: VllmServerSpec, shape: InstanceType) -> dict[str, str]:
    """Environment of the server, without what is secret. ``COMPILE_CACHE`` must stand before it."""
    neuron = shape.neuron
    kept = compile_cache_place(spec.cache, compilation(spec, shape), f"$({CACHE_VARIABLE})")
    cache = spec.profile.generation.compile_cache_variable
    ours = {
        # The image's own home is root's, and nothing but this volume and /tmp can be written.
        "HOME": _SCRATCH,
        # PyTorch asks who it is, and fails where the user has no name (vLLM issue 44548).
        "USER": "vllm",
        cache: kept or f"{_SCRATCH}/compile-cache",
    }
    if neuron:
        ours["NEURON_RT_LOG_LEVEL"] = "INFO"
        if model_folder(spec.model):
            # By default a local model's compiled artifacts go into its own folder, which is read-only and of all pods.
            ours["NEURON_COMPILED_ARTIFACTS"] = f"{_SCRATCH}/compiled"
    return ours | spec.extra_env


def labels(name: str) -> dict[str, str]:
    """What Deployment, Service and disruption budget select by."""
    return {SERVER_LABEL: name}


def script() -> dict[str, str]:
    """What a pod runs before it ends, by file name."""
    return {SCRIPT_FILE: files("eks_inference.serving").joinpath("assets", SCRIPT_FILE).read_text("utf-8")}


def deployment(
    name: str,
    spec: VllmServerSpec,
    placement: Placement,
    *,
    image: Any,
    scheduler_name: str | None,
    storage: PodStorage,
    secret_env: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Deployment. ``scheduler_name`` is taken only where the devices need it.

    The image and what stands in ``storage`` and ``secret_env`` may be values that are only known when deployed.
    """
    shape = placement.instance_type
    partial = shape.neuron and needs_scheduler(device_count(spec, shape), shape)
    first = [_with_tmp(each) for each in storage.init_containers]
    digest = hashlib.sha256(script()[SCRIPT_FILE].encode()).hexdigest()
    return {
        "metadata": {"name": name, "namespace": namespace(name, spec), "labels": labels(name)},
        "spec": {
            **({} if spec.autoscaling else {"replicas": spec.replicas}),
            # Devices that a pod holds are free when it has ended. One more pod would wait for devices of its own: on nodes that
            # are full for ever, with Karpenter for another node.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": spec.surge, "maxUnavailable": 0 if spec.surge else 1},
            },
            "progressDeadlineSeconds": progress_seconds(spec),
            "selector": {"matchLabels": labels(name)},
            "template": {
                "metadata": {"labels": labels(name), "annotations": {"eks-inference/drain-script-sha256": digest}},
                "spec": {
                    "nodeSelector": dict(placement.node_selector),
                    "tolerations": placement.tolerations(),
                    **({"schedulerName": scheduler_name} if partial and scheduler_name else {}),
                    "topologySpreadConstraints": pods.spread_over_zones(labels(name)),
                    "serviceAccountName": account(name),
                    # A server runs downloaded models and has no business with the API server.
                    "automountServiceAccountToken": False,
                    # A Service named vllm would otherwise put VLLM_PORT=tcp://... into every pod, which vLLM takes for its port.
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": pods.TERMINATION_SECONDS,
                    "securityContext": restricted_pod(_USER),
                    **({"initContainers": first} if first else {}),
                    "containers": [_container(spec, shape, image, storage, secret_env)],
                    "volumes": [
                        {"name": "drain", "configMap": {"name": script_config_map(name)}},
                        {"name": "scratch", "emptyDir": {}},
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


def script_config_map(name: str) -> str:
    """Name of the ConfigMap with ``drain.py``."""
    return f"{name}-drain"


def service(name: str, spec: VllmServerSpec) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Service in front of the pods that can answer."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace(name, spec),
            "labels": labels(name),
            # It would wait for a pod, which comes later; the Deployment waits for all.
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {
            "type": "ClusterIP",
            "selector": labels(name),
            "ports": [{"name": PORT_NAME, "port": port(spec), "targetPort": PORT_NAME}],
        },
    }


def _container(
    spec: VllmServerSpec, shape: InstanceType, image: Any, storage: PodStorage, secret_env: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    sizes = {**resources(spec, shape), "ephemeral-storage": f"{disk_gib(spec)}Gi"}
    plain = environment(spec, shape)
    probe = {"httpGet": {"path": HEALTH, "port": PORT_NAME}, "periodSeconds": _PROBE_SECONDS, "timeoutSeconds": _PROBE_SECONDS}
    return {
        "name": "vllm",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        # The image's own entry point starts what it thinks fit.
        "command": ["vllm", "serve"],
        "args": arguments(spec),
        # vllm-neuron keeps the checkpoint and compiled artifacts below its working directory.
        "workingDir": _SCRATCH,
        "env": [
            *(dict(entry) for entry in secret_env if entry["name"] not in plain),
            *storage.env,
            *({"name": key, "value": value} for key, value in plain.items()),
        ],
        "ports": [{"name": PORT_NAME, "containerPort": port(spec)}],
        # Requests equal to limits: devices allow nothing else.
        "resources": {"requests": sizes, "limits": sizes},
        "startupProbe": {**probe, "failureThreshold": math.ceil(startup_timeout_seconds(spec) / _PROBE_SECONDS)},
        "readinessProbe": probe,
        "livenessProbe": {**probe, "failureThreshold": _DEAF_SECONDS // _PROBE_SECONDS},
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", _stop_command()]}}},
        "securityContext": _CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "drain", "mountPath": _SCRIPT_FOLDER, "readOnly": True},
            {"name": "scratch", "mountPath": _SCRATCH},
            _TMP,
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            *storage.mounts,
        ],
    }


_TMP = {"name": "tmp", "mountPath": "/tmp"}


def _with_tmp(container: Mapping[str, Any]) -> dict[str, Any]:
    return {**container, "securityContext": _CONTAINER_SECURITY, "volumeMounts": [*container["volumeMounts"], _TMP]}


def _stop_command() -> str:
    """Kubernetes takes a pod that ends out of its Service at once, but nodes learn of it one after the other."""
    return f"sleep {pods.SETTLE_SECONDS}; python3 {_SCRIPT_FOLDER}/{SCRIPT_FILE} {pods.DRAIN_SECONDS}"
