"""The RayService of a vLLM server as data. Pure functions; no pulumi.

Sources: KubeRay 1.7.0 (definitions, pod builder, validation), Ray 2.52.1 (Serve configuration, autoscaler), the source system's
manifest (sizes, names, ports).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import yaml

from eks_inference.accelerators.neuron.plan import cores_of, needs_scheduler
from eks_inference.kubernetes.pod_security import RESTRICTED_CONTAINER, restricted_pod
from eks_inference.placement import Placement
from eks_inference.serving import pods
from eks_inference.serving.hardware import Hardware
from eks_inference.serving.pods import SERVER_LABEL
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec, RayWorkerSpec
from eks_inference.serving.spec import HubModel
from eks_inference.serving.storage_plan import CACHE_VARIABLE, Compilation, PodStorage, compile_cache_place, model_folder

SCRIPT_CONFIG_MAP = "vllm-serve-script"
DRAIN = "drain.py"
SCRIPT_FILES = (DRAIN, "vllm_engine.py", "vllm_metrics.py", "vllm_serve.py")
SCRIPT_FOLDER = "/home/ray/serve"
NODE_TYPE_LABEL = "ray.io/node-type"  # KubeRay puts head or worker on its pods

MAX_NAME_LENGTH = 47
"""KubeRay appends to the name of a RayService; longer ones it refuses (ray-project/kuberay, MaxRayServiceNameLength)."""

HEAD_PORTS = {"metrics": 8080, "gcs-server": 6379, "dashboard": 8265, "client": 10001, "serve": 8000}
"""Ports of the head by the names KubeRay gives them; the source system's head Service has the same five."""

AUTOSCALER_METRICS_PORT = 44217
"""Of the autoscaler beside the head (Ray 2.52.1, ``AUTOSCALER_METRIC_PORT``)."""

_WORKER_PORTS = {"metrics": HEAD_PORTS["metrics"], "serve": HEAD_PORTS["serve"]}
_CORE_RESOURCE = "neuron_cores"  # Ray's own name: it turns an actor's share into NEURON_RT_VISIBLE_CORES
_OBJECT_STORE_BYTES = 2 * 1024**3  # Ray would take 30 % of the memory; requests and answers are small
_DRAIN_SECONDS = 180  # a long generation
_STOP_SECONDS = 60  # the end of the engine, then of Ray

_USER = 1000


def scripts() -> dict[str, str]:
    """The files of the Serve application by name."""
    own = files("eks_inference.serving.ray_serve").joinpath("assets")
    shared = files("eks_inference.serving").joinpath("assets")
    return {name: (shared if name == DRAIN else own).joinpath(name).read_text("utf-8") for name in SCRIPT_FILES}


def cores(worker: RayWorkerSpec) -> int:
    """NeuronCores of one worker."""
    return cores_of(worker.device_count, worker.shape)


def hardware(worker: RayWorkerSpec) -> Hardware:
    """Of the workers; the head has no device."""
    return Hardware(worker.instance_type, worker.device_count, pods_min=worker.min, pods_max=worker.max)


def replicas_per_worker(spec: RayServeVllmSpec) -> int:
    """How many replicas one worker holds; none where one needs more cores than it has."""
    return cores(spec.worker) // spec.tensor_parallel


def worker_resources(worker: RayWorkerSpec) -> dict[str, str]:
    """Requests and limits of one worker: what the spec says, or the devices' share of what pods can use of the node."""
    return pods.share_of_node(worker.shape, worker.device_count, cpu=worker.cpu, memory=worker.memory)


def replica_cpus(spec: RayServeVllmSpec) -> int:
    """CPUs Ray sets aside for one replica. Ray also sets the replica's OMP_NUM_THREADS by it, which the engine inherits."""
    if spec.replicas.cpus:
        return spec.replicas.cpus
    cpu = worker_resources(spec.worker)["cpu"]
    whole = int(float(cpu.removesuffix("m")) / (1000 if cpu.endswith("m") else 1))
    return max(whole // max(replicas_per_worker(spec), 1), 1)


def target_ongoing_requests(spec: RayServeVllmSpec) -> float:
    """Requests under way per replica above which Serve adds one."""
    return spec.replicas.target_ongoing_requests or max(spec.max_num_seqs * 4 // 5, 1)


def startup_timeout_seconds(spec: RayServeVllmSpec) -> int:
    """How long one replica may take from the start of its engine until it answers."""
    return spec.startup_timeout_seconds or spec.profile.startup.engine_s


def cold_start_seconds(spec: RayServeVllmSpec) -> int:
    """Upper bound from the request for a worker until its replica answers."""
    return pods.cold_start_seconds(spec.profile.startup, startup_timeout_seconds(spec))


def engine_args(spec: RayServeVllmSpec) -> list[str]:
    """Flags beyond those of the shape: the profile's, then the user's, of which vLLM takes the last."""
    return pods.engine_args(spec.profile, max_num_seqs=spec.max_num_seqs, max_model_len=spec.max_model_len, extra=spec.extra_args)


def compilation(spec: RayServeVllmSpec) -> Compilation:
    """What the compiler of a replica sees."""
    return Compilation(
        image=spec.image,
        engine=spec.engine,
        family=spec.worker.shape.family,
        model=spec.model,
        tensor_parallel=spec.tensor_parallel,
        max_model_len=spec.max_model_len,
        max_num_seqs=spec.max_num_seqs,
        engine_args=engine_args(spec),
    )


def environment(spec: RayServeVllmSpec) -> dict[str, str]:
    """Environment of the replicas, as ``assets/vllm_engine.py`` reads it."""
    model = spec.model
    revision = {"MODEL_REVISION": model.revision} if isinstance(model, HubModel) and model.revision else {}
    folder = model_folder(model)
    # Ray puts the worker's own variable in.
    cache = compile_cache_place(spec.cache, compilation(spec), f"${{{CACHE_VARIABLE}}}")
    return {
        # Ray fills in the image's own path, which the variable of a container would replace.
        "PYTHONPATH": f"{SCRIPT_FOLDER}:${{PYTHONPATH}}",
        "MODEL_ID": model.id,
        **revision,
        **({"MODEL_FOLDER": folder} if folder else {}),
        "TENSOR_PARALLELISM": str(spec.tensor_parallel),
        "MAX_MODEL_LEN": str(spec.max_model_len),
        "MAX_NUM_SEQS": str(spec.max_num_seqs),
        "ENGINE_ARGS": json.dumps(engine_args(spec)),
        "STARTUP_TIMEOUT_S": str(startup_timeout_seconds(spec)),
        **({spec.profile.generation.compile_cache_variable: cache} if cache else {}),
        **spec.extra_env,
    }


def serve_config(spec: RayServeVllmSpec) -> dict[str, Any]:
    """The Serve application: what KubeRay hands to Ray Serve, and changes in place."""
    return {
        "applications": [
            {
                "name": "vllm",
                "import_path": "vllm_serve:deployment",
                "route_prefix": "/",
                "runtime_env": {"env_vars": environment(spec)},
                "deployments": [
                    {
                        "name": "VLLMDeployment",
                        # Serve holds what exceeds the batch, instead of vLLM, so that a new replica can take it.
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
    """``spec`` of the RayService. ``scheduler_name`` is taken only where the devices need it; the head never needs it.

    Images and what stands in ``storage`` and ``secret_env`` may be values that are only known when deployed.
    """
    return {
        "serveConfigV2": yaml.safe_dump(serve_config(spec), sort_keys=False, width=1_000_000),
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
                # No replica and no task on the head: it has no accelerator and must stay responsive.
                "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"},
                "template": _template(
                    name,
                    head,
                    container={
                        "name": "ray-head",
                        "image": head_image,
                        "ports": _ports(HEAD_PORTS),
                        "resources": _guaranteed({"cpu": spec.head.cpu, "memory": spec.head.memory}),
                    },
                    storage=PodStorage(),
                    # It has no replica to wait for.
                    stop_command="ray stop",
                    terminationGracePeriodSeconds=_STOP_SECONDS,
                ),
            },
            "workerGroupSpecs": [_worker_group(name, spec, worker, worker_image, scheduler_name, storage, secret_env)],
        },
    }


def _worker_group(
    name: str,
    spec: RayServeVllmSpec,
    placement: Placement,
    image: Any,
    scheduler_name: str | None,
    storage: PodStorage,
    secret_env: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    worker = spec.worker
    return {
        "groupName": f"{worker.shape.family}-group",
        "replicas": worker.initial,
        "minReplicas": worker.min,
        "maxReplicas": worker.max,
        "rayStartParams": {
            # KubeRay knows aws.amazon.com/neuroncore, not the device the pod asks for. The quotes inside are for
            # the shell and for Ray's autoscaler, which both read this text.
            "resources": f"'{json.dumps({_CORE_RESOURCE: cores(worker)})}'",
            "object-store-memory": str(_OBJECT_STORE_BYTES),
        },
        "template": _template(
            name,
            placement,
            container={
                "name": "ray-worker",
                "image": image,
                "env": [*secret_env, *storage.env, {"name": "NEURON_RT_LOG_LEVEL", "value": "INFO"}],
                "ports": _ports(_WORKER_PORTS),
                "resources": _guaranteed(worker_resources(worker)),
            },
            storage=storage,
            shared_memory_gib=worker.shared_memory_gib,
            stop_command=f"python {SCRIPT_FOLDER}/drain.py {_DRAIN_SECONDS}; ray stop",
            terminationGracePeriodSeconds=_DRAIN_SECONDS + _STOP_SECONDS,
            topologySpreadConstraints=pods.spread_over_zones({SERVER_LABEL: name, NODE_TYPE_LABEL: "worker"}),
            serviceAccountName=worker_account(name),
            # The head talks to the API server (its autoscaler does); a worker runs downloaded models and does not.
            automountServiceAccountToken=False,
            **({"schedulerName": scheduler_name} if needs_scheduler(worker.device_count, worker.shape) else {}),
        ),
    }


def head_service(name: str, spec: RayServeVllmSpec) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Service in front of the Ray head."""
    return {
        "metadata": {"name": spec.head_service_name, "namespace": spec.namespace_of(name)},
        "spec": {
            "type": "ClusterIP",
            "selector": {SERVER_LABEL: name, NODE_TYPE_LABEL: "head"},
            "ports": [{"name": port, "port": number, "targetPort": port} for port, number in HEAD_PORTS.items()],
        },
    }


def worker_account(name: str) -> str:
    """Name of the workers' service account. The head has KubeRay's, which may change pods of the Ray cluster."""
    return f"{name}-worker"


def _template(
    name: str,
    placement: Placement,
    *,
    container: dict[str, Any],
    stop_command: str,
    storage: PodStorage,
    shared_memory_gib: int | None = None,
    **pod: Any,
) -> dict[str, Any]:
    """A pod of the Ray cluster. KubeRay adds command, probes, Ray's own variables and, where missing, /dev/shm."""
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
            # A Service named vllm would otherwise put VLLM_PORT=tcp://... into every pod, which vLLM takes for its port.
            "enableServiceLinks": False,
            "securityContext": restricted_pod(_USER),
            **pod,
            **({"initContainers": list(storage.init_containers)} if storage.init_containers else {}),
            "containers": [
                {
                    **container,
                    "imagePullPolicy": "IfNotPresent",
                    "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", stop_command]}}},
                    "securityContext": RESTRICTED_CONTAINER,
                    "volumeMounts": mounts,
                }
            ],
            "volumes": volumes,
        },
    }


def _ports(ports: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "containerPort": port} for name, port in ports.items()]


def _guaranteed(resources: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Requests equal to limits: Ray reads its size from the limits, and devices allow nothing else."""
    return {"requests": dict(resources), "limits": dict(resources)}
