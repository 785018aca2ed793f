"""The engine of a vLLM server as data. Pure functions; no pulumi.

Sources: vLLM documentation ("OpenAI-Compatible Server", "Environment Variables", "Using Kubernetes"), vLLM issue 24885 (a server
that is told to end breaks off what it does), Neuron documentation (vLLM on NxD Inference), the source system's pod (its flags).
"""

import hashlib
from importlib.resources import files
from typing import Any

from eks_inference.catalog.instances import InstanceType
from eks_inference.serving import pods, protection
from eks_inference.serving.deployment import Engine, model_copy_gib
from eks_inference.serving.pods import SERVER_LABEL
from eks_inference.serving.spec import HubModel
from eks_inference.serving.storage_plan import CACHE_VARIABLE, Compilation, compile_cache_place, model_folder
from eks_inference.serving.vllm.spec import VllmServerSpec

PORT_NAME = "http"
"""Of API and metrics, in pod and Service."""

HEALTH = "/health"
SCRIPT_FILE = "drain.py"

_SCRIPT_FOLDER = "/eks-inference"
_SCRATCH = "/scratch"


def port(spec: VllmServerSpec) -> int:
    """Where the server listens."""
    return spec.port or spec.profile.port


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
        image=spec.image_reference,
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


def engine(name: str, spec: VllmServerSpec, shape: InstanceType) -> Engine:
    """What vLLM decides about its pods."""
    digest = hashlib.sha256(script()[SCRIPT_FILE].encode()).hexdigest()
    stop = f"sleep {pods.SETTLE_SECONDS}; python3 {_SCRIPT_FOLDER}/{SCRIPT_FILE} {pods.DRAIN_SECONDS}"
    return Engine(
        name="vllm",
        command=["vllm", "serve"],
        arguments=arguments(spec),
        # vllm-neuron keeps the checkpoint and compiled artifacts below its working directory.
        home=_SCRATCH,
        environment=environment(spec, shape),
        ports={PORT_NAME: port(spec)},
        health=(HEALTH, HEALTH),
        disk_gib=spec.disk_gib + model_copy_gib(spec),
        stop=["/bin/sh", "-c", stop],
        mounts=[
            {"name": "drain", "mountPath": _SCRIPT_FOLDER, "readOnly": True},
            {"name": "scratch", "mountPath": _SCRATCH},
        ],
        volumes=[
            {"name": "drain", "configMap": {"name": script_config_map(name)}},
            {"name": "scratch", "emptyDir": {}},
        ],
        annotations={"eks-inference/drain-script-sha256": digest},
    )


def script_config_map(name: str) -> str:
    """Name of the ConfigMap with ``drain.py``."""
    return f"{name}-drain"


def network_policies(name: str, spec: VllmServerSpec) -> dict[str, dict[str, Any]]:
    """The namespace's NetworkPolicies by role. Open: the port of API and metrics, to clients and to Prometheus."""
    return protection.server_policies(name, spec, labels(name), api=[port(spec)], metrics=port(spec))
