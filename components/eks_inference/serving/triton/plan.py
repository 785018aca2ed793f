"""Plans Triton servers with the vLLM back end: model repository and pods. Pure functions; no pulumi.

Sources: triton-inference-server/vllm_backend (README, ``src/model.py`` and ``src/utils`` of r24.07 to r26.01), the same project's
server (command line, model configuration), vLLM 0.5.0 and 0.27.1 (``engine/arg_utils.py``), huggingface_hub (HF_HOME, HF_TOKEN);
Kubernetes documentation ("Pod Lifecycle", "Local ephemeral storage"); the source system's chart values (ports, probes, paths).
"""

import hashlib
import json
import math
from typing import Any

from eks_inference.aws import iam
from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.instances import InstanceType
from eks_inference.kubernetes.merge import merged
from eks_inference.kubernetes.workloads import restricted_pod
from eks_inference.place.placement import Placement
from eks_inference.serving import pod_parts, storage_plan
from eks_inference.serving.deployment import CONTAINER_SECURITY, USER, Engine, device_count, model_copy_gib, with_tmp
from eks_inference.serving.flag_values import backend_settings
from eks_inference.serving.flags import flags
from eks_inference.serving.pod_parts import ROLE_LABEL, SERVER_LABEL
from eks_inference.serving.spec import HubModel, NoCompileCache
from eks_inference.serving.storage_plan import model_folder, read_folder, s3_copy
from eks_inference.serving.triton.spec import ConfigMapRepository, HostPathCache, S3Repository, TritonServerSpec
from eks_inference.specs.settings import StackSettings

PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
"""Ports of Triton, by their names in container and Service."""

REPOSITORY_FOLDER = "/model_repository"
ARGUMENTS = (f"--model-repository={REPOSITORY_FOLDER}", f"--exit-timeout-secs={pod_parts.DRAIN_SECONDS}")
"""Arguments of ``tritonserver``."""

# Whoever reaches the ports could map shared memory, write trace files or change log files and the model repository. Triton closes
# an API only behind a header with a value (inference_protocols.md of triton-inference-server/server, "Limit Endpoint Access"): a
# random one that nobody knows closes it to everyone. perf_analyzer needs none of these.
_CLOSED_APIS = "logging,model-repository,shared-memory,trace"
_START = (
    "read -r key < /proc/sys/kernel/random/uuid\n"
    f"closed={_CLOSED_APIS}:eks-inference-closed=$key\n"
    'exec tritonserver "$@" "--http-restricted-api=$closed" "--grpc-restricted-protocol=$closed"\n'
)

_HOME = "/home/triton-server"
_DOWNLOADS = "/var/cache/huggingface"
_SCRATCH_GIB = 4  # home and /tmp: compiled kernels, logs
_UNKNOWN_MODEL_GIB = 100
_SMALLEST_CACHE_GIB = 20


# -- sizes ----------------------------------------------------------------------------------------------------------------------


def tensor_parallel(spec: TritonServerSpec, shape: InstanceType) -> int:
    """Returns the number of GPUs that one copy of the model is split over by attention heads."""
    return spec.tensor_parallel or max(device_count(spec, shape), 1)


def pipeline_parallel(spec: TritonServerSpec) -> int:
    """Returns the number of GPU groups that one copy of the model is split over by layers."""
    given = spec.extra_args.get("pipeline-parallel-size", 1)
    return given if isinstance(given, int) else 1


def world_size(spec: TritonServerSpec, shape: InstanceType) -> int:
    return tensor_parallel(spec, shape) * pipeline_parallel(spec)


def copies(spec: TritonServerSpec, shape: InstanceType) -> int:
    """Returns the copies of the model in one pod: one per GPU if a copy fits one GPU, else a single one."""
    return device_count(spec, shape) if world_size(spec, shape) == 1 else 1


def max_num_seqs(spec: TritonServerSpec, shape: InstanceType) -> int:
    """Returns the sequences that one copy processes at once: those of the spec, or the default of vLLM.

    Releases with the V1 engine have a higher default on large GPUs newer than A100 (0.27.1, ``EngineArgs.get_batch_defaults``;
    the back end uses the context OPENAI_API_SERVER).
    """
    if spec.max_num_seqs:
        return spec.max_num_seqs
    large = shape.device_memory_gib >= 70 and shape.compute_capability != (8, 0)
    return 1024 if large and pod_parts.vllm_release(spec.profile) >= (0, 9) else 256


def max_model_len(spec: TritonServerSpec) -> int:
    """Returns the maximum length of a sequence in tokens: that of the spec or the model; 0 if the catalog does not know it."""
    model = spec.model.known
    return spec.max_model_len or (model.max_positions if model else 0)


def triton_release(profile: EngineProfile) -> str:
    """Returns year and month of the Triton release, which start the image's tag: ``26.08``."""
    return profile.image.rpartition(":")[2].partition("-")[0]


def cache_gib(spec: TritonServerSpec) -> int:
    """Returns the node disk reserved for downloads of one pod; 0 if the pod has no cache of its own."""
    downloads = [model for model in spec.models if isinstance(model, HubModel)]
    if isinstance(spec.cache, HostPathCache) or not downloads:
        return 0
    return spec.cache.size_gib or sum(map(_download_gib, downloads))


def _download_gib(model: HubModel) -> int:
    known = model.known
    return max(math.ceil(2 * known.weight_bytes() / 1024**3), _SMALLEST_CACHE_GIB) if known else _UNKNOWN_MODEL_GIB


# -- model repository -----------------------------------------------------------------------------------------------------------


def instance_kind(spec: TritonServerSpec, shape: InstanceType) -> str:
    """Returns how Triton creates instances of the model.

    KIND_GPU creates one instance on each GPU, which sees only that GPU. The back end refuses it for copies that take several
    GPUs. These need KIND_MODEL: one instance that sees all GPUs of the pod.
    """
    return "KIND_GPU" if world_size(spec, shape) == 1 else "KIND_MODEL"


def engine_settings(spec: TritonServerSpec, shape: InstanceType) -> dict[str, Any]:
    """Returns the content of model.json: arguments of vLLM's engine. An unknown argument prevents the model from loading."""
    model = spec.model
    features = spec.feature_settings(spec.engine, max_model_len=spec.max_model_len, max_num_seqs=spec.max_num_seqs)
    settings = {
        "model": model_folder(spec) or model.id,
        **({"revision": model.revision} if isinstance(model, HubModel) and model.revision else {}),
        "dtype": spec.dtype,
        "tensor_parallel_size": tensor_parallel(spec, shape),
        **({"max_model_len": spec.max_model_len} if spec.max_model_len else {}),
        **({"max_num_seqs": spec.max_num_seqs} if spec.max_num_seqs else {}),
        "gpu_memory_utilization": spec.gpu_memory_utilization,
        "enforce_eager": spec.enforce_eager,
        "disable_log_stats": not spec.log_stats,
        # The file spells arguments like Python.
        **{name.replace("-", "_"): value for name, value in merged(features, spec.extra_args).items()},
    }
    needed = backend_settings(spec.profile.vllm, shape, flags(settings), model.known)
    return settings | {name.replace("-", "_"): value for name, value in needed.items()}


def config_pbtxt(spec: TritonServerSpec, shape: InstanceType) -> str:
    """Returns the file ``config.pbtxt`` of the model.

    It omits inputs and outputs: the back end adds those of its release, unless a flag of Triton disables the completion of
    configurations (as in the source system).
    """
    parameters = {
        "REPORT_CUSTOM_METRICS": spec.report_custom_metrics,
        "ENABLE_VLLM_HEALTH_CHECK": spec.engine_health_check,
    }
    return "".join(
        [
            'backend: "vllm"\n',
            # vLLM batches requests itself, and sends an answer for each token.
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
    """Returns the texts of the model repository by path."""
    found: dict[str, str] = {}
    for one in (spec, *map(spec.alone, spec.further_models)):
        settings = json.dumps(engine_settings(one, shape), indent=2) + "\n"
        found |= {f"{one.served_name}/config.pbtxt": config_pbtxt(one, shape), f"{one.served_name}/1/model.json": settings}
    return found


def file_key(spec: TritonServerSpec, path: str) -> str:
    """Returns a repository file's name without slashes; files of the first model keep their names."""
    model, _, file = path.replace("/1/", "/").partition("/")
    return file if model == spec.served_name else f"{model}.{file}"


def repository_config_map(name: str, spec: TritonServerSpec, shape: InstanceType) -> dict[str, Any]:
    """Returns ``metadata`` and ``data`` of the ConfigMap with the model repository. Its keys are file names, without slashes."""
    return {
        "metadata": {"name": repository_name(name), "namespace": spec.namespace_of(name), "labels": labels(name)},
        "data": {file_key(spec, path): text for path, text in repository_files(spec, shape).items()},
    }


def repository_name(name: str) -> str:
    return f"{name}-repository"


# -- pods -----------------------------------------------------------------------------------------------------------------------


def labels(name: str) -> dict[str, str]:
    return {SERVER_LABEL: name}


def server_labels(name: str) -> dict[str, str]:
    """Returns the labels that Deployment, Service, monitor and disruption budget select."""
    return {**labels(name), ROLE_LABEL: "server"}


def environment(spec: TritonServerSpec) -> dict[str, str]:
    """Returns the environment of the server without secrets. Its home is a volume because the root file system is read-only."""
    return {"HOME": _HOME, "HF_HOME": _DOWNLOADS, **spec.extra_env}


def engine(name: str, spec: TritonServerSpec, shape: InstanceType, *, tools_image: str, repository_url: Any = None) -> Engine:
    """Returns what Triton decides about its pods.

    ``tools_image`` has the ``aws`` command and a shell. ``repository_url`` is that of a repository in S3 and may be unknown until
    deployed.
    """
    init_containers = [_hand_over(tools_image)] if isinstance(spec.cache, HostPathCache) else []
    if isinstance(spec.repository, S3Repository):
        sizes = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}
        copy = s3_copy("copy-repository", tools_image, repository_url, REPOSITORY_FOLDER, volume="repository", resources=sizes)
        init_containers.append(with_tmp(copy))
    digest = hashlib.sha256(json.dumps(repository_files(spec, shape)).encode()).hexdigest()
    return Engine(
        name="triton",
        command=["/bin/sh", "-ec", _START, "tritonserver"],
        # By default four models load at once: each would measure the memory of a GPU while the others take theirs.
        arguments=(*ARGUMENTS, *(["--model-load-thread-count=1"] if spec.further_models else [])),
        home=_HOME,
        environment=environment(spec),
        ports=PORTS,
        # Triton listens only after it has loaded every model.
        health=("/v2/health/live", "/v2/health/ready"),
        disk_gib=cache_gib(spec) + model_copy_gib(spec) + _SCRATCH_GIB,
        # After that, Triton itself finishes its requests.
        stop=["sleep", str(pod_parts.SETTLE_SECONDS)],
        mounts=[
            {"name": "repository", "mountPath": REPOSITORY_FOLDER, "readOnly": True},
            {"name": "downloads", "mountPath": _DOWNLOADS},
            {"name": "home", "mountPath": _HOME},
        ],
        volumes=_volumes(name, spec, shape),
        init_containers=init_containers,
        # Triton reads its repository only once, so a changed file must replace the pod.
        annotations={"eks-inference/repository-sha256": digest},
    )


def _volumes(name: str, spec: TritonServerSpec, shape: InstanceType) -> list[dict[str, Any]]:
    repository: dict[str, Any] = {"emptyDir": {}}
    if isinstance(spec.repository, ConfigMapRepository):
        items = [{"key": file_key(spec, path), "path": path} for path in repository_files(spec, shape)]
        repository = {"configMap": {"name": repository_name(name), "items": items}}
    size = cache_gib(spec)
    downloads: dict[str, Any] = {"emptyDir": {"sizeLimit": f"{size}Gi"} if size else {}}
    if isinstance(spec.cache, HostPathCache):
        downloads = {"hostPath": {"path": spec.cache.path, "type": "DirectoryOrCreate"}}
    return [{"name": "repository", **repository}, {"name": "downloads", **downloads}, {"name": "home", "emptyDir": {}}]


def _hand_over(image: str) -> dict[str, Any]:
    """Returns the container that gives a folder of the node to Triton's user. It runs as root, with the capability CHOWN only."""
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
    """Returns ``metadata`` and ``spec`` of the idle DaemonSet that keeps the image on the nodes."""
    own = {**labels(name), ROLE_LABEL: "prefetch"}
    return {
        "metadata": {"name": f"{name}-prefetch", "namespace": spec.namespace_of(name), "labels": own},
        "spec": {
            "selector": {"matchLabels": own},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {
                "metadata": {"labels": own},
                "spec": {
                    **placement.scheduling(),
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
                            # By default the image sets this variable so that NVIDIA's runtime adds all GPUs.
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


def role_policy(spec: TritonServerSpec, settings: StackSettings, repository_bucket: str | None) -> iam.Document:
    """Returns the IAM policy of the pods: they may read the model repository and the model's folder."""
    model = storage_plan.role_policy(spec.model, NoCompileCache(), settings, None)["Statement"]
    repository: list[iam.Statement] = []
    if isinstance(spec.repository, S3Repository) and repository_bucket:
        repository = read_folder("Repository", settings.partition, f"s3://{repository_bucket}/{spec.repository.prefix}")
    return iam.document(*repository, *model)
