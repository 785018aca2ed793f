"""Plans the RayService of a vLLM server. Pure functions; no pulumi.

Sources: KubeRay 1.7.0 (definitions, pod builder, validation), Ray 2.52.1 (Serve configuration, autoscaler), the source system's
manifest (sizes, names, ports).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from eks_inference.accelerators.neuron.plan import cores_of, needs_scheduler
from eks_inference.catalog.engines import Startup
from eks_inference.kubernetes import workloads
from eks_inference.kubernetes.network_policy import Front
from eks_inference.kubernetes.workloads import RESTRICTED_CONTAINER, restricted_pod
from eks_inference.place.nodes import cpu_millis, pod_size
from eks_inference.place.placement import Placement
from eks_inference.serving import pod_parts
from eks_inference.serving.cold_start import cold_start
from eks_inference.serving.pod_parts import DOWNLOAD, DRAIN, SERVER_LABEL, Hardware, engine_environment, script_texts
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec, RayWorkerSpec
from eks_inference.serving.spec import HubModel
from eks_inference.serving.storage_plan import CACHE_VARIABLE, PodStorage, compile_cache_place, model_folder, revision

SCRIPT_CONFIG_MAP = "vllm-serve-script"
SCRIPT_FILES = (DOWNLOAD, DRAIN, "vllm_engine.py", "vllm_metrics.py", "vllm_serve.py")
SCRIPT_FOLDER = "/home/ray/serve"
NODE_TYPE_LABEL = "ray.io/node-type"  # KubeRay sets it to head or worker on its pods

MAX_NAME_LENGTH = 47
"""Longest name of a RayService: KubeRay appends to it (ray-project/kuberay, MaxRayServiceNameLength)."""

HEAD_PORTS = {"metrics": 8080, "gcs-server": 6379, "dashboard": 8265, "client": 10001, "serve": 8000}
"""Ports of the head by their names in KubeRay; the source system's head Service has the same five."""

AUTOSCALER_METRICS_PORT = 44217
"""Metrics port of the autoscaler container in the head's pod (Ray 2.52.1, ``AUTOSCALER_METRIC_PORT``)."""

_CORE_RESOURCE = "neuron_cores"  # Ray's name: it sets NEURON_RT_VISIBLE_CORES from an actor's share
_OBJECT_STORE_BYTES = 2 * 1024**3  # Ray's default is 30 % of the memory, but requests and answers are small
_DRAIN_SECONDS = 180  # enough for a long generation
_STOP_SECONDS = 60  # for the engine to stop, then Ray

_USER = 1000
_NO_STORAGE = PodStorage()


def scripts() -> dict[str, str]:
    """Returns the files of the Serve application by name."""
    return script_texts("ray_serve", *SCRIPT_FILES)


def fronts(name: str) -> tuple[Front, ...]:
    """Returns where requests enter: the proxy of Serve on each node that can answer."""
    return (Front({SERVER_LABEL: name}, HEAD_PORTS["serve"]),)


def hardware(worker: RayWorkerSpec) -> Hardware:
    """Returns the hardware of the workers; the head has no device."""
    return Hardware(worker.instance_type, worker.device_count, pods_min=worker.min, pods_max=worker.max)


def replicas_per_worker(spec: RayServeVllmSpec) -> int:
    """Returns how many replicas fit one worker: 0 when a replica needs more cores than the worker has."""
    return cores_of(spec.worker.device_count, spec.worker.shape) // spec.tensor_parallel


def worker_resources(worker: RayWorkerSpec) -> dict[str, str]:
    """Returns requests and limits of one worker: the spec's, or the devices' share of the node's allocatable resources."""
    return pod_size(worker.shape, worker.device_count, cpu=worker.cpu, memory=worker.memory)


def replica_cpus(spec: RayServeVllmSpec) -> int:
    """Returns the CPUs that Ray reserves for one replica. Ray also derives OMP_NUM_THREADS from it, which the engine inherits."""
    whole = cpu_millis(worker_resources(spec.worker)["cpu"]) // 1000
    return spec.replicas.cpus or max(whole // max(replicas_per_worker(spec), 1), 1)


def target_ongoing_requests(spec: RayServeVllmSpec) -> float:
    """Returns the requests in flight per replica above which Serve adds a replica."""
    return spec.replicas.target_ongoing_requests or max(spec.max_num_seqs * 4 // 5, 1)


def startup(spec: RayServeVllmSpec, worker: Placement) -> Startup:
    """Returns the limits of a cold start on these nodes."""
    return cold_start(spec, worker, spec.worker.device_count).startup


def startup_timeout_seconds(spec: RayServeVllmSpec, worker: Placement) -> int:
    """Returns how long one replica may take from the start of its engine until it answers."""
    return spec.startup_timeout_seconds or startup(spec, worker).engine_s


def environment(spec: RayServeVllmSpec, worker: Placement) -> dict[str, str]:
    """Returns the environment of the replicas, which ``assets/vllm_engine.py`` reads."""
    model = spec.model
    wanted = {"MODEL_REVISION": revision(model)} if isinstance(model, HubModel) else {}
    folder = model_folder(spec)
    # Ray expands the worker's variable.
    cache = compile_cache_place(spec, spec.worker.shape.family, f"${{{CACHE_VARIABLE}}}")
    return {
        # Ray expands the image's own path. A container's variable would replace it.
        "PYTHONPATH": f"{SCRIPT_FOLDER}:${{PYTHONPATH}}",
        "MODEL_ID": model.id,
        **wanted,
        **({"MODEL_FOLDER": folder} if folder else {}),
        **({"MODEL_DOWNLOAD": f"{SCRIPT_FOLDER}/{DOWNLOAD}"} if spec.downloads_first else {}),
        "TENSOR_PARALLELISM": str(spec.tensor_parallel),
        "MAX_MODEL_LEN": str(spec.max_model_len),
        "MAX_NUM_SEQS": str(spec.max_num_seqs),
        "ENGINE_ARGS": json.dumps(spec.engine_flags),
        "STARTUP_TIMEOUT_S": str(startup_timeout_seconds(spec, worker)),
        **engine_environment(spec.profile, spec.worker.shape, model.known, startup_timeout_seconds(spec, worker)),
        **({spec.profile.generation.compile_cache_variable: cache} if cache else {}),
        **spec.feature_environment(spec.engine),
        **spec.extra_env,
    }


def serve_config(spec: RayServeVllmSpec, worker: Placement) -> dict[str, Any]:
    """Returns the Serve application. KubeRay submits it to Ray Serve, which applies changes in place."""
    return {
        "applications": [
            {
                "name": "vllm",
                "import_path": "vllm_serve:deployment",
                "route_prefix": "/",
                "runtime_env": {"env_vars": environment(spec, worker)},
                "deployments": [
                    {
                        "name": "VLLMDeployment",
                        # Requests beyond the batch queue in Serve, not in vLLM, so that a new replica can take them.
                        "max_ongoing_requests": spec.max_num_seqs,
                        "autoscaling_config": {
                            "min_replicas": spec.replicas.min,
                            "max_replicas": spec.replicas.max,
                            "target_ongoing_requests": target_ongoing_requests(spec),
                        },
                        "graceful_shutdown_timeout_s": _DRAIN_SECONDS,
                        "health_check_period_s": 10,
                        "health_check_timeout_s": 30,
                        "ray_actor_options": {
                            "num_cpus": replica_cpus(spec),
                            "resources": {_CORE_RESOURCE: spec.tensor_parallel},
                        },
                    }
                ],
            }
        ]
    }


def ray_service(
    name: str,
    spec: RayServeVllmSpec,
    *,
    head: Placement,
    worker: Placement,
    head_image: Any,
    worker_image: Any,
    scheduler_name: str | None,
    storage: PodStorage,
    secret_env: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Returns the ``spec`` of the RayService. Only workers whose devices need ``scheduler_name`` use it.

    Images and the contents of ``storage`` and ``secret_env`` may be values that only a deployment knows.
    """
    workers = spec.worker
    head_template = _template(
        name,
        head,
        container={"name": "ray-head", "image": head_image},
        ports=HEAD_PORTS,
        resources={"cpu": spec.head.cpu, "memory": spec.head.memory},
        # The head has no replica to drain.
        stop_command="ray stop",
        terminationGracePeriodSeconds=_STOP_SECONDS,
    )
    worker_template = _template(
        name,
        worker,
        container={
            "name": "ray-worker",
            "image": worker_image,
            "env": [*secret_env, *storage.env, {"name": "NEURON_RT_LOG_LEVEL", "value": "INFO"}],
        },
        ports={port: HEAD_PORTS[port] for port in ("metrics", "serve")},
        resources=worker_resources(workers),
        storage=storage,
        shared_memory_gib=workers.shared_memory_gib,
        stop_command=f"python {SCRIPT_FOLDER}/{DRAIN} {_DRAIN_SECONDS}; ray stop",
        terminationGracePeriodSeconds=_DRAIN_SECONDS + _STOP_SECONDS,
        topologySpreadConstraints=pod_parts.spread_over_zones({SERVER_LABEL: name, NODE_TYPE_LABEL: "worker"}),
        serviceAccountName=worker_account(name),
        # The head's autoscaler calls the API server. Workers run downloaded models and have no reason to.
        automountServiceAccountToken=False,
        **({"schedulerName": scheduler_name} if needs_scheduler(workers.device_count, workers.shape) else {}),
    )
    return {
        "serveConfigV2": yaml.safe_dump(serve_config(spec, worker), sort_keys=False, width=1_000_000),
        "upgradeStrategy": {"type": {"none": "None", "new_cluster": "NewCluster"}[spec.upgrade]},
        "rayClusterConfig": {
            "rayVersion": spec.ray,
            "enableInTreeAutoscaling": True,
            "autoscalerOptions": {
                "version": "v2",
                "idleTimeoutSeconds": spec.idle_timeout_seconds,
                "securityContext": RESTRICTED_CONTAINER,
            },
            "headGroupSpec": {
                # The head runs no replica and no task: it has no accelerator and must stay responsive.
                "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"},
                "template": head_template,
            },
            "workerGroupSpecs": [
                {
                    "groupName": f"{workers.shape.family}-group",
                    "replicas": workers.initial,
                    "minReplicas": workers.min,
                    "maxReplicas": workers.max,
                    "rayStartParams": {
                        # KubeRay derives cores from aws.amazon.com/neuroncore only, and the pod requests whole devices. The inner
                        # quotes are for the shell and for Ray's autoscaler, which both parse this text.
                        "resources": f"'{json.dumps({_CORE_RESOURCE: cores_of(workers.device_count, workers.shape)})}'",
                        "object-store-memory": str(_OBJECT_STORE_BYTES),
                    },
                    "template": worker_template,
                }
            ],
        },
    }


def head_service(name: str, spec: RayServeVllmSpec) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the Service of the Ray head."""
    selector = {SERVER_LABEL: name, NODE_TYPE_LABEL: "head"}
    ports = ((port, number, port) for port, number in HEAD_PORTS.items())
    return workloads.service(spec.head_service_name, spec.namespace_of(name), selector, ports, awaited=True)


def worker_account(name: str) -> str:
    """Returns the name of the workers' service account. The head has KubeRay's, which may change the cluster's pods."""
    return f"{name}-worker"


def _template(
    name: str,
    placement: Placement,
    *,
    container: Mapping[str, Any],
    ports: Mapping[str, int],
    resources: Mapping[str, str],
    stop_command: str,
    storage: PodStorage = _NO_STORAGE,
    shared_memory_gib: int | None = None,
    **pod: Any,
) -> dict[str, Any]:
    """Returns a pod template. KubeRay adds command, probes, Ray's variables and, if missing, /dev/shm."""
    volumes: list[Mapping[str, Any]] = [{"name": "serve-script", "configMap": {"name": SCRIPT_CONFIG_MAP}}, *storage.volumes]
    mounts: list[Mapping[str, Any]] = [
        {"name": "serve-script", "mountPath": SCRIPT_FOLDER, "readOnly": True},
        *storage.mounts,
    ]
    if shared_memory_gib:
        volumes.append({"name": "shared-mem", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shared_memory_gib}Gi"}})
        mounts.append({"name": "shared-mem", "mountPath": "/dev/shm"})
    digest = hashlib.sha256(json.dumps(scripts(), sort_keys=True).encode()).hexdigest()
    return {
        "metadata": {"labels": {SERVER_LABEL: name}, "annotations": {"eks-inference/serve-script-sha256": digest}},
        "spec": {
            "nodeSelector": dict(placement.node_selector),
            "tolerations": placement.tolerations(),
            # With links, a Service named vllm sets VLLM_PORT=tcp://... in every pod, which vLLM would parse as its port.
            "enableServiceLinks": False,
            "securityContext": restricted_pod(_USER),
            **pod,
            **({"initContainers": list(storage.init_containers)} if storage.init_containers else {}),
            "containers": [
                {
                    **container,
                    "ports": [{"name": port, "containerPort": number} for port, number in ports.items()],
                    # Ray reads its size from the limits, and devices need requests equal to limits.
                    "resources": {"requests": dict(resources), "limits": dict(resources)},
                    "imagePullPolicy": "IfNotPresent",
                    "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", stop_command]}}},
                    "securityContext": RESTRICTED_CONTAINER,
                    "volumeMounts": mounts,
                }
            ],
            "volumes": volumes,
        },
    }
