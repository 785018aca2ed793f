"""The facts about a Triton server that rules judge: those of all servers, and its model repository."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from eks_inference.place.placement import Placement
from eks_inference.rules import Path
from eks_inference.serving.facts import ServingFacts, replicated_facts
from eks_inference.serving.flags import flags
from eks_inference.serving.triton import plan
from eks_inference.serving.triton.spec import TritonServerSpec


@dataclass(frozen=True)
class TritonFacts:
    """A Triton server as it will run."""

    about: ClassVar[str] = "Triton servers"

    spec: TritonServerSpec
    serving: ServingFacts
    settings: Mapping[str, Any]
    """Content of model.json."""
    instance_kind: str
    """``KIND_GPU`` or ``KIND_MODEL``."""
    world_size: int
    """GPUs of one copy of the model."""

    def at(self, *keys: str) -> Path:
        """Returns the path of a key of the server in the stack."""
        return (*self.serving.path, *keys)


def facts_of_places(spec: TritonServerSpec, placement: Placement, *, path: Path = ()) -> Iterator[TritonFacts]:
    """Yields the facts about each model, for each place of the pods."""
    first, *others = ([triton_facts(spec, one, path=path), *further_facts(spec, one, path=path)] for one in placement.places)
    yield from first
    for number, found in enumerate(others):
        for one, before in zip(found, first, strict=True):
            there = {"first": before.serving, "keys": {**one.serving.keys, "place": ("alternatives", str(number))}}
            yield replace(one, serving=replace(one.serving, **there))


def triton_facts(spec: TritonServerSpec, placement: Placement, *, path: Path = ()) -> TritonFacts:
    """Returns all facts about a server. ``path`` is its key in the stack."""
    shape = placement.instance_type
    return TritonFacts(
        spec=spec,
        serving=serving_facts(spec, placement, path=path),
        settings=plan.engine_settings(spec, shape),
        instance_kind=plan.instance_kind(spec, shape),
        world_size=plan.world_size(spec, shape),
    )


def further_facts(spec: TritonServerSpec, placement: Placement, *, path: Path = ()) -> tuple[TritonFacts, ...]:
    """Returns the facts about each further model, as if it were alone in its share of the memory; the pod is the first one's."""
    return tuple(
        replace(found, serving=replace(found.serving, beside=True))
        for name in spec.further_models
        for found in [triton_facts(spec.alone(name), placement, path=(*path, "further_models", name))]
    )


def serving_facts(spec: TritonServerSpec, placement: Placement, *, path: Path = ()) -> ServingFacts:
    """Returns the facts that all servers have."""
    shape = placement.instance_type
    return replicated_facts(
        spec,
        placement,
        path=path,
        scheduler=False,
        tensor_parallel=plan.tensor_parallel(spec, shape),
        max_num_seqs=plan.max_num_seqs(spec, shape),
        max_model_len=plan.max_model_len(spec),
        copies=plan.copies(spec, shape),
        # Rules about all servers read flags of ``vllm serve``.
        arguments=tuple(flags(plan.engine_settings(spec, shape))),
        environment=plan.environment(spec),
        container_port=plan.PORTS["http"],
        service_port=plan.PORTS["http"],
    )
