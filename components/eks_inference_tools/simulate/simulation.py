"""A stack on a simulated cluster: control plane, nodes, stand-ins, and everything the stack makes, from the first to the last."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from eks_inference_tools.reading.expected import expected_of
from eks_inference_tools.reading.live_objects import Object, Seen
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane, control_plane
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.report import Phase, Report
from eks_inference_tools.simulate.rollout import rollout
from eks_inference_tools.simulate.rollout.changes import with_other_images
from eks_inference_tools.simulate.rollout.replicas import with_replicas
from eks_inference_tools.simulate.rollout.walk import Outcome
from eks_inference_tools.simulate.schedulers.kube_schedulers import Schedulers
from eks_inference_tools.simulate.schedulers.second_schedulers import SecondScheduler, second_schedulers
from eks_inference_tools.simulate.stand_ins.device_plugins import DevicePlugins
from eks_inference_tools.simulate.stand_ins.ebs import EbsVolumes
from eks_inference_tools.simulate.stand_ins.helm import helm_records
from eks_inference_tools.simulate.stand_ins.karpenter import Karpenter
from eks_inference_tools.simulate.stand_ins.kuberay import KubeRay
from eks_inference_tools.simulate.stand_ins.leader_worker_set import LeaderWorkerSets
from eks_inference_tools.simulate.stand_ins.loop import StandIn, StandIns
from eks_inference_tools.simulate.world import nodes
from eks_inference_tools.simulate.world.admit import Admission, admit, install_definitions
from eks_inference_tools.simulate.world.footprint import footprints, without_footprint
from eks_inference_tools.simulate.world.landing import READS, Landing, landing
from eks_inference_tools.simulate.world.objects import ClusterObject, Opaque, cluster_objects, left_out, opaque_of
from eks_inference_tools.simulate.world.unsimulated import unsimulated
from eks_inference_tools.verify.checks import judge
from eks_inference_tools.verify.cluster_api import Kubectl
from eks_inference_tools.verify.verdicts import Check
from stackgraph.graph.document import Graph
from stackgraph.graph.values import unique

Teller = Callable[[str], None]
"""Told in a few words what is being done."""

_SERVER = "kube-apiserver"
_SETTLE_SECONDS = 30.0


@dataclass
class Simulation:
    """A simulated cluster that holds nothing of the stack yet but its nodes. ``seconds`` are those it took until here."""

    graph: Graph
    plane: ControlPlane
    objects: tuple[ClusterObject, ...]
    opaque: tuple[Opaque, ...]
    stood_in: Mapping[str, tuple[Object, ...]]
    admission: Admission
    loop: StandIns
    schedulers: Schedulers
    parts: tuple[StandIn, ...]
    tell: Teller
    seconds: Mapping[str, float]

    def ensure_alive(self) -> None:
        """Raises ``ComponentError`` when a program or a stand-in of the simulation has ended."""
        self.plane.processes.ensure_alive()
        self.loop.ensure_alive()

    def observe(self, seen: Seen) -> None:
        self.ensure_alive()

    def create(self) -> Outcome:
        """The stack, as ``pulumi up`` makes it."""
        self.tell(f"creating {len(self.objects)} objects")
        return rollout.create(self.plane, self.objects, self.opaque, stood_in=self.stood_in, observe=self.observe)

    def update(self) -> Outcome:
        """Another image everywhere, as the next ``pulumi up`` brings it."""
        self.tell("changing every image")
        changed = with_other_images(self.objects)
        outcome = rollout.update(self.plane, self.objects, changed, self.opaque, observe=self.observe)
        self.objects = changed
        return outcome

    def delete(self) -> Outcome:
        """Everything, as ``pulumi destroy`` does it."""
        self.tell("deleting everything")
        return rollout.delete(self.plane, self.objects, self.opaque, stood_in=self.stood_in, observe=self.observe)

    def settled(self, name: str, outcome: Outcome) -> Phase:
        """A rollout with what ``pulumi up`` does not wait for, but people do: every pod on its way, endpoints of Services."""
        if not outcome.is_complete:
            return Phase(name, outcome)
        self.tell("waiting for every pod")
        return Phase(name, outcome, rollout.settle(self.plane, self.objects, observe=self.observe))

    def landing(self) -> Landing:
        """Where pods are now."""
        return landing({resource: self.plane.api.list(resource) for resource in READS})

    def verify(self) -> tuple[Check, ...]:
        """What ``eks-inference verify`` says of it, once what is on its way has come or ``_SETTLE_SECONDS`` have passed."""
        self.tell("verifying")
        expected = expected_of(self.graph)
        kubectl = Kubectl(kubeconfig=self.plane.kubeconfig, program=self.plane.toolchain.path("kubectl"))
        end = time.monotonic() + _SETTLE_SECONDS
        while True:
            checks = judge(expected, kubectl.read(expected.resources(), releases=bool(expected.releases)))
            if all(check.verdict != "wait" for check in checks) or time.monotonic() > end:
                return tuple(checks)
            self.ensure_alive()
            time.sleep(1)


@contextmanager
def simulation(
    graph: Graph, toolchain: Toolchain, *, replicas: Mapping[str, int] | None = None, tell: Teller = lambda words: None
) -> Iterator[Simulation]:
    """Admits the stack on one control plane and gives another one with its nodes and stand-ins; both end with the context.

    ``replicas`` are other numbers than the stack's (``replicas.with_replicas``). Raises ``ProblemsFound``: see there,
    ``cluster_objects`` and ``control_plane``.
    """
    objects = with_replicas(cluster_objects(graph), replicas or {})
    version = spoken_version(graph, toolchain)
    began = time.monotonic()
    tell("starting a control plane to ask")
    with control_plane(toolchain, version=version) as plane:
        tell(f"asking it about {len(objects)} objects")
        admission = admit(plane, graph)
    admitted = time.monotonic()
    tell("starting a control plane")
    definitions = partial(install_definitions, objects=objects)
    with control_plane(toolchain, version=version, prepare=definitions) as plane, Schedulers(plane) as schedulers:
        ready = time.monotonic()
        for node in nodes.managed_nodes(graph):
            plane.api.create(nodes.manifest(node))
        parts = (*_controllers(graph, objects), *((schedulers,) if second_schedulers(graph) else ()))
        with StandIns(plane.api, parts) as loop:
            yield Simulation(
                graph=graph,
                plane=plane,
                objects=objects,
                opaque=opaque_of(graph),
                stood_in=stood_in(graph),
                admission=admission,
                loop=loop,
                schedulers=schedulers,
                parts=parts,
                tell=tell,
                seconds={"admit": admitted - began, "start": ready - admitted},
            )


def stood_in(graph: Graph) -> Mapping[str, tuple[Object, ...]]:
    """What stands in for charts and add-ons, by URN: pods of their size, and Helm's own records."""
    records = {(one["metadata"]["namespace"], one["metadata"]["labels"]["name"]): one for one in helm_records(graph)}
    found: dict[str, tuple[Object, ...]] = {**footprints(graph)}
    for item in opaque_of(graph):
        if record := records.get((item.namespace, item.name)) if item.kind == "chart" else None:
            found[item.urn] = (*found.get(item.urn, ()), record)
    return found


def rolled_out(simulated: Simulation, *, whole: bool = False) -> Report:
    """Creates the stack and looks where it landed; with ``whole`` changes and deletes it, too, as far as it goes."""
    phases = [simulated.settled("create", simulated.create())]
    found, checks = simulated.landing(), simulated.verify()
    if whole and phases[-1].is_complete:
        phases.append(simulated.settled("update", simulated.update()))
    if whole and phases[-1].is_complete:
        phases.append(Phase("delete", simulated.delete()))
    simulated.tell("")
    graph = simulated.graph
    own = tuple(name for one in second_schedulers(graph) if isinstance(one, SecondScheduler) for name in one.names)
    return Report(
        stack=graph.stack,
        kubernetes=_kubernetes(simulated.plane),
        admission=simulated.admission,
        phases=tuple(phases),
        landing=found,
        checks=checks,
        schedulers=("default-scheduler", *own),
        complaints=simulated.schedulers.complaints(),
        stands_in=tuple(_stands_in(simulated)),
        differs=tuple(_differs(simulated)),
        seconds={name: round(value, 3) for name, value in simulated.seconds.items()}
        | {phase.name: round(sum(part.duration_s for part in phase.parts), 3) for phase in phases},
    )


def spoken_version(graph: Graph, toolchain: Toolchain) -> str:
    """The minor version for the control plane to emulate: the stack's, where that is an older one than the programs'; else ""."""
    wanted = expected_of(graph).version
    return wanted if wanted and _minor(wanted) < _minor(toolchain.versions[_SERVER]) else ""


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".")[:2])


def _controllers(graph: Graph, objects: Sequence[ClusterObject]) -> Iterator[StandIn]:
    """Stand-ins of the controllers that the stack needs."""
    groups = {item.group for item in objects}
    yield DevicePlugins(graph)
    yield EbsVolumes()
    if "karpenter.sh" in groups:
        yield Karpenter(graph)
    if "ray.io" in groups:
        yield KubeRay()
    if "leaderworkerset.x-k8s.io" in groups:
        yield LeaderWorkerSets()


def _kubernetes(plane: ControlPlane) -> str:
    own = plane.toolchain.versions[_SERVER]
    return f"Kubernetes {plane.version}, spoken by programs of {own}" if plane.version else f"Kubernetes {own}"


def _stands_in(simulated: Simulation) -> Iterator[str]:
    """What was not real."""
    yield "kwok stands in for the kubelets: pods become ready at once and Jobs end after a second; nothing is pulled or started"
    names = [item.title for item in simulated.opaque if item.urn in simulated.stood_in]
    if names:
        yield (
            "objects inside charts and add-ons are out of reach, pods with the catalog's requests stand in for theirs: "
            + ", ".join(names)
        )
    titles = ", ".join(part.title.removeprefix("the stand-in of ") for part in simulated.parts)
    yield f"also stand-ins: {titles}; they prove how things fit, not the real programs"


def _differs(simulated: Simulation) -> Iterator[str]:
    """How nodes and objects may differ from real ones."""
    graph = simulated.graph
    wanted = expected_of(graph).version
    if wanted and _minor(wanted) > _minor(simulated.plane.toolchain.versions[_SERVER]):
        yield f"the stack runs Kubernetes {wanted}, which is newer than what is simulated"
    yield from (f"{one.subject}: {one.why}" if one.subject else one.why for one in unsimulated(graph))
    yield from (f"{name}: the catalog does not know what it runs" for name in without_footprint(graph))
    yield from (f"{one.title} is left out: {one.reason}" for one in left_out(graph))
    unheard = [one for one in second_schedulers(graph) if not isinstance(one, SecondScheduler)]
    yield from unique(f"{one.subject}: {one.why}" for one in (*unheard, *simulated.schedulers.unsimulated()))
    yield from simulated.admission.assumed
