"""What a server keeps and reads outside its pods: compiled graphs, and model folders. Pure functions; no pulumi.

Compiled graphs go through the compiler's own cache, not through ``NEURON_COMPILED_ARTIFACTS``: the cache looks a graph up by
compiler version, graph and flags, so a wrong one is never found; a folder of finished artifacts is loaded whatever the server was
asked for, and a start that ended half-way leaves one that no later start can load.

Sources: neuronx-distributed ``trace/model_builder.py`` (compiles with the cache on, its place left to the environment), Neuron
documentation "Neuron Persistent Cache", vllm-neuron ``neuronx_distributed_model_loader.py``.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference.aws import iam
from eks_inference.images.spec import InClusterImage
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
from eks_inference.settings import StackSettings

CACHE_VARIABLE = "COMPILE_CACHE"
"""Names, in a pod's own environment, the place that the engines' ``NEURON_COMPILE_CACHE_URL`` begins with."""

_CACHE_FOLDER = "/var/cache/neuron"
_MODEL_FOLDER = "/models"


@dataclass(frozen=True)
class PodStorage:
    """What a pod gets for its model and its compiled graphs."""

    env: Sequence[Mapping[str, Any]] = ()
    volumes: Sequence[Mapping[str, Any]] = ()
    mounts: Sequence[Mapping[str, Any]] = ()
    init_containers: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Compilation:
    """All that the compiler sees."""

    image: str | InClusterImage
    engine: str
    family: str
    model: ModelSource
    tensor_parallel: int
    max_model_len: int
    max_num_seqs: int
    engine_args: Sequence[str]

    @property
    def key(self) -> str:
        """One folder for each combination, so that old ones can be told from current ones and removed.

        A failed compilation is remembered in its folder too: a changed image or setting never meets it.
        """
        image = self.image
        seen = {
            "image": image if isinstance(image, str) else [image.dockerfile_text, image.files, image.build_args],
            "engine": self.engine,
            "family": self.family,
            # Who may download a model does not change what is compiled of it.
            "model": self.model.model_dump(mode="json", exclude={"gated"}),
            "tensor_parallel": self.tensor_parallel,
            "max_model_len": self.max_model_len,
            "max_num_seqs": self.max_num_seqs,
            "engine_args": list(self.engine_args),
        }
        return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:16]


def model_folder(model: ModelSource) -> str | None:
    """Where a pod finds the model; None where the engine downloads it."""
    return None if isinstance(model, HubModel) else _MODEL_FOLDER


def cache_claim(name: str, namespace: str, cache: VolumeCompileCache, *, several_pods: bool) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the PersistentVolumeClaim of a cache on a volume."""
    return {
        "metadata": {
            "name": _claim_name(name),
            "namespace": namespace,
            # Most storage classes make the volume with the first pod, which comes after the claim.
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {
            "accessModes": ["ReadWriteMany" if several_pods else "ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{cache.size_gib}Gi"}},
            **({"storageClassName": cache.storage_class} if cache.storage_class else {}),
        },
    }


def _claim_name(name: str) -> str:
    return f"{name}-compile-cache"


def pod_storage(
    name: str, model: ModelSource, cache: CompileCache, *, cache_url: Any, downloader_image: str, security: Mapping[str, Any]
) -> PodStorage:
    """Environment, volumes and init container of a pod. ``cache_url`` is that of a cache in S3 (known when deployed)."""
    env: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    init: list[dict[str, Any]] = []
    if isinstance(cache, S3CompileCache):
        env.append({"name": CACHE_VARIABLE, "value": cache_url})
    elif isinstance(cache, VolumeCompileCache):
        env.append({"name": CACHE_VARIABLE, "value": _CACHE_FOLDER})
        volumes.append({"name": "compile-cache", "persistentVolumeClaim": {"claimName": _claim_name(name)}})
        mounts.append({"name": "compile-cache", "mountPath": _CACHE_FOLDER})
    model_mount = {"name": "model", "mountPath": _MODEL_FOLDER, "readOnly": True}
    if isinstance(model, VolumeModel):
        volumes.append({"name": "model", "persistentVolumeClaim": {"claimName": model.claim, "readOnly": True}})
        mounts.append(model_mount | ({"subPath": model.path} if model.path else {}))
    if isinstance(model, S3Model):
        volumes.append({"name": "model", "emptyDir": {"sizeLimit": f"{model.size_gib}Gi"}})
        mounts.append(model_mount)
        init.append(_download(model, downloader_image, security))
    return PodStorage(env, volumes, mounts, init)


def _download(model: S3Model, image: str, security: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": "download-model",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["aws"],
        "args": ["s3", "sync", model.uri, _MODEL_FOLDER, "--only-show-errors"],
        # The image's own home belongs to root.
        "env": [{"name": "HOME", "value": "/tmp"}],
        # The disk is asked for here, so that the scheduler and Karpenter count it; the other two are less than the server's.
        "resources": {
            "requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": f"{model.size_gib}Gi"},
            "limits": {"cpu": "1", "memory": "1Gi"},
        },
        "securityContext": security,
        "volumeMounts": [{"name": "model", "mountPath": _MODEL_FOLDER}],
    }


def needs_role(model: ModelSource, cache: CompileCache) -> bool:
    """Whether the pods' service account needs permissions in AWS."""
    return isinstance(cache, S3CompileCache) or isinstance(model, S3Model)


def role_policy(model: ModelSource, cache: CompileCache, settings: StackSettings, cache_bucket: str | None) -> iam.Document:
    """What the pods may do in AWS: use the compile cache in ``cache_bucket``, and read the model's folder."""
    statements = []
    partition = settings.partition
    if isinstance(cache, S3CompileCache) and cache_bucket:
        bucket = f"arn:{partition}:s3:::{cache_bucket}"
        objects = f"{bucket}/{cache.prefix}/*"
        # Without a condition on the prefix: the cache asks for single objects, and S3 judges "not there" by this permission.
        statements.append(iam.allow("FindCompiledGraphs", ["s3:GetBucketLocation", "s3:ListBucket"], bucket))
        # It deletes its own locks and failed entries.
        statements.append(iam.allow("KeepCompiledGraphs", ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"], objects))
    if isinstance(model, S3Model):
        bucket = f"arn:{partition}:s3:::{model.bucket}"
        below = {"StringLike": {"s3:prefix": f"{model.prefix}/*"}}
        statements.append(iam.allow("ListModel", ["s3:ListBucket"], bucket, conditions=below))
        statements.append(iam.allow("ReadModel", ["s3:GetObject"], f"{bucket}/{model.prefix}/*"))
    if settings.kms_key_arn:
        through_s3 = {"StringEquals": {"kms:ViaService": f"s3.{settings.region}.{iam.dns_suffix(partition)}"}}
        actions = ["kms:Decrypt", "kms:GenerateDataKey"]
        statements.append(iam.allow("UseStackKey", actions, settings.kms_key_arn, conditions=through_s3))
    return iam.document(*statements)


def compile_cache_place(cache: CompileCache, compilation: Compilation, variable: str) -> str | None:
    """Where the engines keep compiled graphs: below the place that ``CACHE_VARIABLE`` names, which ``variable`` refers to."""
    return None if isinstance(cache, NoCompileCache) else f"{variable}/{compilation.key}"
