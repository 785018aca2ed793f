"""A Triton server with the vLLM back end as data: model repository, Deployment, Service. Pure functions; no pulumi.

Sources: triton-inference-server/vllm_backend (README, ``src/model.py`` and ``src/utils`` of r24.07 to r26.01), the same project's
server (command line, model configuration), vLLM 0.5.0 and 0.27.1 (``engine/arg_utils.py``), huggingface_hub (HF_HOME, HF_TOKEN);
Kubernetes documentation ("Pod Lifecycle", "Local ephemeral storage"); the source system's chart values (ports, probes, paths).
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import find_model
from eks_inference.catalog.tables import version_numbers
from eks_inference.kubernetes.pod_security import RESTRICTED_CONTAINER, restricted_pod
from eks_inference.placement import Placement
from eks_inference.serving import pods
from eks_inference.serving.pods import SERVER_LABEL
from eks_inference.serving.spec import HubModel, S3Model
from eks_inference.serving.storage_plan import PodStorage, model_folder
from eks_inference.serving.triton.spec import ConfigMapRepository, HostPathCache, TritonServerSpec

PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
"""Where Triton listens, by the names that container and Service give the ports."""

LIVE, READY = "/v2/health/live", "/v2/health/ready"

ROLE_LABEL = "eks-inference/role"
SERVER_ROLE, PREFETCH_ROLE = "server", "prefetch"

MAX_NAME_LENGTH = 40
"""Of a server: its name is a DNS label, and the beginning of longer ones."""

REPOSITORY_FOLDER = "/model_repository"

_HOME = "/home/triton-server"
_DOWNLOADS = "/var/cache/huggingface"
_PROBE_SECONDS = 10
_DEAF_SECONDS = 60  # a server that has not answered that long is started again
_SCRATCH_GIB = 4  # home and /tmp: compiled kernels, logs
_UNKNOWN_MODEL_GIB = 100
_SMALLEST_CACHE_GIB = 20

USER = 1000
"""``triton-server`` in the images of NVIDIA."""

CONTAINER_SECURITY = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}


# -- sizes ----------------------------------------------------------------------------------------------------------------------


def namespace(name: str, spec: TritonServerSpec) -> str:
    """Namespace of the server of that name."""
    return spec.namespace or name


def account(name: str) -> str:
    """Name of the pods' service account."""
    return f"{name}-server"


def gpus(spec: TritonServerSpec, shape: InstanceType) -> int:
    """GPUs of one pod."""
    return spec.gpus or shape.devices


def tensor_parallel(spec: TritonServerSpec, shape: InstanceType) -> int:
    """GPUs one copy of the model is split over by heads."""
    return spec.tensor_parallel or max(gpus(spec, shape), 1)


def pipeline_parallel(spec: TritonServerSpec) -> int:
    """Groups of GPUs one copy of the model is split over by layers."""
    given = spec.engine_args.get("pipeline_parallel_size", 1)
    return given if isinstance(given, int) else 1


def world_size(spec: TritonServerSpec, shape: InstanceType) -> int:
    """GPUs of one copy of the model."""
    return tensor_parallel(spec, shape) * pipeline_parallel(spec)


def copies(spec: TritonServerSpec, shape: InstanceType) -> int:
    """Copies of the model in one pod: one for each GPU where a copy takes just one, else one in all."""
    return gpus(spec, shape) if world_size(spec, shape) == 1 else 1


def max_num_seqs(spec: TritonServerSpec, shape: InstanceType) -> int:
    """Sequences one copy works on at once: the spec's, or what vLLM takes by itself.

    Releases with the V1 engine take more on large GPUs newer than A100 (0.27.1, ``EngineArgs.get_batch_defaults``; the back end
    asks as OPENAI_API_SERVER).
    """
    if spec.max_num_seqs:
        return spec.max_num_seqs
    large = shape.device_memory_gib >= 70 and shape.compute_capability != (8, 0)
    return 1024 if large and vllm_release(spec.profile) >= (0, 9) else 256


def max_model_len(spec: TritonServerSpec) -> int:
    """Longest sequence in tokens: the spec's, or what vLLM reads from the model; 0 where the catalog does not know it."""
    model = find_model(spec.model.id)
    return spec.max_model_len or (model.max_positions if model else 0)


def vllm_release(profile: EngineProfile) -> tuple[int, int]:
    """First two numbers of the vLLM inside."""
    major, minor = version_numbers(".".join(profile.vllm.split(".")[:2]))
    return major, minor


def triton_release(profile: EngineProfile) -> str:
    """Year and month of the Triton inside, as its image's tag begins: ``26.08``."""
    return profile.image.rpartition(":")[2].partition("-")[0]


def resources(spec: TritonServerSpec, shape: InstanceType) -> dict[str, str]:
    """Requests and limits of one pod but for its disk: what the spec says, or the GPUs' share of the node."""
    return pods.share_of_node(shape, gpus(spec, shape), cpu=spec.cpu, memory=spec.memory)


def cache_gib(spec: TritonServerSpec) -> int:
    """Node disk set aside for downloads of one pod; 0 where the pod keeps none of its own."""
    if isinstance(spec.cache, HostPathCache) or not isinstance(spec.model, HubModel):
        return 0
    if spec.cache.size_gib:
        return spec.cache.size_gib
    model = find_model(spec.model.id)
    return max(math.ceil(2 * model.weight_bytes() / 1024**3), _SMALLEST_CACHE_GIB) if model else _UNKNOWN_MODEL_GIB


def disk_gib(spec: TritonServerSpec) -> int:
    """Node disk one pod asks for."""
    return cache_gib(spec) + (spec.model.size_gib if isinstance(spec.model, S3Model) else 0) + _SCRATCH_GIB


def startup_timeout_seconds(spec: TritonServerSpec) -> int:
    """How long a pod's server may take from the start of its process until it answers."""
    return spec.startup_timeout_seconds or spec.profile.startup.engine_s


def cold_start_seconds(spec: TritonServerSpec) -> int:
    """Upper bound from the wish for a pod until it answers."""
    return pods.cold_start_seconds(spec.profile.startup, startup_timeout_seconds(spec))


def progress_seconds(spec: TritonServerSpec) -> int:
    """How long a roll-out may make no progress: one pod ends, and the next one starts from nothing."""
    return pods.TERMINATION_SECONDS + cold_start_seconds(spec)


def rollout_seconds(spec: TritonServerSpec) -> int:
    """How long a roll-out may take in all: a pod after the other, or ``surge`` of them at a time."""
    return progress_seconds(spec) * max(math.ceil(spec.most / max(spec.surge, 1)), 1)


# -- model repository -----------------------------------------------------------------------------------------------------------


def instance_kind(spec: TritonServerSpec, shape: InstanceType) -> str:
    """How Triton makes instances of the model.

    KIND_GPU makes one on each GPU and shows it only that; the back end refuses it for copies that take several, which have to be
    KIND_MODEL: one instance that sees all GPUs of the pod.
    """
    return "KIND_GPU" if world_size(spec, shape) == 1 else "KIND_MODEL"


def engine_settings(spec: TritonServerSpec, shape: InstanceType) -> dict[str, Any]:
    """Content of model.json: arguments of vLLM's engine, an unknown one of which keeps the model from loading."""
    model = spec.model
    return {
        "model": model_folder(model) or model.id,
        **({"revision": model.revision} if isinstance(model, HubModel) and model.revision else {}),
        "dtype": spec.dtype,
        "tensor_parallel_size": tensor_parallel(spec, shape),
        **({"max_model_len": spec.max_model_len} if spec.max_model_len else {}),
        **({"max_num_seqs": spec.max_num_seqs} if spec.max_num_seqs else {}),
        "gpu_memory_utilization": spec.gpu_memory_utilization,
        "enforce_eager": spec.enforce_eager,
        "disable_log_stats": not spec.log_stats,
        **spec.engine_args,
    }


def model_json(spec: TritonServerSpec, shape: InstanceType) -> str:
    """The file ``1/model.json`` of the model."""
    return json.dumps(engine_settings(spec, shape), indent=2) + "\n"


def config_pbtxt(spec: TritonServerSpec, shape: InstanceType) -> str:
    """The file ``config.pbtxt`` of the model.

    Inputs and outputs are left out: the back end adds those of its own release, unless Triton is told not to complete
    configurations (as in the source system).
    """
    parameters = {
        "REPORT_CUSTOM_METRICS": spec.report_custom_metrics,
        "ENABLE_VLLM_HEALTH_CHECK": spec.engine_health_check,
    }
    return "".join(
        [
            'backend: "vllm"\n',
            # vLLM does the batching, and answers when it likes: once a token.
            "max_batch_size: 0\n",
            "model_transaction_policy {\n  decoupled: true\n}\n",
            f"instance_group [\n  {{\n    count: 1\n    kind: {instance_kind(spec, shape)}\n  }}\n]\n",
            *(
                f'parameters {{\n  key: "{key}"\n  value {{\n    string_value: "true"\n  }}\n}}\n'
                for key, wanted in parameters.items()
                if wanted
            ),
        ]
    )


def repository_files(spec: TritonServerSpec, shape: InstanceType) -> dict[str, str]:
    """The model repository: text by path."""
    model = spec.served_name
    return {f"{model}/config.pbtxt": config_pbtxt(spec, shape), f"{model}/1/model.json": model_json(spec, shape)}


def config_map_keys(paths: Sequence[str]) -> dict[str, str]:
    """Keys of a ConfigMap that holds files, by path: keys have no slashes."""
    return {path: path.rpartition("/")[2] for path in paths}


def repository_config_map(name: str, spec: TritonServerSpec, shape: InstanceType) -> dict[str, Any]:
    """``metadata`` and ``data`` of the ConfigMap with the model repository."""
    files = repository_files(spec, shape)
    keys = config_map_keys(list(files))
    return {
        "metadata": {"name": repository_name(name), "namespace": namespace(name, spec), "labels": labels(name)},
        "data": {keys[path]: text for path, text in files.items()},
    }


def repository_name(name: str) -> str:
    """Name of the ConfigMap with the model repository."""
    return f"{name}-repository"


# -- pods -----------------------------------------------------------------------------------------------------------------------


def labels(name: str) -> dict[str, str]:
    """What everything of a server carries."""
    return {SERVER_LABEL: name}


def server_labels(name: str) -> dict[str, str]:
    """What Deployment, Service, monitor and disruption budget select by."""
    return {**labels(name), ROLE_LABEL: SERVER_ROLE}


def arguments() -> list[str]:
    """What follows ``tritonserver``."""
    return [f"--model-repository={REPOSITORY_FOLDER}", f"--exit-timeout-secs={pods.DRAIN_SECONDS}"]


def environment(spec: TritonServerSpec) -> dict[str, str]:
    """Environment of the server, without what is secret."""
    return {
        # The root file system cannot be written.
        "HOME": _HOME,
        "HF_HOME": _DOWNLOADS,
        **spec.extra_env,
    }


def deployment(
    name: str,
    spec: TritonServerSpec,
    placement: Placement,
    *,
    image: Any,
    tools_image: str,
    repository_url: Any = None,
    storage: PodStorage,
    secret_env: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Deployment.

    ``tools_image`` has the ``aws`` command and a shell; ``repository_url`` is that of a repository in S3. The latter and what
    stands in ``storage`` and ``secret_env`` may be values that are only known when deployed.
    """
    shape = placement.instance_type
    digest = hashlib.sha256(json.dumps(repository_files(spec, shape)).encode()).hexdigest()
    init = [
        *([_hand_over(tools_image)] if isinstance(spec.cache, HostPathCache) else []),
        *([] if isinstance(spec.repository, ConfigMapRepository) else [_copy_repository(repository_url, tools_image)]),
        *(_with_tmp(one) for one in storage.init_containers),
    ]
    return {
        "metadata": {"name": name, "namespace": namespace(name, spec), "labels": server_labels(name)},
        "spec": {
            **({} if spec.autoscaling else {"replicas": spec.replicas}),
            # GPUs that a pod holds are free when it has ended. One more pod would wait for GPUs of its own: on nodes that are
            # full for ever, with Karpenter for another node.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": spec.surge, "maxUnavailable": 0 if spec.surge else 1},
            },
            "progressDeadlineSeconds": progress_seconds(spec),
            "selector": {"matchLabels": server_labels(name)},
            "template": {
                # Triton reads its repository once: a changed file has to change the pod.
                "metadata": {"labels": server_labels(name), "annotations": {"eks-inference/repository-sha256": digest}},
                "spec": {
                    **_placed(placement),
                    "topologySpreadConstraints": pods.spread_over_zones(server_labels(name)),
                    "serviceAccountName": account(name),
                    # A server runs downloaded models and has no business with the API server.
                    "automountServiceAccountToken": False,
                    # A Service of this namespace would otherwise put <NAME>_PORT=tcp://... into every pod.
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": pods.TERMINATION_SECONDS,
                    "securityContext": restricted_pod(USER),
                    **({"initContainers": init} if init else {}),
                    "containers": [_container(spec, shape, image, storage, secret_env)],
                    "volumes": [_repository_volume(name, spec, shape), *_own_volumes(spec), *storage.volumes],
                },
            },
        },
    }


def _container(
    spec: TritonServerSpec, shape: InstanceType, image: Any, storage: PodStorage, secret_env: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    sizes = {**resources(spec, shape), "ephemeral-storage": f"{disk_gib(spec)}Gi"}
    plain = environment(spec)
    live, ready = (
        {"httpGet": {"path": path, "port": "http"}, "periodSeconds": _PROBE_SECONDS, "timeoutSeconds": _PROBE_SECONDS}
        for path in (LIVE, READY)
    )
    return {
        "name": "triton",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        # Past the image's own entry point, which writes to the root file system.
        "command": ["tritonserver"],
        "args": arguments(),
        "workingDir": _HOME,
        "env": [
            *(dict(entry) for entry in secret_env if entry["name"] not in plain),
            *storage.env,
            *({"name": key, "value": value} for key, value in plain.items()),
        ],
        "ports": [{"name": name, "containerPort": number} for name, number in PORTS.items()],
        # Requests equal to limits: devices allow nothing else.
        "resources": {"requests": sizes, "limits": sizes},
        # Triton listens once every model is loaded.
        "startupProbe": {**live, "failureThreshold": math.ceil(startup_timeout_seconds(spec) / _PROBE_SECONDS)},
        "livenessProbe": {**live, "failureThreshold": _DEAF_SECONDS // _PROBE_SECONDS},
        "readinessProbe": ready,
        # Kubernetes takes a pod that ends out of its Service at once, but nodes learn of it one after the other. Triton itself
        # then finishes what it has.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(pods.SETTLE_SECONDS)]}}},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "repository", "mountPath": REPOSITORY_FOLDER, "readOnly": True},
            {"name": "downloads", "mountPath": _DOWNLOADS},
            {"name": "home", "mountPath": _HOME},
            _TMP,
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            *storage.mounts,
        ],
    }


_TMP = {"name": "tmp", "mountPath": "/tmp"}


def _own_volumes(spec: TritonServerSpec) -> list[dict[str, Any]]:
    cache = spec.cache
    size = cache_gib(spec)
    downloads = (
        {"hostPath": {"path": cache.path, "type": "DirectoryOrCreate"}}
        if isinstance(cache, HostPathCache)
        else {"emptyDir": {"sizeLimit": f"{size}Gi"} if size else {}}
    )
    return [
        {"name": "downloads", **downloads},
        {"name": "home", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": f"{spec.shared_memory_gib}Gi"}},
    ]


def _repository_volume(name: str, spec: TritonServerSpec, shape: InstanceType) -> dict[str, Any]:
    if not isinstance(spec.repository, ConfigMapRepository):
        return {"name": "repository", "emptyDir": {}}
    keys = config_map_keys(list(repository_files(spec, shape)))
    items = [{"key": key, "path": path} for path, key in keys.items()]
    return {"name": "repository", "configMap": {"name": repository_name(name), "items": items}}


def _copy_repository(url: Any, image: str) -> dict[str, Any]:
    return {
        "name": "copy-repository",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["aws"],
        "args": ["s3", "sync", url, REPOSITORY_FOLDER, "--only-show-errors"],
        # The image's own home belongs to root.
        "env": [{"name": "HOME", "value": "/tmp"}],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [{"name": "repository", "mountPath": REPOSITORY_FOLDER}, _TMP],
    }


def _hand_over(image: str) -> dict[str, Any]:
    """The container that makes a folder of the node writable for Triton's user: as root, with leave to do just that."""
    return {
        "name": "hand-over-cache",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["chown", f"{USER}:{USER}", _DOWNLOADS],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "runAsNonRoot": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]},
        },
        "volumeMounts": [{"name": "downloads", "mountPath": _DOWNLOADS}],
    }


def _with_tmp(container: Mapping[str, Any]) -> dict[str, Any]:
    return {**container, "securityContext": CONTAINER_SECURITY, "volumeMounts": [*container["volumeMounts"], _TMP]}


def _placed(placement: Placement) -> dict[str, Any]:
    return {"nodeSelector": dict(placement.node_selector), "tolerations": placement.tolerations()}


def service(name: str, spec: TritonServerSpec) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Service in front of the pods that can answer."""
    return {
        "metadata": {"name": name, "namespace": namespace(name, spec), "labels": server_labels(name)},
        "spec": {
            "type": "ClusterIP",
            "selector": server_labels(name),
            "ports": [{"name": port, "port": number, "targetPort": port} for port, number in PORTS.items()],
        },
    }


def prefetch(name: str, spec: TritonServerSpec, placement: Placement, *, image: Any) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the DaemonSet that keeps the image on the nodes: it sleeps."""
    own = {**labels(name), ROLE_LABEL: PREFETCH_ROLE}
    return {
        "metadata": {"name": f"{name}-prefetch", "namespace": namespace(name, spec), "labels": own},
        "spec": {
            "selector": {"matchLabels": own},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {
                "metadata": {"labels": own},
                "spec": {
                    **_placed(placement),
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": 0,
                    "securityContext": restricted_pod(USER),
                    "containers": [
                        {
                            "name": "sleep",
                            "image": image,
                            "imagePullPolicy": "IfNotPresent",
                            "command": ["sleep", "infinity"],
                            # The image asks for all GPUs by this variable, and NVIDIA's runtime believes it.
                            "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
                            "resources": {
                                "requests": {"cpu": "1m", "memory": "8Mi"},
                                "limits": {"cpu": "10m", "memory": "32Mi"},
                            },
                            "securityContext": CONTAINER_SECURITY,
                        }
                    ],
                },
            },
        },
    }
