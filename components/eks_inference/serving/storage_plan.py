"""Plans what a server keeps and reads outside its pods: compiled graphs and model folders. Pure functions; no pulumi.

Compiled graphs go through the compiler's own cache, not through ``NEURON_COMPILED_ARTIFACTS``. The cache looks up a graph by
compiler version, graph and flags, so it never returns a wrong one. A folder of finished artifacts is loaded whatever settings the
server has, and a start that was interrupted leaves a folder that no later start can load. So a server with a store keeps
artifacts under a name that depends on all settings, and gives the name to whole ones only (``assets/keep_artifact.py``).

Sources: neuronx-distributed ``trace/model_builder.py`` (compiles with the cache on, where the environment says), Neuron
documentation "Neuron Persistent Cache", vllm-neuron ``neuronx_distributed_model_loader.py``.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eks_inference.aws import iam
from eks_inference.kubernetes.workloads import RESTRICTED_CONTAINER
from eks_inference.serving.shape import CompilingServerSpec, ServerSpec
from eks_inference.serving.spec import (
    CompileCache,
    HubModel,
    ModelSource,
    NoCompileCache,
    S3CompileCache,
    S3Model,
    VolumeCompileCache,
    VolumeModel,
)
from eks_inference.specs.settings import StackSettings

CACHE_VARIABLE = "COMPILE_CACHE"
"""Environment variable of a pod with the root of the compile cache, where ``NEURON_COMPILE_CACHE_URL`` begins."""

_CACHE_FOLDER = "/var/cache/neuron"
_MODEL_FOLDER = "/models"
SCRATCH = "/scratch"
"""Where pods of vLLM servers mount the volume ``scratch``."""


@dataclass(frozen=True)
class PodStorage:
    """What a pod gets for its model and its compiled graphs."""

    env: list[dict[str, Any]] = field(default_factory=list)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    mounts: list[dict[str, Any]] = field(default_factory=list)
    init_containers: list[dict[str, Any]] = field(default_factory=list)


def compile_cache_place(spec: CompilingServerSpec, family: str, variable: str) -> str | None:
    """Returns the folder of compiled graphs below ``variable``, which expands ``CACHE_VARIABLE``; None without a cache.

    Its name is a hash of everything that the compiler's output depends on, so outdated folders can be recognized and removed.
    The cache also remembers failed compilations: a changed image or setting gets another folder and never meets them.
    """
    return None if isinstance(spec.cache, NoCompileCache) else f"{variable}/{content_key(spec, family)}"


def content_key(spec: CompilingServerSpec, family: str, environment: Mapping[str, str] | None = None) -> str:
    """Returns a hash of what the compiler's output depends on, and of variables that it reads."""
    image = spec.image_reference
    seen: dict[str, Any] = {
        "image": image if isinstance(image, str) else [image.dockerfile_text, image.files, image.build_args],
        "engine": spec.engine,
        "family": family,
        # Neither who may download a model nor what rules know of its shape affects its compilation.
        "model": spec.model.model_dump(mode="json", exclude={"gated", "shape"}),
        "tensor_parallel": spec.tensor_parallel,
        "max_model_len": spec.max_model_len,
        "max_num_seqs": spec.max_num_seqs,
        "engine_args": spec.engine_flags,
        **({"environment": dict(environment)} if environment else {}),
    }
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:16]


def model_folder(spec: ServerSpec, downloads: str = "/tmp/models") -> str | None:
    """Returns the folder where a pod finds the model, also in S3; None where the engine downloads it.

    ``downloads`` is where pods keep what they download before the engine starts.
    """
    if not isinstance(spec.model, HubModel):
        return spec.model.uri if isinstance(spec.model, S3Model) and spec.model.streamed else _MODEL_FOLDER
    return f"{downloads}/{spec.model.id}/{revision(spec.model).replace('/', '--')}" if spec.downloads_first else None


def revision(model: HubModel) -> str:
    """Returns the revision to download."""
    return model.revision or "main"


def cache_claim(name: str, namespace: str, cache: VolumeCompileCache, *, several_pods: bool) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the PersistentVolumeClaim of a cache on a volume."""
    return {
        "metadata": {
            "name": f"{name}-compile-cache",
            "namespace": namespace,
            # Most storage classes create the volume for the first pod, which comes after the claim.
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {
            "accessModes": ["ReadWriteMany" if several_pods else "ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{cache.size_gib}Gi"}},
            **({"storageClassName": cache.storage_class} if cache.storage_class else {}),
        },
    }


def pod_storage(
    name: str,
    model: ModelSource,
    cache: CompileCache,
    *,
    downloader_image: str,
    cache_url: Any = None,
    adapters: Sequence[str] = (),
) -> PodStorage:
    """Returns environment, volumes and init containers of a pod. ``cache_url`` (S3 cache only) may be unknown until deployed.

    ``adapters`` are folders in S3, which come to the volume ``scratch``.
    """
    pod = PodStorage()
    if isinstance(cache, S3CompileCache):
        pod.env.append({"name": CACHE_VARIABLE, "value": cache_url})
    elif isinstance(cache, VolumeCompileCache):
        pod.env.append({"name": CACHE_VARIABLE, "value": _CACHE_FOLDER})
        pod.volumes.append({"name": "compile-cache", "persistentVolumeClaim": {"claimName": f"{name}-compile-cache"}})
        pod.mounts.append({"name": "compile-cache", "mountPath": _CACHE_FOLDER})
    model_mount = {"name": "model", "mountPath": _MODEL_FOLDER, "readOnly": True}
    if isinstance(model, VolumeModel):
        pod.volumes.append({"name": "model", "persistentVolumeClaim": {"claimName": model.claim, "readOnly": True}})
        pod.mounts.append(model_mount | ({"subPath": model.path} if model.path else {}))
    if isinstance(model, S3Model) and not model.streamed:
        pod.volumes.append({"name": "model", "emptyDir": {"sizeLimit": f"{model.size_gib}Gi"}})
        pod.mounts.append(model_mount)
        # The disk is requested here so that the scheduler and Karpenter count it. CPU and memory are below the server's.
        sizes = {
            "requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": f"{model.size_gib}Gi"},
            "limits": {"cpu": "1", "memory": "1Gi"},
        }
        pod.init_containers.append(
            s3_copy("download-model", downloader_image, model.uri, _MODEL_FOLDER, volume="model", resources=sizes)
        )
    small = {"cpu": "500m", "memory": "512Mi"}
    for number, uri in enumerate(adapters):
        folder, sizes = f"{SCRATCH}/adapters/{uri.removeprefix('s3://')}", {"requests": small, "limits": small}
        copy = s3_copy(f"download-adapter-{number}", downloader_image, uri, folder, volume="scratch", resources=sizes)
        pod.init_containers.append(copy | {"volumeMounts": [{"name": "scratch", "mountPath": SCRATCH}]})
    return pod


def s3_copy(name: str, image: str, url: Any, folder: str, *, volume: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an init container that copies a folder from S3 to a volume. ``image`` has the ``aws`` command."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["aws"],
        "args": ["s3", "sync", url, folder, "--only-show-errors"],
        # The home folder of the image belongs to root.
        "env": [{"name": "HOME", "value": "/tmp"}],
        "resources": resources,
        "securityContext": RESTRICTED_CONTAINER,
        "volumeMounts": [{"name": volume, "mountPath": folder}],
    }


def needs_role(model: ModelSource, cache: CompileCache, adapters: Sequence[str] = ()) -> bool:
    """Returns whether the pods need permissions in AWS."""
    return isinstance(cache, S3CompileCache) or isinstance(model, S3Model) or bool(adapters)


def role_policy(
    model: ModelSource, cache: CompileCache, settings: StackSettings, cache_bucket: str | None, adapters: Sequence[str] = ()
) -> iam.Document:
    """Returns the IAM policy of the pods: they may use the compile cache in ``cache_bucket``, and read the folders of model and
    adapters."""
    statements = []
    partition = settings.partition
    if isinstance(cache, S3CompileCache) and cache_bucket:
        bucket = f"arn:{partition}:s3:::{cache_bucket}"
        objects = f"{bucket}/{cache.prefix}/*"
        # No condition on the prefix: the cache requests single objects, and S3 answers "not found" only with this permission.
        statements.append(iam.allow("FindCompiledGraphs", ["s3:GetBucketLocation", "s3:ListBucket"], bucket))
        # The cache deletes its own locks and failed entries.
        statements.append(iam.allow("KeepCompiledGraphs", ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"], objects))
    if isinstance(model, S3Model):
        statements += read_folder("Model", partition, model.uri)
    for number, uri in enumerate(adapters):
        statements += read_folder(f"Adapter{number}", partition, uri)
    if settings.kms_key_arn:
        through_s3 = {"StringEquals": {"kms:ViaService": f"s3.{settings.region}.{iam.dns_suffix(partition)}"}}
        actions = ["kms:Decrypt", "kms:GenerateDataKey"]
        statements.append(iam.allow("UseStackKey", actions, settings.kms_key_arn, conditions=through_s3))
    return iam.document(*statements)


def read_folder(what: str, partition: str, uri: str) -> list[iam.Statement]:
    """Returns the statements that allow pods to list and read what is below a folder of a bucket."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    arn = f"arn:{partition}:s3:::{bucket}"
    below = {"StringLike": {"s3:prefix": f"{prefix}/*"}}
    return [
        iam.allow(f"List{what}", ["s3:ListBucket"], arn, conditions=below),
        iam.allow(f"Read{what}", ["s3:GetObject"], f"{arn}/{prefix}/*"),
    ]
