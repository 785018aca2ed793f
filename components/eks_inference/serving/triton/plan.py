"""A Triton server with the vLLM back end as data: model repository, Deployment, Service. Pure functions; no pulumi.

Sources: triton-inference-server/vllm_backend (README, ``src/model.py`` and ``src/utils`` of r24.07 to r26.01), the same project's
server (command line, model configuration), vLLM 0.5.0 and 0.27.1 (``engine/arg_utils.py``), huggingface_hub (HF_HOME, HF_TOKEN);
Kubernetes documentation ("Pod Lifecycle", "Local ephemeral storage"); the source system's chart values (ports, probes, paths).
"""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any, Literal

from eks_inference.aws import iam
from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import find_model
from eks_inference.catalog.tables import version_numbers
from eks_inference.kubernetes.pod_security import restricted_pod
from eks_inference.placement import Placement
from eks_inference.serving import pods, protection, storage_plan
from eks_inference.serving.deployment import CONTAINER_SECURITY, TMP, USER, Engine, device_count, model_copy_gib
from eks_inference.serving.pods import SERVER_LABEL
from eks_inference.serving.spec import HubModel, NoCompileCache
from eks_inference.serving.storage_plan import model_folder
from eks_inference.serving.triton.spec import ConfigMapRepository, HostPathCache, S3Repository, TritonServerSpec
from eks_inference.settings import StackSettings

PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
"""Where Triton listens, by the names that container and Service give the ports."""

LIVE, READY = "/v2/health/live", "/v2/health/ready"

ROLE_LABEL = "eks-inference/role"
SERVER_ROLE, PREFETCH_ROLE = "server", "prefetch"

REPOSITORY_FOLDER = "/model_repository"

_HOME = "/home/triton-server"
_DOWNLOADS = "/var/cache/huggingface"
_SCRATCH_GIB = 4  # home and /tmp: compiled kernels, logs
_UNKNOWN_MODEL_GIB = 100
_SMALLEST_CACHE_GIB = 20


# -- sizes ----------------------------------------------------------------------------------------------------------------------


def tensor_parallel(spec: TritonServerSpec, shape: InstanceType) -> int:
    """GPUs one copy of the model is split over by heads."""
    return spec.tensor_parallel or max(device_count(spec, shape), 1)


def pipeline_parallel(spec: TritonServerSpec) -> int:
    """Groups of GPUs one copy of the model is split over by layers."""
    given = spec.extra_args.get("pipeline-parallel-size", 1)
    return given if isinstance(given, int) else 1


def world_size(spec: TritonServerSpec, shape: InstanceType) -> int:
    """GPUs of one copy of the model."""
    return tensor_parallel(spec, shape) * pipeline_parallel(spec)


def copies(spec: TritonServerSpec, shape: InstanceType) -> int:
    """Copies of the model in one pod: one for each GPU where a copy takes just one, else one in all."""
    return device_count(spec, shape) if world_size(spec, shape) == 1 else 1


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


def cache_gib(spec: TritonServerSpec) -> int:
    """Node disk set aside for downloads of one pod; 0 where the pod keeps none of its own."""
    if isinstance(spec.cache, HostPathCache) or not isinstance(spec.model, HubModel):
        return 0
    if spec.cache.size_gib:
        return spec.cache.size_gib
    model = find_model(spec.model.id)
    return max(math.ceil(2 * model.weight_bytes() / 1024**3), _SMALLEST_CACHE_GIB) if model else _UNKNOWN_MODEL_GIB


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
        # The file spells arguments as Python does.
        **{name.replace("-", "_"): value for name, value in spec.extra_args.items()},
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
        "metadata": {"name": repository_name(name), "namespace": spec.namespace_of(name), "labels": labels(name)},
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


def engine(name: str, spec: TritonServerSpec, shape: InstanceType, *, tools_image: str, repository_url: Any = None) -> Engine:
    """What Triton decides about its pods.

    ``tools_image`` has the ``aws`` command and a shell; ``repository_url`` is that of a repository in S3, which may be known only
    when deployed.
    """
    digest = hashlib.sha256(json.dumps(repository_files(spec, shape)).encode()).hexdigest()
    return Engine(
        name="triton",
        command=["tritonserver"],
        arguments=arguments(),
        home=_HOME,
        environment=environment(spec),
        ports=PORTS,
        # Triton listens once every model is loaded.
        health=(LIVE, READY),
        disk_gib=cache_gib(spec) + model_copy_gib(spec) + _SCRATCH_GIB,
        # Triton itself then finishes what it has.
        stop=["sleep", str(pods.SETTLE_SECONDS)],
        mounts=[
            {"name": "repository", "mountPath": REPOSITORY_FOLDER, "readOnly": True},
            {"name": "downloads", "mountPath": _DOWNLOADS},
            {"name": "home", "mountPath": _HOME},
        ],
        volumes=[_repository_volume(name, spec, shape), *_own_volumes(spec)],
        init_containers=[
            *([_hand_over(tools_image)] if isinstance(spec.cache, HostPathCache) else []),
            *([] if isinstance(spec.repository, ConfigMapRepository) else [_copy_repository(repository_url, tools_image)]),
        ],
        # Triton reads its repository once: a changed file has to change the pod.
        annotations={"eks-inference/repository-sha256": digest},
    )


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
        "volumeMounts": [{"name": "repository", "mountPath": REPOSITORY_FOLDER}, TMP],
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


def prefetch(name: str, spec: TritonServerSpec, placement: Placement, *, image: Any) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the DaemonSet that keeps the image on the nodes: it sleeps."""
    own = {**labels(name), ROLE_LABEL: PREFETCH_ROLE}
    return {
        "metadata": {"name": f"{name}-prefetch", "namespace": spec.namespace_of(name), "labels": own},
        "spec": {
            "selector": {"matchLabels": own},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {
                "metadata": {"labels": own},
                "spec": {
                    "nodeSelector": dict(placement.node_selector),
                    "tolerations": placement.tolerations(),
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


# -- guards ---------------------------------------------------------------------------------------------------------------------


def pod_security(spec: TritonServerSpec) -> Literal["privileged", "restricted"]:
    """The level of the namespace. A cache in a folder of the node is the one exception: see ``HostPathCache``."""
    return "privileged" if isinstance(spec.cache, HostPathCache) else "restricted"


def network_policies(name: str, spec: TritonServerSpec) -> dict[str, dict[str, Any]]:
    """The namespace's NetworkPolicies by role. Open: HTTP and gRPC to clients, metrics to Prometheus."""
    api = [PORTS["http"], PORTS["grpc"]]
    return protection.server_policies(name, spec, server_labels(name), api=api, metrics=PORTS["metrics"])


def role_policy(spec: TritonServerSpec, settings: StackSettings, repository_bucket: str | None) -> iam.Document:
    """What the pods may do in AWS: read the model repository, and the model's folder."""
    model = storage_plan.role_policy(spec.model, NoCompileCache(kind="none"), settings, None)["Statement"]
    repository: list[iam.Statement] = []
    if isinstance(spec.repository, S3Repository) and repository_bucket:
        bucket, prefix = f"arn:{settings.partition}:s3:::{repository_bucket}", spec.repository.prefix
        below = {"StringLike": {"s3:prefix": f"{prefix}/*"}}
        repository = [
            iam.allow("ListRepository", ["s3:ListBucket"], bucket, conditions=below),
            iam.allow("ReadRepository", ["s3:GetObject"], f"{bucket}/{prefix}/*"),
        ]
    return iam.document(*repository, *model)
