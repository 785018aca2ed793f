"""One way to serve a model, and what the rules about servers say of it. Pure.

The rules judge the server as a stack file would have it, so what passes here passes there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from eks_inference.accelerators.neuron.plan import cores_of, devices_for_cores
from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model
from eks_inference.catalog.speeds import Speed, speed
from eks_inference.cluster.spec import ClusterSpec
from eks_inference.pools.plan import placement_of
from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference.rules import Judgement, Rule
from eks_inference.serving.choosing import Sketch, sequences_asked
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.feasibility import degrees, room, weights_too_large
from eks_inference.serving.kind import Kind, Site
from eks_inference.serving.memory import GIB, MemoryUse, server_memory
from eks_inference.serving.memory_settings import memory_settings
from eks_inference.serving.vllm.kind import KIND as VLLM
from eks_inference.stack.registry import spec_rules
from eks_inference_tools.fitting.pace import Pace, pace_of

CORE, ACCELERATED = "core", "accelerated"
"""Names of the pools of a stack with such a server."""

QUANTIZATIONS: Mapping[str, Mapping[str, str]] = {
    "published": {},
    "fp8-kv": {"quantized_kv": "fp8"},
    "fp8-weights": {"quantized_weights": "fp8"},
    "fp8": {"quantized_weights": "fp8", "quantized_kv": "fp8"},
}
"""What is quantized by the engine itself → the keys of a server. Checkpoints that somebody has to make first are not here."""


@dataclass(frozen=True)
class Trial:
    """A kind of server with an engine on an instance type, split and quantized in one way."""

    source: Mapping[str, Any]
    """The key ``model`` of a server in a stack file."""
    model: Model
    engine: EngineProfile
    instance: InstanceType
    context: int
    """Tokens of a sequence."""
    concurrency: int
    """Sequences of that length that one pod has to hold at once."""
    kind: Kind = VLLM
    tensor_parallel: int = 1
    quantization: str = "published"
    step_tokens: int | None = None
    """Tokens of prompts and answers in one step. None: the engine's default."""

    @cached_property
    def devices(self) -> int:
        """Neuron devices or GPUs of one pod."""
        return devices_for_cores(self.tensor_parallel, self.instance) if self.instance.neuron else self.tensor_parallel

    @property
    def pods(self) -> int:
        """Pods for which the devices of a node suffice."""
        return self.instance.devices // self.devices

    @cached_property
    def server(self) -> Mapping[str, Any] | None:
        """The server as a stack file has it; None where the kind is not for the engine."""
        sketch = Sketch(
            model=self.source,
            engine=self.engine,
            instance=self.instance,
            pool=ACCELERATED,
            core_pool=CORE,
            devices=self.devices,
            tensor_parallel=self.tensor_parallel,
            max_model_len=self.context,
            max_num_seqs=sequences_asked(self.concurrency, self.engine, self.model),
            weights_gib=-(-self.model.weight_bytes() // GIB),
            features=QUANTIZATIONS[self.quantization],
        )
        found = self.kind.sketched(sketch) if self.kind.sketched else None
        pieces = {"extra_args": {"max-num-batched-tokens": self.step_tokens}} if self.step_tokens else {}
        return None if found is None else {**found, **pieces}

    @property
    def hopeless(self) -> str:
        """Why the rules need not be asked: a quantization of what is quantized, or weights alone that do not fit. Else empty."""
        weights = QUANTIZATIONS[self.quantization].get("quantized_weights")
        if weights and self.model.quantization:
            # vLLM: ModelConfig._verify_quantization; a second fp8 changes nothing.
            return f"the checkpoint is quantized already: {self.model.quantization.method}"
        settings = memory_settings(self.engine, [f"--quantization={weights}"] if weights else [], {}, self.model)
        assert settings is not None, "a quantization of known size"
        use = MemoryUse(
            self.engine.served(self.model), self.instance, self.engine, self.tensor_parallel, 1, self.context, settings
        )
        return weights_too_large(use)

    @cached_property
    def _subjects(self) -> tuple[object, ...]:
        spec = self.kind.spec.model_validate(self.server)
        return tuple(self.kind.facts("server", spec, site_on(self.instance)))

    @cached_property
    def memory(self) -> MemoryUse:
        """The memory of a trial that no rule refuses."""
        found = next(filter(None, (server_memory(one) for one in self._subjects if isinstance(one, ServingFacts))), None)
        assert found is not None, "a model with a shape, and no flag of a user"
        return found

    @property
    def serving(self) -> ServingFacts:
        """The server's facts."""
        return next(subject for subject in self._subjects if isinstance(subject, ServingFacts))

    @cached_property
    def sequences(self) -> int:
        """Sequences of that length that one pod surely holds at once, or where there are none, likely holds."""
        return room(self.memory, "surely").sequences or room(self.memory, "likely").sequences

    def pace(self, length: int) -> Pace | str:
        """How fast it serves requests of ``length`` tokens; as a text why nobody knows."""
        return pace_of(self.memory, length)

    @property
    def speed(self) -> Speed | None:
        """What is known of the accelerator's speed."""
        return speed(self.instance)

    def findings(self) -> Iterator[tuple[Rule[Any], Judgement]]:
        """Yields the rules that the server breaks, and those that cannot judge it, in the order of their ids."""
        for one, place in rules_of(tuple(type(subject) for subject in self._subjects)):
            for judgement in one.judge(self._subjects[place]):
                if judgement.unjudged or not judgement.holds:
                    yield one, judgement


def trials(start: Trial, quantized: Sequence[str], kinds: Sequence[Kind]) -> Iterator[Trial]:
    """Yields ``start`` as these kinds of servers, in every split that the instance type has devices for, and quantized so."""
    instance = start.instance
    there = cores_of(instance.devices, instance) if instance.neuron else instance.devices
    for kind in kinds:
        for degree in degrees(start.engine, instance, start.model):
            for quantization in quantized if degree <= there else ():
                one = replace(start, kind=kind, tensor_parallel=degree, quantization=quantization)
                if one.server is not None:
                    yield one


_KUBERNETES = ClusterSpec().version


@cache
def rules_of(subjects: tuple[type, ...]) -> tuple[tuple[Rule[Any], int], ...]:
    """The rules about such subjects, each with the place of its subject."""
    return tuple((rule, place) for rule in spec_rules() for place, kind in enumerate(subjects) if issubclass(kind, rule.subject))


@cache
def site_on(instance: InstanceType) -> Site:
    """A pool of that instance type, where a server runs."""
    pool = ManagedPoolSpec(instance_types=(instance.name,), size=1)
    placement = placement_of(ACCELERATED, pool, None, _KUBERNETES)
    return Site(("servers", "server"), placement, {ACCELERATED: pool}, lambda _: placement, (), lambda _: (), scheduler=True)
