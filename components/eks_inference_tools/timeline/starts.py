"""Reads from a graph how its pods start: their nodes, images and models. Pure.

The specs of components of this library say what a server does; of other programs, what its pods ask for and are told.
"""

import base64
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE
from eks_inference.catalog.engines import EngineProfile, engines
from eks_inference.catalog.instances import DEVICE_RESOURCES, FAST_IMAGE_PULL, GP3, Accelerator
from eks_inference.catalog.models import Model, find_model
from eks_inference.faults import SpecError
from eks_inference.serving.flags import flag
from eks_inference.serving.pod_parts import ROLE_LABEL
from eks_inference.serving.spec import described
from eks_inference_tools.placing.placed import PlacedNode, Placing
from eks_inference_tools.reading.devices import OF_KIND
from eks_inference_tools.reading.endpoints import led_to
from eks_inference_tools.reading.machines import Machine
from eks_inference_tools.reading.node_groups import node_groups
from eks_inference_tools.reading.node_pools import node_pools
from eks_inference_tools.reading.node_shapes import NodeShape, node_shapes
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.reading.scheduling import suits
from eks_inference_tools.reading.served_models import workloads
from eks_inference_tools.timeline.pod_phases import PodStart, Role
from stackgraph.graph.document import Graph, Resource, is_component
from stackgraph.graph.structure import needs
from stackgraph.graph.values import at, is_token, table, text


@dataclass(frozen=True)
class Home:
    """The nodes that pods go to. ``urn`` is that of the pool's resource. ``instance_type`` is empty when it is open.

    ``nodes`` is how many stand once the pool exists, None when it is unknown. ``disk_mib_s`` is the throughput of the disk that
    images go to, None when it is unknown or a local disk.
    """

    pool: str
    urn: str
    by_karpenter: bool
    nodes: int | None = None
    instance_type: str = ""
    disk_mib_s: int | None = None
    fast_image_pull: bool = False

    @property
    def empty(self) -> bool:
        """Whether it is a node group without a node: the engine starts none, and Karpenter neither."""
        return not self.by_karpenter and self.nodes == 0


class Homes:
    """Where the pods of one cluster run: on nodes that stand, else on those that Karpenter starts, else in empty node groups."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def of(self, template: PodTemplate) -> Home | None:
        """Returns where pods run, None when no pool of the graph takes them."""
        shapes = [shape for shape in self._shapes if self._takes(shape, template.spec)]
        if not shapes:
            return None
        # Of several types, Karpenter chooses one. Placing tells which, but takes as long as everything else here.
        if shapes[0].by_karpenter and len(shapes) > 1 and (node := self._placed.get((template.urn, template.part))):
            return self._home(node.pool, node.urn, node.by_karpenter, node.instance.name)
        return self._home(shapes[0].pool, shapes[0].urn, shapes[0].by_karpenter, shapes[0].type_name)

    def _home(self, pool: str, urn: str, by_karpenter: bool, instance_type: str) -> Home:
        machine = self._machines.get(urn)
        return Home(
            pool=pool,
            urn=urn,
            by_karpenter=by_karpenter,
            nodes=self._nodes.get(urn),
            instance_type=instance_type,
            disk_mib_s=_throughput(machine),
            fast_image_pull=_pulls_fast(machine),
        )

    @cached_property
    def _placed(self) -> Mapping[tuple[str, str], PlacedNode]:
        """The node of the first pod of each template, by URN and part."""
        nodes = Placing(self._graph).at(ending=True).nodes
        return {(pod.template.urn, pod.template.part): node for node in reversed(nodes) for pod in node.pods}

    def _takes(self, shape: NodeShape, pod: PodSpec) -> bool:
        wanted = {name: amount for name, amount in pod.requests.items() if "/" in name}
        return all(shape.offers.get(name, 0) >= amount for name, amount in wanted.items()) and suits(pod, shape)

    @cached_property
    def _shapes(self) -> tuple[NodeShape, ...]:
        def order(shape: NodeShape) -> int:
            return 1 if shape.by_karpenter else 0 if self._nodes.get(shape.urn) != 0 else 2

        return tuple(sorted(node_shapes(self._graph), key=order))

    @cached_property
    def _nodes(self) -> Mapping[str, int | None]:
        groups = {group.urn: group.sizes[1] for group in node_groups(self._graph)}
        return groups | {pool.urn: pool.replicas or 0 for pool in node_pools(self._graph)}

    @cached_property
    def _machines(self) -> Mapping[str, Machine | None]:
        groups = {group.urn: group.template for group in node_groups(self._graph)}
        return groups | {pool.urn: pool.node_class for pool in node_pools(self._graph)}


def _throughput(machine: Machine | None) -> int | None:
    """Returns the throughput of the root disk in MiB/s, None when it is unknown or does not matter."""
    if machine is None or "RAID0" in _settings(machine):
        return None
    disk = machine.root_disk
    if disk is None or not disk.ebs or disk.type != GP3.name:
        return None
    return GP3.least_mib_s if disk.throughput is None else whole(disk.throughput)


def _pulls_fast(machine: Machine | None) -> bool:
    return machine is not None and FAST_IMAGE_PULL.gate in _settings(machine)


def _settings(machine: Machine) -> str:
    return "\n".join(_texts(machine.document))


def _texts(document: Any) -> Iterator[str]:
    """Yields the settings of a node that are not fields: its user data, decoded, and its policy for local disks."""
    yield text(at(document, "instanceStorePolicy"))
    given = at(document, "userData")
    if isinstance(given, str) and not is_token(given):
        try:
            yield base64.b64decode(given, validate=True).decode()
        except ValueError:
            yield given


_NEURON: Accelerator = "neuron"
_ACCELERATORS: Mapping[str, Accelerator] = {
    CORE_RESOURCE: _NEURON,
    **{resource: name for name, resource in DEVICE_RESOURCES.items()},
    **{OF_KIND[name]: name for name in DEVICE_RESOURCES},
}
_JOBS: Sequence[Role] = ("download", "compile")
HUB, VOLUME = "hugging_face", "volume"
"""Kinds of a model's source in a stack file: the Hugging Face Hub, and a volume that holds the model already."""
_ENDING = ("Job", "CronJob", "RayJob")


@dataclass(frozen=True)
class ServerFacts:
    """What a component says of the server that it runs.

    ``name`` is what users call it. ``source`` is the kind of its model's source in a stack file. ``model`` is its id, ``shape``
    what the stack says of one that the catalog does not know.
    """

    name: str
    source: str
    model: str
    shape: Mapping[str, Any]
    engine: EngineProfile | None

    @property
    def known(self) -> Model | None:
        """The model with its size; None: unknown."""
        with suppress(SpecError):  # a component of somebody else, whose shape means something else
            return described(self.model, self.shape) if self.shape else find_model(self.model)
        return None


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
            # Nobody waits for pods that the program does not start.
            if template.pods == 0 and not template.between:
                continue
            start = self._start(template)
            # Of an object with several templates, the pods with the accelerator take the longest.
            if start and (template.urn not in found or start.accelerator):
                homes[template.urn] = home = self._homes.of(template)
                found[template.urn] = _at_home(start, home)
        return {urn: self._after_others(urn, found, homes) for urn in found}

    def _after_others(self, urn: str, found: Mapping[str, PodStart], homes: Mapping[str, Home | None]) -> PodStart:
        """Returns a start with what the pods that it waits for left: weights, artifacts, and the node if there is only one."""
        start, home = found[urn], homes[urn]
        before = sorted(self._before(urn) & found.keys())
        jobs = {found[one].role for one in before if found[one].model_name == start.model_name}
        if start.role == "server":
            stored = start.weights_stored or "download" in jobs
            start = replace(start, weights_stored=stored, compiled=start.compiled or "compile" in jobs)
        same = [one for one in before if homes[one] == home and home and (home.by_karpenter or home.nodes == 1)]
        if not same:
            return start
        return replace(start, new_node="", no_node=False, pulled=any(found[one].image == start.image for one in same))

    def _before(self, urn: str) -> frozenset[str]:
        """Returns everything that a resource waits for."""
        seen, waiting = set[str](), [urn]
        while waiting:
            for need in needs(self._graph.by_urn[waiting.pop()]):
                if need in self._graph.by_urn and need not in seen:
                    seen.add(need)
                    waiting.append(need)
        return frozenset(seen)

    @cached_property
    def servers(self) -> Mapping[str, str]:
        """The names of model servers by URN of what creates their pods, with the part of a server that has several."""
        shown = [self._graph.by_urn[urn] for urn, start in self.by_urn.items() if start.role == "server"]
        alike = Counter((one.parent, self._named(one)) for one in shown)
        return {
            one.urn: f"{name} ({part})" if alike[one.parent, name] > 1 and (part := _part_of(one)) else name
            for one in shown
            for name in (self._named(one),)
        }

    @cached_property
    def led_to(self) -> Mapping[str, PodStart]:
        """Starts of Deployments and StatefulSets without an accelerator to which a Service leads, by their URN."""
        found: dict[str, PodStart] = {}
        for pod_template in {pod.urn: pod for _, pods in led_to(self._graph) for pod in pods}.values():
            if pod_template.kind in ("Deployment", "StatefulSet") and pod_template.urn not in self.by_urn:
                image = next((each.image for each in pod_template.containers if not each.first), "")
                engine = _engine_of(image)
                start = PodStart("other", image=image, image_gb=engine.image_gb if engine else None)
                found[pod_template.urn] = _at_home(start, self._homes.of(pod_template))
        return found

    @cached_property
    def _templates(self) -> tuple[PodTemplate, ...]:
        return tuple(pod_templates(self._graph))

    @cached_property
    def _told(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """The models that pods name in their commands and environments."""
        return {(workload.urn, workload.part): workload.models for workload in workloads(self._graph)}

    def _named(self, resource: Resource) -> str:
        facts = self._facts(resource)
        return facts.name if facts else text(resource.name)

    def _facts(self, resource: Resource) -> ServerFacts | None:
        """Returns what the nearest component above says of its server."""
        for parent in self._above(resource):
            model = table(at(parent.inputs, "model")) if is_component(parent) else {}
            if kind := text(model.get("kind")):
                engine = engines().get(text(at(parent.inputs, "engine")))
                return ServerFacts(text(parent.name), kind, text(model.get("id")), table(model.get("shape")), engine)
        return None

    def _above(self, resource: Resource) -> Iterator[Resource]:
        passed = set[str]()
        while resource.parent not in passed and (parent := self._graph.by_urn.get(resource.parent)):
            passed.add(resource.parent)
            yield parent
            resource = parent

    def _start(self, template: PodTemplate) -> PodStart | None:
        accelerator: Accelerator | None = next((_ACCELERATORS[name] for name in template.requests if name in _ACCELERATORS), None)
        facts = self._facts(template.owner)
        role = _role(template, accelerator, facts)
        if role == "other" and not accelerator:
            return None
        engine = facts.engine if facts else None
        image = next((container.image for container in template.containers if not container.first), "")
        engine = engine or _engine_of(image)
        model = facts.model if facts else next(iter(self._told.get((template.urn, template.part), ())), "")
        return PodStart(
            role=role,
            accelerator=accelerator or (engine.accelerator if engine else None),
            image=image,
            image_gb=engine.image_gb if engine else None,
            model=facts.known if facts else find_model(model) if model else None,
            model_name=model.rstrip("/").rpartition("/")[2],
            from_hub=facts is None or facts.source == HUB,
            load_format=next((found for one in template.containers if (found := flag(one.command, "load-format"))), ""),
            fast_load=engine.fast_load if engine else "",
            weights_stored=bool(facts and facts.source == VOLUME and role == "server"),
        )


def _part_of(resource: Resource) -> str:
    """The part of a server whose pods an object creates, as their label says."""
    return text(at(resource.inputs, "spec", "template", "metadata", "labels", ROLE_LABEL))


def _at_home(start: PodStart, home: Home | None) -> PodStart:
    if home is None:
        return replace(start, no_node=True)
    return replace(
        start,
        pool=home.urn,
        no_node=home.empty,
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
    return next((engine for engine in engines().values() if repository and engine.image.rpartition(":")[0] == repository), None)
