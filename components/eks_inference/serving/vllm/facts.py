"""The facts about a plain vLLM server, whose pods hold one copy of the model each."""

from collections.abc import Iterator
from dataclasses import replace

from eks_inference.place.placement import Placement
from eks_inference.rules import Path
from eks_inference.serving.facts import ServingFacts, replicated_facts
from eks_inference.serving.spec import HubModel, NoCompileCache
from eks_inference.serving.vllm import plan
from eks_inference.serving.vllm.spec import VllmServerSpec


def facts_of_places(spec: VllmServerSpec, placement: Placement, *, scheduler: bool, path: Path = ()) -> Iterator[ServingFacts]:
    """Yields what the serving rules judge, for each place of the pods."""
    first, *others = (serving_facts(spec, place, scheduler=scheduler, path=path) for place in placement.places)
    yield first
    for number, one in enumerate(others):
        yield replace(one, first=first, keys={**one.keys, "place": ("alternatives", str(number))})


def serving_facts(
    spec: VllmServerSpec, placement: Placement, *, scheduler: bool, path: Path = (), efa_interfaces: int = 0
) -> ServingFacts:
    """Returns what the serving rules judge. ``scheduler`` says whether the Neuron scheduler extension is installed."""
    return replicated_facts(
        spec,
        placement,
        path=path,
        scheduler=scheduler,
        tensor_parallel=spec.tensor_parallel,
        max_num_seqs=spec.max_num_seqs,
        max_model_len=spec.max_model_len,
        arguments=tuple(plan.arguments(spec, placement.instance_type)),
        environment=plan.environment(spec, placement, efa_interfaces),
        efa_interfaces=efa_interfaces,
        compile_cache=bool(spec.sharding) or not isinstance(spec.cache, NoCompileCache),
        snapshot=spec.stores_model,
        disk_gib=spec.disk_gib if isinstance(spec.model, HubModel) and spec.kept_in is None else None,
        has_task=True,
        container_port=plan.port(spec),
        service_port=plan.port(spec),
    )
