"""Parts that several objects of a pair share: names, labels, ConfigMaps, and the compiled model with its inputs, its folder and
the command that makes it.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import cores_of
from eks_inference.kubernetes.workloads import RESTRICTED_CONTAINER, restricted_pod
from eks_inference.place.placement import Placement
from eks_inference.serving.disaggregated.spec import CompileOptions, DisaggregatedPairSpec
from eks_inference.serving.pod_parts import ROLE_LABEL, SERVER_LABEL, device_resource, script_texts

# vLLM loads whatever folder ``NEURON_COMPILED_ARTIFACTS`` names, and ignores flags that differ from it. If the folder is missing,
# vLLM compiles without the mask of sequence ids and then answers nonsense. So the folder's name is a hash of all inputs, a Job
# creates it once, and servers compare its manifest before they start and cannot write to it.
#
# Sources: NxD Inference 0.6.10598 (``inference_demo.py``, ``application_base.py``), vLLM of aws-neuron/upstreaming-to-vllm
# (``model_loader/neuronx_distributed.py``).

STORE = "/store"
"""Mount path of the store."""

OUTPUT = "@OUTPUT@"
"""Placeholder in the compile command for the folder it writes to, which is renamed when finished."""


KEY_LENGTH = 16


@dataclass(frozen=True)
class Artifact:
    """One compiled model, which ``inputs`` determine and ``command`` produces."""

    inputs: Mapping[str, Any]
    model: str
    """Folder of the downloaded model."""
    command: tuple[str, ...]

    @property
    def key(self) -> str:
        text = json.dumps(self.inputs, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]

    @property
    def folder(self) -> str:
        return f"{STORE}/artifacts/{self.key}"

    @property
    def document(self) -> dict[str, Any]:
        """What the scripts that compile and check it read."""
        return {
            "folder": self.folder,
            "model": self.model,
            "inputs": dict(self.inputs),
            "files": list(self.files),
            "command": list(self.command),
        }

    @property
    def files(self) -> tuple[str, ...]:
        """Files that loading requires, by their names in NxD Inference."""
        ranks = range(self.inputs["tensor_parallel"]) if self.inputs["sharded"] else ()
        return ("model.pt", "neuron_config.json", *(f"weights/tp{rank}_sharded_checkpoint.safetensors" for rank in ranks))


def tensor_parallel(spec: DisaggregatedPairSpec) -> int:
    """Returns the cores of one server: as given, or its share of a node."""
    cores = cores_of(spec.shape.devices, spec.shape)
    return spec.tensor_parallel or max(cores // 2 if spec.instances == 1 else cores, 1)


def model_folder(spec: DisaggregatedPairSpec) -> str:
    """Returns the folder of the downloaded model, which depends on the revision."""
    return f"{STORE}/models/{spec.model.id}/{spec.revision.replace('/', '--')}"


def artifact(spec: DisaggregatedPairSpec) -> Artifact:
    """Returns the artifact of a pair: the same for prefill, decode and baseline, and for any mirror of the image."""
    flags = compile_flags(spec)
    return Artifact(
        inputs={
            "image": spec.image_reference,
            "family": spec.shape.family,
            "model": spec.model.id,
            "revision": spec.revision,
            "tensor_parallel": tensor_parallel(spec),
            "logical_cores": spec.compile.logical_nc_config,
            "max_num_seqs": spec.max_num_seqs,
            "max_model_len": spec.max_model_len,
            "sharded": spec.compile.save_sharded_checkpoint,
            "flags": list(flags),
        },
        model=model_folder(spec),
        command=(
            "inference_demo",
            *_option("model-type", spec.compile.model_type),
            *_option("task-type", "causal-lm"),
            "run",
            *_option("model-path", model_folder(spec)),
            *_option("compiled-model-path", OUTPUT),
            *flags,
            *_option("prompt", "test prompt"),  # the parser requires one even with --compile-only
            "--compile-only",
        ),
    )


def compile_flags(spec: DisaggregatedPairSpec) -> tuple[str, ...]:
    """Returns the compiler's flags without paths: first those that follow from the pair, then the options in their order."""
    compile_ = spec.compile
    buckets = {
        "context-encoding-buckets": compile_.context_buckets(spec.max_model_len),
        "token-generation-buckets": compile_.generation_buckets(spec.max_model_len),
    }
    options: dict[str, Any] = {
        "tp-degree": tensor_parallel(spec),
        "batch-size": spec.max_num_seqs,
        "tkg-batch-size": spec.max_num_seqs,
        "max-context-length": spec.max_model_len,
        "seq-len": spec.max_model_len,
        **dict(_settings(compile_)),
        **(buckets if compile_.enable_bucketing else {}),
        **compile_.extra_args,
    }
    return tuple(word for name, value in options.items() for word in _option(name, value))


_SEPARATE = ("model_type", "extra_args", "context_encoding_buckets", "token_generation_buckets")


def _settings(options: CompileOptions) -> Iterator[tuple[str, Any]]:
    """Yields options by name. Their order is part of the artifact's key."""
    for name in CompileOptions.model_fields:
        if name not in _SEPARATE:
            yield name.replace("_", "-"), getattr(options, name)
        if name == "is_continuous_batching":
            # Without the mask, prefill writes into the KV caches of other sequences, and answers are wrong without any error.
            # Source: Neuron documentation, Disaggregated Inference on Trn2.
            yield "apply-seq-ids-mask", True


def _option(name: str, value: Any) -> tuple[str, ...]:
    """Returns the words of one option: a switch has no value, and no word at all when it is off."""
    if isinstance(value, bool):
        return (f"--{name}",) if value else ()
    values = value if isinstance(value, tuple) else (value,)
    return (f"--{name}", *(str(value) for value in values))


SCRIPTS = "/eks-inference"
PLAN = f"{SCRIPTS}/pair.json"

ROOT_POD: Mapping[str, Any] = {
    "automountServiceAccountToken": False,
    # With links, every Service of the namespace sets variables such as VLLM_PORT=tcp://... in every pod.
    "enableServiceLinks": False,
    "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
}

SCRIPT_POD: Mapping[str, Any] = {**ROOT_POD, "securityContext": restricted_pod(1000)}
"""Fields of pods that run one of our scripts in a plain Python image."""

SCRIPT_CONTAINER: Mapping[str, Any] = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}

_PATHS = {"store": STORE, "tmp": "/tmp", "shared-memory": "/dev/shm", "scripts": SCRIPTS}


def claim_name(name: str) -> str:
    """Returns the name of the claim of the store."""
    return f"{name}-store"


def front(spec: DisaggregatedPairSpec) -> str:
    """Returns the role of the pod that clients call."""
    return "router" if spec.serving == "pair" else "baseline"


def labels(name: str, role: str) -> dict[str, str]:
    return {SERVER_LABEL: name, ROLE_LABEL: role}


def config_map(name: str, what: str, data: Mapping[str, str], spec: DisaggregatedPairSpec) -> dict[str, Any]:
    """Returns ``metadata`` and ``data``. A digest in the name ensures that pods read only the content they were created for."""
    metadata = {"name": f"{name}-{what}-{digest(data)}", "namespace": spec.namespace_of(name)}
    return {"metadata": metadata, "data": dict(data)}


DIGEST_LENGTH = 10


def digest(content: Any) -> str:
    """Returns a hash that makes the names of objects with different content differ."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:DIGEST_LENGTH]


def scripts(*names: str) -> dict[str, str]:
    """Returns the texts of scripts by file name."""
    return script_texts("disaggregated", *names)


def whole_node(spec: DisaggregatedPairSpec) -> dict[str, str]:
    """Returns requests and limits of a pod that takes all devices of its node, even if it uses only part of the cores.

    So no scheduler has to find adjacent devices, and no other pod gets the node's chips.
    """
    return {"cpu": spec.cpu, "memory": spec.memory, device_resource(spec.shape): str(spec.shape.devices)}


def efa_resources(placement: Placement) -> dict[str, str]:
    """Returns the EFA interfaces that one pod requests: all of its node. They are extended resources (EKS user guide, EFA), and
    each chip sends through its nearest ones (inferred).
    """
    return {EFA_RESOURCE: str(placement.efa_interfaces)}


def root_container(capabilities: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the security context of a container that runs as root with only these capabilities."""
    allowed = {"drop": ["ALL"], **({"add": list(capabilities)} if capabilities else {})}
    return {"allowPrivilegeEscalation": False, "capabilities": allowed}


def volumes(name: str, spec: DisaggregatedPairSpec, config: str, *wanted: str) -> list[dict[str, Any]]:
    """Returns the ``wanted`` volumes (store, tmp, shared-memory), and the scripts in the ConfigMap ``config``."""
    known = {
        "store": {"persistentVolumeClaim": {"claimName": claim_name(name)}},
        # The Neuron runtime keeps a lock file in /tmp, and fails on one that another user left.
        "tmp": {"emptyDir": {}},
        "shared-memory": {"emptyDir": {"medium": "Memory", "sizeLimit": f"{spec.shared_memory_gib}Gi"}},
        "scripts": {"configMap": {"name": config}},
    }
    return [{"name": each, **known[each]} for each in (*wanted, "scripts")]


def mounts(*wanted: str, read_only: Collection[str] = ()) -> list[dict[str, Any]]:
    """Returns the mounts of the ``wanted`` volumes and of the scripts. The scripts are always read-only."""
    return [
        {"name": each, "mountPath": _PATHS[each], **({"readOnly": True} if each in (*read_only, "scripts") else {})}
        for each in (*wanted, "scripts")
    ]


def placed(placement: Placement) -> dict[str, Any]:
    """Returns the scheduling fields of a pod, without empty ones."""
    return {field: value for field, value in placement.scheduling().items() if value}


def variables(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]
