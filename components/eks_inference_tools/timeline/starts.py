"""Reads from a graph how its pods start: their nodes, images and models. Pure.

The specs of components of this library say what a server does; of other programs, what its pods ask for and are told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE
from eks_inference.catalog.accelerators import DEVICE_RESOURCES, Accelerator
from eks_inference.catalog.engines import EngineProfile, engines
from eks_inference.catalog.models import find_model
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from eks_inference_tools.reading.workloads import workloads
from eks_inference_tools.timeline.homes import Home, Homes
from eks_inference_tools.timeline.pods import PodStart, Role
from stackgraph.graph.document import Graph, Resource, is_component
from stackgraph.graph.order import needs
from stackgraph.graph.values import at, text

_NEURON: Accelerator = "neuron"
_ACCELERATORS: Mapping[str, Accelerator] = {
    CORE_RESOURCE: _NEURON,
    **{resource: name for name, resource in DEVICE_RESOURCES.items()},
}
_JOBS: Sequence[Role] = ("download", "compile")
_ENDING = ("Job", "CronJob", "RayJob")


@dataclass(frozen=True)
class ServerFacts:
    """What a component or a pod says of the server that it runs. ``name`` is what users call it."""

    name: str
    model: str
    engine: EngineProfile | None
    stored: bool = False


class Starts:
    """The starts of the pods of a graph, by the URN of the object that creates them."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._homes = graph, Homes(graph)

    @cached_property
    def by_urn(self) -> Mapping[str, PodStart]:
        """Starts whose phases count one by one: of pods with an accelerator, and of Jobs that store or compile a model."""
        found: dict[str, PodStart] = {}
        homes: dict[str, Home | None] = {}
        for template in self._templates:
            start = self._start(template)
            # Of an object with several templates, the pods with the accelerator take the longest.
            if start and (template.urn not in found or start.accelerator):
                found[template.urn], homes[template.urn] = start, self._homes.of(template)
        return {urn: self._on_used_node(urn, found, homes) for urn in found}

    def _on_used_node(self, urn: str, found: Mapping[str, PodStart], homes: Mapping[str, Home | None]) -> PodStart:
        """Returns a start on the node that pods before it left, if there is only one: nothing has to start or be pulled again."""
        start, home = found[urn], homes[urn]
        before = self._before(urn) if home and (home.by_karpenter or home.nodes == 1) else frozenset()
        same = [one for one in before & found.keys() if homes[one] == home]
        if not same:
            return start
        return replace(start, new_node="", pulled=any(found[one].image == start.image for one in same))

    def _before(self, urn: str) -> frozenset[str]:
        """Returns everything that a resource waits for."""
        seen, waiting = set[str](), [urn]
        while waiting:
            for one in needs(self._graph.by_urn[waiting.pop()]):
                if one in self._graph.by_urn and one not in seen:
                    seen.add(one)
                    waiting.append(one)
        return frozenset(seen)

    @cached_property
    def servers(self) -> Mapping[str, str]:
        """The names of the model servers by URN of the object that creates their pods."""
        shown = {urn: start for urn, start in self.by_urn.items() if start.role == "server"}
        return {urn: self._named(self._graph.by_urn[urn]) for urn in shown}

    @cached_property
    def _templates(self) -> tuple[PodTemplate, ...]:
        return tuple(pod_templates(self._graph))

    @cached_property
    def _told(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """The models that pods name in their commands and environments."""
        return {(one.urn, one.part): one.models for one in workloads(self._graph)}

    def _named(self, resource: Resource) -> str:
        facts = self._facts(resource)
        return facts.name if facts else text(resource.name)

    def _facts(self, resource: Resource) -> ServerFacts | None:
        """Returns what the nearest component above says of its server."""
        while parent := self._graph.by_urn.get(resource.parent):
            model = at(parent.inputs, "model", "id") if is_component(parent) else None
            if isinstance(model, str):
                named = text(at(parent.inputs, "engine"))
                stored = any(parent.inputs.get(key) for key in ("store", "shared_store"))
                return ServerFacts(text(parent.name), model, engines().get(named), stored)
            resource = parent
        return None

    def _start(self, template: PodTemplate) -> PodStart | None:
        accelerator: Accelerator | None = next((_ACCELERATORS[name] for name in template.requests if name in _ACCELERATORS), None)
        facts = self._facts(template.owner)
        role = _role(template, accelerator, facts)
        if role == "other" and not accelerator:
            return None
        engine = facts.engine if facts else None
        image = next((one.image for one in template.containers if not one.first), "")
        engine = engine or _engine_of(image)
        home = self._homes.of(template)
        model = facts.model if facts else next(iter(self._told.get((template.urn, template.part), ())), "")
        start = PodStart(
            role=role,
            accelerator=accelerator or (engine.accelerator if engine else None),
            image=image,
            image_gb=engine.image_gb if engine else None,
            model=find_model(model) if model else None,
            model_name=model.rpartition("/")[2],
            weights_stored=bool(facts and facts.stored and role == "server"),
            compiled=bool(facts and facts.stored and role == "server" and self._has_compiler(template)),
        )
        return _at_home(start, home)

    def _has_compiler(self, template: PodTemplate) -> bool:
        return any(
            one.kind == "Job" and _names(one, "compile") and one.owner.parent == template.owner.parent for one in self._templates
        )


def _at_home(start: PodStart, home: Home | None) -> PodStart:
    if home is None:
        return start
    return replace(
        start,
        new_node=home.pool if home.by_karpenter else "",
        instance_type=home.instance_type,
        disk_mib_s=home.disk_mib_s,
        fast_image_pull=home.fast_image_pull,
    )


def _role(template: PodTemplate, accelerator: Accelerator | None, facts: ServerFacts | None) -> Role:
    if template.kind in _ENDING:
        named: list[Role] = [role for role in _JOBS if facts and _names(template, role)]
        return named[0] if named else "other"
    return "server" if accelerator and template.kind != "DaemonSet" else "other"


def _names(template: PodTemplate, role: str) -> bool:
    return role in text(template.owner.name).split("-")


def _engine_of(image: str) -> EngineProfile | None:
    """Returns the first engine with the same image, whatever the tag."""
    repository = image.partition("@")[0].rpartition(":")[0]
    return next((one for one in engines().values() if repository and one.image.rpartition(":")[0] == repository), None)
