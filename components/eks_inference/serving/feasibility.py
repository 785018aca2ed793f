"""Determines how a model fits an instance type, for ``eks-inference plan``. Pure; no pulumi.

It calls the same functions as the rules (``accelerators/neuron/plan.py``, ``serving/memory.py``), so its advice passes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eks_inference.accelerators.neuron.plan import cores_of, devices_for_cores, needs_scheduler
from eks_inference.catalog.engines import EngineProfile, engines
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model
from eks_inference.nodes import share
from eks_inference.serving.memory import GIB, TIGHT, MemoryUse, gib
from eks_inference.serving.pods import vllm_release

SHORTEST = 2048
"""Shortest of the default sequence lengths, in tokens."""


@dataclass(frozen=True)
class Fit:
    """How many sequences of one length fit."""

    advised: MemoryUse
    """Memory use of the largest batch that no rule warns about; ``advised.sequences`` may be 0."""
    most: MemoryUse
    """Memory use of the largest batch that fits at all."""

    @property
    def max_model_len(self) -> int:
        return self.most.max_model_len


@dataclass(frozen=True)
class Split:
    """A model that is split over ``tensor_parallel`` cores or GPUs of one pod."""

    tensor_parallel: int
    refusal: str = ""
    """Why this split is impossible; empty when it is possible. The other fields are then left at their defaults."""
    devices: int = 0
    """Devices that a pod has to request: a number that the instance type can allocate."""
    idle_cores: int = 0
    """Cores or GPUs of these devices that the model does not use."""
    pods: int = 0
    """Pods for which the devices of a node suffice."""
    idle_devices: int = 0
    """Devices of a node that these pods leave unused."""
    scheduler: bool = False
    """Whether the pods need the Neuron scheduler."""
    caution: str = ""
    """What a rule warns about for every batch size; empty when there is nothing."""
    kv_repeats: float = 1.0
    """How many times each KV head is held."""
    fits: tuple[Fit, ...] = ()
    """One fit for each length, the shortest first."""


@dataclass(frozen=True)
class Feasibility:
    """Every split of a model on an instance type with an engine."""

    model: Model
    instance: InstanceType
    engine: EngineProfile
    splits: tuple[Split, ...]


def feasibility(model: Model, instance: InstanceType, engine: EngineProfile, lengths: Sequence[int] = ()) -> Feasibility:
    """Returns every tensor parallel degree that the engine supports on the chips, with the batches that fit at each length.

    ``lengths`` are in tokens. The default is powers of two from 2048 up to the longest sequence of the model.
    """
    degrees = engine.tensor_parallel.get(instance.family, ())
    wanted = sorted(set(lengths)) or usual_lengths(model)
    return Feasibility(model, instance, engine, tuple(_split(model, instance, engine, degree, wanted) for degree in degrees))


def usual_lengths(model: Model) -> list[int]:
    """Returns the powers of two from 2048 below the model's longest sequence, and that length."""
    longest = model.max_positions
    return [*(1 << power for power in range(SHORTEST.bit_length() - 1, (longest - 1).bit_length())), longest]


def engines_for(instance: InstanceType, model: Model | None = None) -> tuple[EngineProfile, ...]:
    """Returns the engine profiles that can serve on an instance type, and serve ``model`` if given, the best first.

    Profiles without a caveat in the catalog come first, and among them those with the newest vLLM.
    """
    found = [
        one
        for one in engines().values()
        if one.serves(instance) and not one.retired and (model is None or model.architecture in one.architectures)
    ]
    return tuple(sorted(found, key=lambda one: (not one.caveat, vllm_release(one), one.standalone), reverse=True))


def _split(model: Model, instance: InstanceType, engine: EngineProfile, degree: int, lengths: Sequence[int]) -> Split:
    neuron = instance.neuron
    unit = "NeuronCore" if neuron else "GPU"
    there = cores_of(instance.devices, instance) if neuron else instance.devices
    repeats = model.kv_heads_at(degree) / model.kv_heads
    if degree > there:
        return Split(degree, f"{instance.name} has {there} {unit}{'' if there == 1 else 's'}", kv_repeats=repeats)
    devices = devices_for_cores(degree, instance) if neuron else degree
    cores = cores_of(devices, instance) if neuron else devices
    pods = instance.devices // devices
    fits = tuple(_fit(MemoryUse(model, instance, engine, degree, 0, length)) for length in lengths)
    refusal = _refusal(model, degree, fits)
    if refusal:
        return Split(degree, refusal, kv_repeats=repeats)
    return Split(
        tensor_parallel=degree,
        devices=devices,
        idle_cores=cores - degree,
        pods=pods,
        idle_devices=instance.devices - pods * devices,
        scheduler=neuron and needs_scheduler(devices, instance),
        caution=_caution(model, instance, devices) if neuron else "",
        kv_repeats=repeats,
        fits=fits,
    )


def _refusal(model: Model, degree: int, fits: Sequence[Fit]) -> str:
    if not model.splits_over(degree):
        return f"{model.heads} attention heads mod {degree} = {model.heads % degree}"
    shortest = fits[0].most
    if shortest.sequences:
        return ""
    return weights_too_large(shortest) or f"weights take {_weights_of(shortest)}: no room for a sequence"


def weights_too_large(use: MemoryUse) -> str:
    """Says by how much the weights alone exceed the memory; empty where they do not."""
    return f"weights alone take {_weights_of(use)}" if use.weights > use.capacity else ""


def _weights_of(use: MemoryUse) -> str:
    return f"{gib(use.weights)} GiB of {use.capacity / GIB:.4g} GiB a {use.unit}"


def _caution(model: Model, instance: InstanceType, devices: int) -> str:
    host = share(instance, devices).memory_mib / 1024
    weights = model.weight_bytes() / GIB
    if weights <= host:
        return ""
    return f"caution: loading may take {weights:.1f} GiB of host memory, and a pod's share is {host:.1f} GiB"


def _fit(empty: MemoryUse) -> Fit:
    return Fit(advised=room(empty, TIGHT), most=room(empty, 1.0))


def room(empty: MemoryUse, part: float) -> MemoryUse:
    """Returns the memory use with as many sequences, of the same length, as that part of the memory holds."""
    length = empty.max_model_len
    return empty.of(largest(lambda count: empty.of(count, length).fraction <= part), length)


def largest(holds: Callable[[int], bool]) -> int:
    """Returns the largest number >= 1 for which a monotonic condition holds, by binary search; 0 if it never holds."""
    beyond = 1
    while holds(beyond):
        beyond *= 2
    low = beyond // 2
    while beyond - low > 1:
        middle = (low + beyond) // 2
        low, beyond = (middle, beyond) if holds(middle) else (low, middle)
    return low
