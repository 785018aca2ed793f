"""Determines how a model fits an instance type, for ``eks-inference plan``. Pure; no pulumi.

It calls the same functions as the rules (``accelerators/neuron/plan.py``, ``serving/memory.py``), so its advice passes them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from eks_inference.accelerators.neuron.plan import cores_of, devices_for_cores, needs_scheduler
from eks_inference.catalog.engines import EngineProfile, reports
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model
from eks_inference.place.nodes import share
from eks_inference.place.placement import Placement
from eks_inference.rules import Judgement
from eks_inference.serving.choosing import largest
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flag_values import backend_settings
from eks_inference.serving.flags import flags
from eks_inference.serving.memory import GIB, TIGHT, Limit, MemoryUse, gib, server_memory
from eks_inference.serving.rules.engine_flags import quantization_is_known
from eks_inference.serving.rules.gpu_arithmetic import (
    attention_is_served,
    gpu_has_a_kernel,
    gpu_has_the_dtype,
    shards_are_whole_groups,
)

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
    cautions: tuple[str, ...] = ()
    """What rules warn about for every batch size."""
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
    wanted = sorted(set(lengths)) or usual_lengths(model)
    splits = (_split(model, instance, engine, degree, wanted) for degree in degrees(engine, instance, model))
    return Feasibility(model, instance, engine, tuple(splits))


def degrees(engine: EngineProfile, instance: InstanceType, model: Model) -> tuple[int, ...]:
    """Returns the tensor parallel degrees of an engine on the chips, the smallest first.

    Those that no document lists are among them where the model divides evenly.
    """
    listed = engine.tensor_parallel.get(instance.family, ())
    unlisted = [one for one in instance.unlisted_tensor_parallel if model.splits_over(one)]
    return tuple(sorted({*listed, *unlisted})) if listed else ()


def usual_lengths(model: Model) -> list[int]:
    """Returns the powers of two from 2048 below the model's longest sequence, and that length."""
    longest = model.max_positions
    return [*(1 << power for power in range(SHORTEST.bit_length() - 1, (longest - 1).bit_length())), longest]


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
    held = engine.served(model)
    fits = tuple(_fit(MemoryUse(held, instance, engine, degree, 0, length)) for length in lengths)
    judged = _judged(held, instance, engine, degree)
    refusal = next((one.message for one in judged if not one.holds), "") or _refusal(model, engine, degree, fits)
    if refusal:
        return Split(degree, refusal, kv_repeats=repeats)
    return Split(
        tensor_parallel=degree,
        devices=devices,
        idle_cores=cores - degree,
        pods=pods,
        idle_devices=instance.devices - pods * devices,
        scheduler=neuron and needs_scheduler(devices, instance),
        cautions=(
            *(_cautions(model, instance, devices, degree) if neuron else (one.working[0] for one in judged if one.unjudged)),
            *(f"{report.who} report: {report.says}" for report in reports() if report.about(engine, instance, model.name, model)),
        ),
        kv_repeats=repeats,
        fits=fits,
    )


def _refusal(model: Model, engine: EngineProfile, degree: int, fits: Sequence[Fit]) -> str:
    if not model.splits_over(degree) and not engine.generation.pads_heads:
        return f"{model.heads} attention heads mod {degree} = {model.heads % degree}"
    if not model.kv_splits_over(degree) and not engine.neuron:
        return f"{model.kv_heads} KV heads mod {degree} = {model.kv_heads % degree}"
    shortest = fits[0].most
    if shortest.sequences:
        return ""
    return weights_too_large(shortest) or f"weights take {_weights_of(shortest)}: no room for a sequence"


def weights_too_large(use: MemoryUse) -> str:
    """Says by how much the weights alone exceed the memory; empty where they do not."""
    return f"weights alone take {_weights_of(use)}" if use.weights > use.capacity else ""


def _weights_of(use: MemoryUse) -> str:
    return f"{gib(use.weights)} GiB of {use.capacity / GIB:.4g} GiB a {use.unit}"


def _cautions(model: Model, instance: InstanceType, devices: int, degree: int) -> Iterator[str]:
    if degree in instance.unlisted_tensor_parallel:
        yield f"no document lists {degree} cores on {instance.family}, though AWS has served that way"
    if not model.splits_over(degree):
        yield f"the engine pads {model.heads} attention heads to {model.padded_heads(degree)}, against its documents"
    host, weights = share(instance, devices).memory_mib / 1024, model.weight_bytes() / GIB
    if weights > host:
        yield f"loading may take {weights:.1f} GiB of host memory, and a pod's share is {host:.1f} GiB"


_RULES = (quantization_is_known, gpu_has_the_dtype, gpu_has_a_kernel, shards_are_whole_groups, attention_is_served)
"""What an engine, a GPU and a split may lack, whatever the flags."""


def _judged(model: Model, instance: InstanceType, engine: EngineProfile, degree: int) -> list[Judgement]:
    """What rules say of a server with such a split, and no flag of a user, on GPUs."""
    if instance.compute_capability is None:
        return []
    arguments = tuple(flags(backend_settings(engine.vllm, instance, (), model)))
    there, length = Placement("", instance, {}), min(SHORTEST, model.max_positions)
    server = ServingFacts((), "", engine, model.name, model, there, degree, degree, 1, length, arguments=arguments)
    return [judgement for rule in _RULES for judgement in rule.judge(server)]


def _fit(empty: MemoryUse) -> Fit:
    surely = room(empty, "surely")
    supported = surely.sequences >= empty.engine.batch_for(1, empty.model)
    return Fit(advised=surely if supported else empty, most=room(empty, "perhaps"))


Certainty = Literal["surely", "likely", "perhaps"]
"""How certain it is that something fits: also with the whole margin, without it, or only if the margin is not needed."""


def room(use: MemoryUse, how: Certainty) -> MemoryUse:
    """Returns the memory use with as many sequences, of the same length, as fit that certainly."""
    length = use.max_model_len
    if not use.kv_one:  # nothing is kept of a text, so none waits for memory
        return use.of(use.settings.max_num_seqs, length)

    def fits(count: int) -> bool:
        taken = use.of(count, length)
        return taken.surely_fits if how == "surely" else taken.fraction <= 1 if how == "likely" else taken.fits

    free = min(_free(limit, how) for limit in use.of(0, length).limits)
    return use.of(largest(fits, int(free // use.kv_one)), length)


def at_once(server: ServingFacts) -> int | None:
    """Returns how many of the longest sequences a copy of a model holds at once; None where nobody knows its memory."""
    memory = server_memory(server)
    return (room(memory, "surely").sequences or room(memory, "likely").sequences) if memory else None


def _free(limit: Limit, how: Certainty) -> float:
    """What a limit leaves, in bytes."""
    if limit.margin is None:
        return limit.available * (TIGHT if how == "surely" else 1) - limit.used
    return limit.available - limit.used - limit.margin * {"surely": 1, "likely": 0, "perhaps": -1}[how]
