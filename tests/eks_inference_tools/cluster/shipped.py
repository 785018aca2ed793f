"""Simulations of the shipped stacks. Each runs once in a process for all tests that judge it: most of a test is the start."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from typing import Any

from cluster.shared_planes import PLANES
from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL
from eks_inference_tools.reading.live_objects import Seen, is_leaving, labels_of, name_of
from eks_inference_tools.reading.object_kinds import NAMESPACES, NODES, PODS, VOLUME_CLAIMS
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.simulate import simulation as module
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.report import Phase, Report
from eks_inference_tools.simulate.rollout import rollout
from eks_inference_tools.simulate.rollout.changes import images_in, with_other_images
from eks_inference_tools.simulate.rollout.walk import Outcome
from eks_inference_tools.simulate.simulation import Simulation, rolled_out, simulation
from eks_inference_tools.simulate.stand_ins.load_balancers import LoadBalancers
from eks_inference_tools.simulate.world.api_objects import ClusterObject, cluster_objects
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at


@dataclass
class Watched(Simulation):
    """Also looks at what no report tells: at servers while they change, and at what is there before and after the end."""

    devices: "Devices | None" = None
    old_images: set[str] = field(default_factory=set)
    """Those that still run when the change is done."""
    left: list[str] = field(default_factory=list)
    namespaces: set[str] = field(default_factory=set)

    def observe(self, seen: Seen) -> bool:
        if self.devices:
            self.devices.look(seen[PODS], self.plane.api.list(NODES))
        return super().observe(seen)

    def update(self) -> Outcome:
        """Changes every image."""
        self.devices = Devices()
        self.old_images = {image for item in self.objects if not is_held_back(item) for image in images_in(item.manifest)}
        before, self.objects = self.objects, cluster_objects(with_other_images(self.graph))
        return rollout.update(self.plane, before, self.objects, self.opaque, observe=self.observe)

    def delete(self) -> Outcome:
        pods = [pod for pod in self.plane.api.list(PODS) if STANDS_IN_FOR_LABEL not in labels_of(pod)]
        self.old_images &= {image for pod in pods for image in images_in(pod)}
        watch, self.devices = self.devices, None
        outcome = super().delete()
        self.devices = watch
        resources = (PODS, VOLUME_CLAIMS, "persistentvolumes")
        self.left = [name_of(item) for resource in resources for item in self.plane.api.list(resource)]
        self.namespaces = {name_of(item) for item in self.plane.api.list(NAMESPACES)}
        return outcome


class Devices:
    """Whether servers ever ask for more devices than there are. Jobs may: they have priority over servers."""

    def __init__(self) -> None:
        self._most: dict[tuple[str, str], int] = {}
        self.overbooked: list[str] = []

    def look(self, pods: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> None:
        for node in nodes:
            for resource, count in node["status"]["allocatable"].items():
                if "/" in resource:
                    # A device plugin that starts anew takes its devices away for a moment.
                    key = (resource, name_of(node))
                    self._most[key] = max(self._most.get(key, 0), int(count))
        asked: Counter[str] = Counter()
        for pod in pods:
            if not is_leaving(pod) and not any(owner["kind"] == "Job" for owner in at(pod, "metadata", "ownerReferences") or ()):
                asked.update({name: int(count) for name, count in PodSpec(pod["spec"]).requests.items() if "/" in name})
        for resource, count in asked.items():
            there = sum(most for (name, _), most in self._most.items() if name == resource)
            if count > there:
                self.overbooked.append(f"{count} of {there} {resource}")


def is_held_back(item: ClusterObject) -> bool:
    """Whether a change waits until somebody deletes the Ray cluster: a second one beside it has no room."""
    return at(item.manifest, "spec", "upgradeStrategy", "type") == "None"


def balancers(simulated: Simulation) -> set[str]:
    (controller,) = (part for part in simulated.parts if isinstance(part, LoadBalancers))
    return controller.balancers


# -- once for all tests ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """``changed`` is what follows: every image is another, and then all is deleted."""

    report: Report
    watched: Watched
    changed: tuple[Phase, ...]


_ran: dict[object, Ran] = {}


@dataclass(frozen=True)
class Asked:
    """Stands for a simulation that was asked for; what comes of it is looked up."""

    graph: Graph
    toolchain: Toolchain
    replicas: Mapping[str, int]

    def ran(self) -> Ran:
        """The simulation, which changes and deletes the stack, too, where it is as shipped."""
        # The graph and not its name: a test may change a stack's settings.
        key = (self.graph.to_json(), frozenset(self.replicas.items()))
        if key not in _ran:
            with (
                nullcontext() if self.replicas else PLANES.reused(),
                simulation(self.graph, self.toolchain, replicas=self.replicas) as simulated,
            ):
                watched = Watched(**{one.name: getattr(simulated, one.name) for one in fields(Simulation)})
                _ran[key] = Ran(rolled_out(watched), watched, () if self.replicas else tuple(_changed(watched)))
        return _ran[key]


@contextmanager
def _asked(graph: Graph, toolchain: Toolchain, *, replicas: Mapping[str, int], tell: object) -> Iterator[Asked]:
    yield Asked(graph, toolchain, replicas)


def _changed(watched: Watched) -> Iterator[Phase]:
    yield watched.settled("update", watched.update())
    yield Phase("delete", watched.delete())


def _rolled_out(asked: Asked) -> Report:
    return asked.ran().report


def simulate_once(monkeypatch: Any) -> None:
    """``eks-inference simulate`` in this process takes what ran already, or runs it now."""
    monkeypatch.setattr(module, "simulation", _asked)
    monkeypatch.setattr(module, "rolled_out", _rolled_out)
