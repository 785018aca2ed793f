"""Plans the engine of a plain vLLM server. Pure functions; no pulumi.

Sources: vLLM documentation ("OpenAI-Compatible Server", "Environment Variables", "Using Kubernetes"), vLLM issue 24885 (a server
that receives SIGTERM aborts running requests), Neuron documentation (vLLM on NxD Inference), the source system's pod (its flags).
"""

import hashlib
from importlib.resources import files

from eks_inference.catalog.instances import InstanceType
from eks_inference.serving import pods
from eks_inference.serving.deployment import Engine, model_copy_gib
from eks_inference.serving.pods import SERVER_LABEL
from eks_inference.serving.spec import HubModel
from eks_inference.serving.storage_plan import CACHE_VARIABLE, compile_cache_place, model_folder
from eks_inference.serving.vllm.spec import VllmServerSpec

PORT_NAME = "http"
"""Name of the port of API and metrics, in pod and Service."""

HEALTH = "/health"
SCRIPT_FILE = "drain.py"

_SCRIPT_FOLDER = "/eks-inference"
_SCRATCH = "/scratch"


def port(spec: VllmServerSpec) -> int:
    return spec.port or spec.profile.port


def arguments(spec: VllmServerSpec) -> list[str]:
    """Returns the arguments of ``vllm serve``. Flags that ``drain.py`` or people look for stand apart from their values."""
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
        *spec.engine_flags,
    ]


def environment(spec: VllmServerSpec, shape: InstanceType) -> dict[str, str]:
    """Returns the environment of the server without secrets. In the pod, ``COMPILE_CACHE`` must precede it."""
    kept = compile_cache_place(spec, shape.family, f"$({CACHE_VARIABLE})")
    ours = {
        # The home folder of the image belongs to root, and only this volume and /tmp are writable.
        "HOME": _SCRATCH,
        # PyTorch looks up the name of the user and fails if there is none (vLLM issue 44548).
        "USER": "vllm",
        spec.profile.generation.compile_cache_variable: kept or f"{_SCRATCH}/compile-cache",
    }
    if shape.neuron:
        ours["NEURON_RT_LOG_LEVEL"] = "INFO"
        if model_folder(spec.model):
            # By default the compiled artifacts of a local model go into its folder, which is read-only and shared by all pods.
            ours["NEURON_COMPILED_ARTIFACTS"] = f"{_SCRATCH}/compiled"
    return ours | spec.feature_environment(spec.engine) | spec.extra_env


def labels(name: str) -> dict[str, str]:
    """Returns the labels that Deployment, Service and disruption budget select."""
    return {SERVER_LABEL: name}


def script() -> dict[str, str]:
    """Returns the preStop script of a pod by file name."""
    return {SCRIPT_FILE: files("eks_inference.serving").joinpath("assets", SCRIPT_FILE).read_text("utf-8")}


def engine(name: str, spec: VllmServerSpec, shape: InstanceType) -> Engine:
    """Returns what vLLM decides about its pods."""
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
    return f"{name}-drain"
