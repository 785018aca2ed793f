"""A model on an instance type, before a kind of server is chosen: what each kind makes a server of, and what a search assumes of
a server of which nobody says it. Pure; no pulumi.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model


@dataclass(frozen=True)
class Sketch:
    """One pod of a server to be: where it runs, and how the model is split."""

    model: Mapping[str, Any]
    """The key ``model`` of a server in a stack file."""
    engine: EngineProfile
    instance: InstanceType
    pool: str
    """The pool of that instance type."""
    core_pool: str
    """The pool of pods that hold no model."""
    devices: int
    tensor_parallel: int
    max_model_len: int
    max_num_seqs: int
    weights_gib: int
    """What a pod downloads, rounded up."""
    features: Mapping[str, str]
    """Features of the engine (``features.py``)."""

    @property
    def keys(self) -> dict[str, Any]:
        """What the servers of all kinds say alike."""
        return {
            "model": dict(self.model),
            "engine": self.engine.name,
            "tensor_parallel": self.tensor_parallel,
            "max_model_len": self.max_model_len,
            "max_num_seqs": self.max_num_seqs,
            **self.features,
        }

    @property
    def placed(self) -> dict[str, Any]:
        """Where the pods of a server of equal pods run."""
        return {"pool": self.pool, "devices": self.devices}


USUAL_CONTEXT = 8192
"""Tokens of a sequence if nobody says: half of a long chat fits, and every model of the catalog has it or less."""
USUAL_CONCURRENCY = 4
"""Sequences at once if nobody says. On Neuron the batch that is compiled."""
USUAL_SEQUENCES = 256
"""vLLM's own ``max_num_seqs`` on most GPUs (vLLM, ``EngineArgs.get_batch_defaults``): what does not fit the KV cache waits. On
Neuron the number is that of the batch that is compiled."""


def sequences_asked(concurrency: int, engine: EngineProfile, model: Model) -> int:
    """Returns ``max_num_seqs`` of a server that is to hold so many sequences at once."""
    return engine.batch_for(concurrency, model) if engine.neuron else max(concurrency, USUAL_SEQUENCES)
