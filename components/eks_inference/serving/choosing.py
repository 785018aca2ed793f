"""Chooses for a model on an instance type, before there is a server: what each kind would make of it, the engines that serve
there, the best first, and the largest number that holds. Pure; no pulumi.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.catalog.engines import EngineProfile, engines
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import APART, Model
from eks_inference.serving.pod_parts import vllm_release

USUAL_CONTEXT = 8192
"""Tokens of a sequence if nobody says: half of a long chat fits, and every model of the catalog has it or less."""
USUAL_CONCURRENCY = 4
"""Sequences at once if nobody says. On Neuron the batch that is compiled."""
USUAL_SEQUENCES = 256
"""vLLM's own ``max_num_seqs`` on most GPUs (vLLM, ``EngineArgs.get_batch_defaults``): what does not fit the KV cache waits. On
Neuron the number is that of the batch that is compiled."""


def engines_for(
    instance: InstanceType, model: Model | None = None, *, kind: str = "", named: str | None = None
) -> tuple[EngineProfile, ...]:
    """Returns the engine profiles that can serve on an instance type, and serve ``model`` if given, the best first.

    Left out are profiles for certain kinds of servers, unless ``kind`` is one of them, and those on request, unless ``named``.
    """
    found = [
        engine
        for engine in engines().values()
        if engine.serves(instance)
        and not engine.retired
        and (model is None or engine.loads(model))
        and (not engine.chosen_for or kind in engine.chosen_for)
        and (not engine.on_request or engine.name == named)
    ]
    return tuple(sorted(found, key=preference))


def why_none(instance: InstanceType, model: Model) -> str:
    """Says why no engine is chosen for a model on an instance type."""
    for engine in engines().values():
        if engine.serves(instance) and model.architecture in engine.listed:
            return f"documents of {engine.name} list it, but how it is served was not examined here: it is not judged"
    does = f" for {model.task}" if model.task in APART else ""
    return f"no engine of the catalog serves architecture {model.architecture}{does} there"


def preference(engine: EngineProfile) -> tuple[Any, ...]:
    """Sorts engine profiles: by their standing, then those with the newest vLLM."""
    return (*standing(engine), tuple(-part for part in vllm_release(engine)), not engine.standalone)


def standing(engine: EngineProfile) -> tuple[bool, bool]:
    """Sorts engine profiles: those that stay supported first, and among them those without a caveat."""
    return (bool(engine.ends), bool(engine.caveat))


def largest(holds: Callable[[int], bool], guess: int = 0) -> int:
    """Returns the largest number >= 1 for which a monotonic condition holds; 0 if it never holds.

    By binary search, unless ``guess`` is that number.
    """
    if guess > 0 and holds(guess) and not holds(guess + 1):
        return guess
    beyond = 1
    while holds(beyond):
        beyond *= 2
    low = beyond // 2
    while beyond - low > 1:
        middle = (low + beyond) // 2
        low, beyond = (middle, beyond) if holds(middle) else (low, middle)
    return low


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


def sequences_asked(concurrency: int, engine: EngineProfile, model: Model) -> int:
    """Returns ``max_num_seqs`` of a server that is to hold so many sequences at once."""
    return engine.batch_for(concurrency, model) if engine.neuron else max(concurrency, USUAL_SEQUENCES)
