"""Plans the engine of a plain vLLM server. Pure functions; no pulumi.

Sources: vLLM documentation ("OpenAI-Compatible Server", "Environment Variables", "Using Kubernetes"), vLLM issue 24885 (a server
that receives SIGTERM aborts running requests), Neuron documentation (vLLM on NxD Inference), the source system's pod (its flags).
"""

import hashlib
import itertools
import json

from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import POOLING
from eks_inference.place.placement import Placement
from eks_inference.serving import pod_parts
from eks_inference.serving.deployment import Engine, model_copy_gib, startup_timeout_seconds
from eks_inference.serving.pod_parts import DOWNLOAD, DRAIN, KEEP_ARTIFACT, SERVER_LABEL, engine_environment, script_texts
from eks_inference.serving.spec import AdapterSpec, HubModel
from eks_inference.serving.storage_plan import CACHE_VARIABLE, SCRATCH, compile_cache_place, content_key, model_folder, revision
from eks_inference.serving.vllm.spec import VllmServerSpec

PORT_NAME = "http"
"""Name of the port of API and metrics, in pod and Service."""

HEALTH = "/health"

_SCRIPT_FOLDER = "/eks-inference"
_STORE = "/store"


def port(spec: VllmServerSpec) -> int:
    return spec.port or spec.profile.port


def arguments(spec: VllmServerSpec, shape: InstanceType) -> list[str]:
    """Returns the arguments of ``vllm serve``. Flags that ``drain.py`` or people look for stand apart from their values."""
    model = spec.model
    folder = _model_folder(spec)
    given = ["--revision", model.revision] if isinstance(model, HubModel) and model.revision and not folder else []
    return [
        *([folder, "--served-model-name", model.id] if folder else [model.id]),
        *given,
        *("--host", "0.0.0.0", "--port", str(port(spec))),
        *("--tensor-parallel-size", str(spec.tensor_parallel)),
        *("--max-model-len", str(spec.max_model_len)),
        *("--max-num-seqs", str(spec.max_num_seqs)),
        *(["--runner", "pooling"] if spec.does in POOLING else []),
        *(["--lora-modules", *itertools.starmap(_module, adapter_folders(spec).items())] if spec.adapters else []),
        *spec.engine_flags_on(shape),
    ]


def _module(name: str, folder: str) -> str:
    """An adapter as the engine's parser reads it: what has a comma as JSON (vLLM 0.30.0, LoRAParserAction)."""
    return json.dumps({"name": name, "path": folder}) if "," in folder else f"{name}={folder}"


def environment(spec: VllmServerSpec, placement: Placement, efa_interfaces: int = 0) -> dict[str, str]:
    """Returns the environment of the server without secrets. In the pod, ``COMPILE_CACHE`` must precede it."""
    shape = placement.instance_type
    kept = compile_cache_place(spec, shape.family, f"$({CACHE_VARIABLE})")
    ours = {
        # The home folder of the image belongs to root, and only this volume and /tmp are writable.
        "HOME": SCRATCH,
        # PyTorch looks up the name of the user and fails if there is none (vLLM issue 44548).
        "USER": "vllm",
        spec.profile.generation.compile_cache_variable: kept or f"{SCRATCH}/compile-cache",
        **engine_environment(
            spec.profile, shape, spec.model.known, startup_timeout_seconds(spec, placement), efa_interfaces=efa_interfaces
        ),
    }
    if shape.neuron:
        ours["NEURON_RT_LOG_LEVEL"] = "INFO"
        if _model_folder(spec) and not spec.sharding:
            # By default the compiled artifacts of a local model go into its folder, which is read-only and shared by all pods.
            ours["NEURON_COMPILED_ARTIFACTS"] = f"{SCRATCH}/compiled"
    return ours | spec.feature_environment(spec.engine) | spec.extra_env


def _model_folder(spec: VllmServerSpec) -> str | None:
    return model_folder(spec, f"{_STORE if spec.kept_in else SCRATCH}/models")


def adapter_folders(spec: VllmServerSpec) -> dict[str, str]:
    """Returns where the pods have the adapters, by name."""
    kept = _STORE if spec.kept_in else SCRATCH
    return {
        name: f"{kept if isinstance(one, AdapterSpec) else SCRATCH}/adapters/{one.folder}"
        for name, one in sorted(spec.adapters.items())
    }


def claim_name(name: str) -> str:
    """Returns the name of the claim of the store."""
    return f"{name}-store"


def command(spec: VllmServerSpec, shape: InstanceType) -> list[str]:
    """Returns the command of the engine, behind the script that keeps its artifact where there is one to keep."""
    serve = ["vllm", "serve"]
    if not spec.sharding:
        return serve
    folder = f"{_STORE}/artifacts/{content_key(spec, shape.family, spec.extra_env)}"
    return ["python3", f"{_SCRIPT_FOLDER}/{KEEP_ARTIFACT}", folder, str(port(spec)), *serve]


def labels(name: str) -> dict[str, str]:
    """Returns the labels that Deployment, Service and disruption budget select."""
    return {SERVER_LABEL: name}


def scripts(spec: VllmServerSpec) -> dict[str, str]:
    """Returns the scripts of a pod by file name."""
    download, keep = [DOWNLOAD] if spec.downloads_first or spec.hub_adapters else [], [KEEP_ARTIFACT] if spec.sharding else []
    return script_texts("vllm", DRAIN, *download, *keep)


def download(spec: VllmServerSpec) -> list[str]:
    """Returns the command that downloads model and adapters before the engine starts; empty where the engine does it."""
    folders, model = adapter_folders(spec), spec.model
    wanted = [[one.repository, one.revision, folders[name]] for name, one in spec.hub_adapters.items()]
    if isinstance(model, HubModel) and (own := _model_folder(spec)):
        wanted.insert(0, [model.id, revision(model), own])
    return ["python3", f"{_SCRIPT_FOLDER}/{DOWNLOAD}", *itertools.chain(*wanted)] if wanted else []


def engine(name: str, spec: VllmServerSpec, placement: Placement, efa_interfaces: int = 0) -> Engine:
    """Returns what vLLM decides about its pods."""
    digest = hashlib.sha256(scripts(spec)[DRAIN].encode()).hexdigest()
    stop = f"sleep {pod_parts.SETTLE_SECONDS}; python3 {_SCRIPT_FOLDER}/{DRAIN} {pod_parts.DRAIN_SECONDS}"
    return Engine(
        name="vllm",
        command=command(spec, placement.instance_type),
        arguments=arguments(spec, placement.instance_type),
        # vllm-neuron keeps the checkpoint and compiled artifacts below its working directory.
        home=SCRATCH,
        environment=environment(spec, placement, efa_interfaces),
        efa_interfaces=efa_interfaces,
        ports={PORT_NAME: port(spec)},
        health=(HEALTH, HEALTH),
        disk_gib=spec.disk_gib + model_copy_gib(spec),
        download=download(spec),
        stop=["/bin/sh", "-c", stop],
        mounts=[
            {"name": "drain", "mountPath": _SCRIPT_FOLDER, "readOnly": True},
            {"name": "scratch", "mountPath": SCRATCH},
            *([{"name": "store", "mountPath": _STORE}] if spec.kept_in else []),
        ],
        volumes=[
            {"name": "drain", "configMap": {"name": script_config_map(name)}},
            {"name": "scratch", "emptyDir": {}},
            *([{"name": "store", "persistentVolumeClaim": {"claimName": claim_name(name)}}] if spec.kept_in else []),
        ],
        annotations={"eks-inference/drain-script-sha256": digest},
    )


def script_config_map(name: str) -> str:
    return f"{name}-drain"
