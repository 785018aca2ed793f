"""The compiled model: what decides it, where it stands, how it is made. Pure functions; no pulumi.

vLLM loads whatever folder ``NEURON_COMPILED_ARTIFACTS`` names and ignores the flags that differ from it; where it finds none it
compiles, without the mask of sequence ids, and then answers nonsense. So the folder's name is a hash of everything that went in,
a Job makes it once, and servers compare its manifest before they start, and cannot write to it.

Sources: NxD Inference 0.6.10598 (``inference_demo.py``, ``application_base.py``), vLLM of aws-neuron/upstreaming-to-vllm
(``model_loader/neuronx_distributed.py``).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.accelerators.neuron.plan import cores_of
from eks_inference.serving.disaggregated.spec import CompileOptions, DisaggregatedPairSpec

STORE = "/store"
"""Where pods mount the store."""

OUTPUT = "@OUTPUT@"
"""Stands, in the compile command, for the folder it writes to: only a finished one gets its name."""

_KEY_LENGTH = 16


@dataclass(frozen=True)
class Artifact:
    """One compiled model. ``inputs`` is all that decides it."""

    inputs: Mapping[str, Any]
    command: tuple[str, ...]
    """Makes it."""

    @property
    def key(self) -> str:
        text = json.dumps(self.inputs, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:_KEY_LENGTH]

    @property
    def folder(self) -> str:
        return f"{STORE}/artifacts/{self.key}"

    @property
    def document(self) -> dict[str, Any]:
        """What the scripts that make it and check it read."""
        return {
            "folder": self.folder,
            "inputs": dict(self.inputs),
            "files": list(self.files),
            "command": list(self.command),
        }

    @property
    def files(self) -> tuple[str, ...]:
        """Files without which it cannot be loaded, as NxD Inference names them."""
        ranks = range(self.inputs["tensor_parallel"]) if self.inputs["sharded"] else ()
        return ("model.pt", "neuron_config.json", *(f"weights/tp{rank}_sharded_checkpoint.safetensors" for rank in ranks))


def tensor_parallel(spec: DisaggregatedPairSpec) -> int:
    """Cores of one server: as given, or all of a node's that fall to it."""
    cores = cores_of(spec.shape.devices, spec.shape)
    return spec.tensor_parallel or max(cores // 2 if spec.instances == 1 else cores, 1)


def model_folder(spec: DisaggregatedPairSpec) -> str:
    """Where the downloaded model stands: other revisions stand beside it."""
    return f"{STORE}/models/{spec.model.id}/{spec.revision.replace('/', '--')}"


def artifact(spec: DisaggregatedPairSpec) -> Artifact:
    """The artifact of a pair: the same for prefill, decode and baseline, and for one image whatever registry it comes from."""
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
        command=(
            "inference_demo",
            *_option("model-type", spec.compile.model_type),
            *_option("task-type", "causal-lm"),
            "run",
            *_option("model-path", model_folder(spec)),
            *_option("compiled-model-path", OUTPUT),
            *flags,
            *_option("prompt", "test prompt"),  # the parser wants one, also when nothing is asked
            "--compile-only",
        ),
    )


def compile_flags(spec: DisaggregatedPairSpec) -> tuple[str, ...]:
    """What the compiler is told beside names of files: first what follows from the pair, then the options in their order."""
    options: dict[str, Any] = {
        "tp-degree": tensor_parallel(spec),
        "batch-size": spec.max_num_seqs,
        "tkg-batch-size": spec.max_num_seqs,
        "max-context-length": spec.max_model_len,
        "seq-len": spec.max_model_len,
        **{name.replace("_", "-"): getattr(spec.compile, name) for name in _OPTIONS},
        **(_buckets(spec) if spec.compile.enable_bucketing else {}),
        **spec.compile.extra_args,
    }
    return tuple(word for name, value in options.items() for word in _option(name, value))


_OTHERWISE = ("model_type", "extra_args", "context_encoding_buckets", "token_generation_buckets")
_OPTIONS = [name for name in CompileOptions.model_fields if name not in _OTHERWISE]


def _buckets(spec: DisaggregatedPairSpec) -> dict[str, Any]:
    return {
        "context-encoding-buckets": spec.compile.context_buckets(spec.max_model_len),
        "token-generation-buckets": spec.compile.generation_buckets(spec.max_model_len),
    }


def _option(name: str, value: Any) -> tuple[str, ...]:
    """The words of one option: alone where it is a switch, none where that is off."""
    if isinstance(value, bool):
        return (f"--{name}",) if value else ()
    values = value if isinstance(value, tuple) else (value,)
    return (f"--{name}", *(str(one) for one in values))
