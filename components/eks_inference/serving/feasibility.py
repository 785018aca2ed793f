"""What of a model fits an instance type, and how: the answers of ``eks-inference plan``. Pure; no pulumi.

It asks the same functions as the rules (``accelerators/plan.py``, ``serving/memory.py``), so what is advised here passes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eks_inference.accelerators.neuron.plan import cores_of, devices_for_cores, needs_scheduler
from eks_inference.catalog.engines import EngineProfile, engines
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model
from eks_inference.serving.memory import GIB, TIGHT, MemoryUse, gib
from eks_inference.serving.node_share import share

SHORTEST = 2048
"""Shortest length that is looked at when nobody names one, in tokens."""


@dataclass(frozen=True)
class Fit:
    """How many sequences of one length there is room for."""

    advised: MemoryUse
    """With as many as fit without a warning; ``advised.sequences`` may be 0."""
    most: MemoryUse
    """With as many as fit at all."""

    @property
    def max_model_len(self) -> int:
        return self.most.max_model_len


@dataclass(frozen=True)
class Split:
    """A model over ``tensor_parallel`` cores or GPUs of one pod."""

    tensor_parallel: int
    refusal: str = ""
    """Why it cannot be, and then nothing else is said; empty when it can."""
    devices: int = 0
    """Devices a pod has to ask for: a number the instance type can give."""
    idle_cores: int = 0
    """Cores or GPUs of these devices that are left over."""
    pods: int = 0
    """Pods that the devices of a node are enough for."""
    idle_devices: int = 0
    """Devices of a node that are left over then."""
    scheduler: bool = False
    """Whether the pods need the Neuron scheduler."""
    caution: str = ""
    """What a rule would warn of whatever the batch; empty when there is nothing."""
    kv_repeats: float = 1.0
    """How often each KV head is held."""
    fits: tuple[Fit, ...] = ()
    """By length, the shortest first."""


@dataclass(frozen=True)
class Feasibility:
    """Every split of a model on an instance type under an engine."""

    model: Model
    instance: InstanceType
    engine: EngineProfile
    splits: tuple[Split, ...]


def feasibility(model: Model, instance: InstanceType, engine: EngineProfile, lengths: Sequence[int] = ()) -> Feasibility:
    """Every tensor parallel degree the engine supports on the chips, with the batches that fit at each length.

    ``lengths`` are in tokens; without any, powers of two from 2048 up to the longest the model was made for.
    """
    degrees = engine.tensor_parallel.get(instance.family, ())
    wanted = sorted(set(lengths)) or usual_lengths(model)
    return Feasibility(model, instance, engine, tuple(_split(model, instance, engine, degree, wanted) for degree in degrees))


def usual_lengths(model: Model) -> list[int]:
    """Powers of two below the model's longest sequence, and that one."""
    longest = model.max_positions
    return [*(1 << power for power in range(SHORTEST.bit_length() - 1, (longest - 1).bit_length())), longest]


def engines_for(instance: InstanceType, model: Model | None = None) -> tuple[EngineProfile, ...]:
    """Engine profiles that can be used on an instance type, for a model when one is named: the one to take first.

    Those that the catalog has nothing to say against come before the others, then the newest vLLM.
    """
    found = [
        one
        for one in engines().values()
        if one.serves(instance) and not one.retired and (model is None or model.architecture in one.architectures)
    ]
    return tuple(sorted(found, key=lambda one: (not one.caveat, _release(one.vllm), one.standalone), reverse=True))


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


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
    if shortest.weights > shortest.capacity:
        return f"weights alone take {gib(shortest.weights)} GiB of {shortest.capacity / GIB:.4g} GiB a {shortest.unit}"
    return (
        f"weights take {gib(shortest.weights)} GiB of {shortest.capacity / GIB:.4g} GiB a {shortest.unit}: no room for a sequence"
    )


def _caution(model: Model, instance: InstanceType, devices: int) -> str:
    host = share(instance, devices).memory_mib / 1024
    weights = model.weight_bytes() / GIB
    if weights <= host:
        return ""
    return f"caution: loading may take {weights:.1f} GiB of host memory, and a pod's share is {host:.1f} GiB"


def _fit(empty: MemoryUse) -> Fit:
    def room_for(share: float) -> MemoryUse:
        length = empty.max_model_len
        return empty.of(largest(lambda count: empty.of(count, length).fraction <= share), length)

    return Fit(advised=room_for(TIGHT), most=room_for(1.0))


def largest(holds: Callable[[int], bool]) -> int:
    """The largest number from 1 up for which something holds that holds for all smaller ones; 0 when it never does."""
    beyond = 1
    while holds(beyond):
        beyond *= 2
    low = beyond // 2
    while beyond - low > 1:
        middle = (low + beyond) // 2
        low, beyond = (middle, beyond) if holds(middle) else (low, middle)
    return low
