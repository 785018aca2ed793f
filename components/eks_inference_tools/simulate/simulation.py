"""Simulates a stack: a control plane with nodes and stand-ins, on which the stack is created, updated, verified and deleted."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial

from eks_inference_tools.placing.footprint import footprints, without_footprint
from eks_inference_tools.placing.started_nodes import karpenter_kinds, managed_nodes, manifest
from eks_inference_tools.reading.expected import expected_of
from eks_inference_tools.reading.live_objects import Object, Seen
from eks_inference_tools.reading.releases import charts
from eks_inference_tools.simulate.control_plane.control_plane import TOOLS, ControlPlane, control_plane
from eks_inference_tools.simulate.control_plane.toolchain import DEFINITIONS, Toolchain
from eks_inference_tools.simulate.report import Phase, Report
from eks_inference_tools.simulate.rollout import rollout
from eks_inference_tools.simulate.rollout.changes import with_replicas
from eks_inference_tools.simulate.rollout.walk import Observe, Outcome
from eks_inference_tools.simulate.schedulers.kube_schedulers import Schedulers, SecondScheduler, second_schedulers
from eks_inference_tools.simulate.stand_ins.device_plugins import DevicePlugins, DraDrivers
from eks_inference_tools.simulate.stand_ins.ebs import EbsVolumes
from eks_inference_tools.simulate.stand_ins.helm import helm_records
from eks_inference_tools.simulate.stand_ins.karpenter import TOOL as KARPENTER
from eks_inference_tools.simulate.stand_ins.karpenter import Karpenter
from eks_inference_tools.simulate.stand_ins.kuberay import KubeRay
from eks_inference_tools.simulate.stand_ins.leader_worker_set import LeaderWorkerSets
from eks_inference_tools.simulate.stand_ins.load_balancers import LoadBalancers
from eks_inference_tools.simulate.stand_ins.loop import StandIn, StandIns
from eks_inference_tools.simulate.world.admit import Admission, admit, install_definitions
from eks_inference_tools.simulate.world.api_objects import ClusterObject, Opaque, cluster_objects, left_out, opaque_of
from eks_inference_tools.simulate.world.scheduled_pods import READS, scheduled_pods
from eks_inference_tools.simulate.world.unsimulated import Unsimulated, kinds_by_chart, unsimulated
from eks_inference_tools.verify.checks import judge
from eks_inference_tools.verify.cluster_api import Kubectl
from eks_inference_tools.verify.observed import Check
from stackgraph.graph.document import Graph
from stackgraph.graph.values import unique

API_SERVER = "kube-apiserver"
_SETTLE_SECONDS = 30.0
_NOT_CHECKED = Admission(0, 0, {}, (), (), ())


def tools_of(graph: Graph) -> tuple[str, ...]:
    """The programs that a simulation of a graph needs, and the definitions."""
    return (*TOOLS, "kubectl", *([KARPENTER] if karpenter_kinds(graph) else []), DEFINITIONS)


@dataclass
class Simulation:
    """A simulated cluster and the operations on its stack, of which it holds only the nodes at first.

    ``tell`` is called with a few words about each operation. ``seconds`` are those of the preparation, by part.
    """

    graph: Graph
    plane: ControlPlane
    objects: tuple[ClusterObject, ...]
    opaque: tuple[Opaque, ...]
    stood_in: Mapping[str, tuple[Object, ...]]
    admission: Admission
    loop: StandIns
    schedulers: Schedulers
    karpenter: Karpenter
    parts: tuple[StandIn, ...]
    tell: Callable[[str], None]
    seconds: Mapping[str, float]
    watch: Observe = lambda seen: False
    """Looks at the cluster in each round."""

    def ensure_alive(self) -> None:
        """Raises ``ComponentError`` if a process or a stand-in of the simulation has ended."""
        self.plane.processes.ensure_alive()
        self.loop.ensure_alive()

    def observe(self, seen: Seen) -> bool:
        self.ensure_alive()
        return bool(self.watch(seen))

    def control(self, graph: Graph, objects: Sequence[ClusterObject], version: str | None = None) -> None:
        """Runs the controllers that a stack needs, in place of others; with ``version`` on API servers of that version."""
        self.pause()
        if version is not None:
            self.tell(f"going to Kubernetes {version or self.plane.toolchain.versions[API_SERVER]}")
            self.plane = self.plane.upgraded(version)
        self.karpenter.follow(graph)
        self.parts = (*_controllers(graph, objects, self.karpenter), *((self.schedulers,) if second_schedulers(graph) else ()))
        self.resume()

    def pause(self) -> None:
        """Stops the stand-ins, before the API server goes."""
        self.loop.__exit__()

    def resume(self) -> None:
        self.loop = StandIns(self.plane.api, self.parts)
        self.loop.__enter__()

    def create(self) -> Outcome:
        """Creates the stack as ``pulumi up`` does."""
        self.tell(f"creating {len(self.objects)} objects")
        return rollout.create(self.plane, self.objects, self.opaque, stood_in=self.stood_in, observe=self.observe)

    def delete(self) -> Outcome:
        """Deletes the stack as ``pulumi destroy`` does."""
        self.tell("deleting everything")
        return rollout.delete(self.plane, self.objects, self.opaque, stood_in=self.stood_in, observe=self.observe)

    def settled(self, name: str, outcome: Outcome) -> Phase:
        """Waits for what ``pulumi up`` does not wait for, every pod and the endpoints of Services; returns the phase."""
        if not outcome.is_complete:
            return Phase(name, outcome)
        self.tell("waiting for every pod")
        return Phase(name, outcome, rollout.settle(self.plane, self.objects, observe=self.observe))

    def verify(self) -> tuple[Check, ...]:
        """Returns the checks of ``eks-inference verify``, once none says "wait" or ``_SETTLE_SECONDS`` have passed."""
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
    graph: Graph,
    toolchain: Toolchain,
    *,
    replicas: Mapping[str, int] | None = None,
    tell: Callable[[str], None] = lambda words: None,
) -> Iterator[Simulation]:
    """Checks the admission of the stack on one control plane, and yields a simulation on another, which ends with the context.

    ``replicas`` replaces the stack's own (``with_replicas``). Raises ``ProblemsFound`` as ``with_replicas``, ``cluster_objects``
    and ``control_plane`` do.
    """
    objects = with_replicas(cluster_objects(graph), replicas or {})
    version = emulated(expected_of(graph).version, toolchain)
    began = time.monotonic()
    tell("starting a control plane for admission")
    with control_plane(toolchain, version=version) as plane:
        tell(f"checking the admission of {len(objects)} objects")
        admission = admit(plane, graph)
    admitted = time.monotonic()
    with cluster(graph, objects, toolchain, version=version, tell=tell) as simulated:
        simulated.admission, simulated.seconds = admission, {"admit": admitted - began, **simulated.seconds}
        yield simulated


def emulated(wanted: str, toolchain: Toolchain) -> str:
    """Returns the version that programs emulate to serve ``wanted``; "" if they do not."""
    return wanted if wanted and minor(wanted) < minor(toolchain.versions[API_SERVER]) else ""


@contextmanager
def cluster(
    graph: Graph,
    objects: tuple[ClusterObject, ...],
    toolchain: Toolchain,
    *,
    version: str,
    also: Sequence[ClusterObject] = (),
    tell: Callable[[str], None] = lambda words: None,
) -> Iterator[Simulation]:
    """A simulation whose admission nobody has checked. The kinds of objects that come later (``also``) are served, too."""
    began = time.monotonic()
    tell("starting a control plane")
    definitions = partial(install_definitions, objects=(*objects, *also))
    with control_plane(toolchain, version=version, prepare=definitions) as plane, closing(Schedulers(plane)) as schedulers:
        ready = time.monotonic()
        for node in managed_nodes(graph):
            plane.api.create(manifest(node))
        with ExitStack() as ending:
            karpenter = ending.enter_context(closing(Karpenter(plane)))
            simulated = Simulation(
                graph=graph,
                plane=plane,
                objects=objects,
                opaque=opaque_of(graph),
                stood_in=stood_in(graph),
                admission=_NOT_CHECKED,
                loop=StandIns(plane.api, ()),
                schedulers=schedulers,
                karpenter=karpenter,
                parts=(),
                tell=tell,
                seconds={"start": ready - began},
            )
            ending.callback(lambda: simulated.loop.__exit__())
            simulated.control(graph, objects)
            yield simulated


def stood_in(graph: Graph) -> Mapping[str, tuple[Object, ...]]:
    """Returns what stands in for charts and add-ons, by URN: pods of their size, and Helm's own records."""
    records = {(one["metadata"]["namespace"], one["metadata"]["labels"]["name"]): one for one in helm_records(graph)}
    found = dict(footprints(graph))
    for item in opaque_of(graph):
        if item.kind == "chart" and (record := records.get((item.namespace, item.name))):
            found[item.urn] = (*found.get(item.urn, ()), record)
    return found


def rolled_out(simulated: Simulation) -> Report:
    """Creates the stack and reports where its pods run."""
    phases = [simulated.settled("create", simulated.create())]
    plane = simulated.plane
    scheduled = scheduled_pods({resource: plane.api.list(resource) for resource in READS})
    checks = simulated.verify()
    simulated.tell("")
    own = plane.toolchain.versions[API_SERVER]
    second = second_schedulers(simulated.graph)
    return Report(
        stack=simulated.graph.stack,
        kubernetes=f"Kubernetes {plane.version}, emulated by programs of {own}" if plane.version else f"Kubernetes {own}",
        admission=simulated.admission,
        phases=tuple(phases),
        scheduled=scheduled,
        checks=checks,
        schedulers=("default-scheduler", *(name for one in second if isinstance(one, SecondScheduler) for name in one.names)),
        complaints=simulated.schedulers.complaints(),
        stands_in=tuple(_stands_in(simulated)),
        differs=tuple(_differs(simulated)),
        seconds={name: round(value, 3) for name, value in simulated.seconds.items()}
        | {phase.name: round(sum(part.duration_s for part in phase.parts), 3) for phase in phases},
    )


def minor(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".")[:2])


def _controllers(graph: Graph, objects: Sequence[ClusterObject], karpenter: Karpenter) -> Iterator[StandIn]:
    """Yields stand-ins for the controllers that the stack needs."""
    groups = {item.group for item in objects}
    yield DevicePlugins(graph)
    if any(chart.name in kinds_by_chart() for chart in charts(graph)):
        yield DraDrivers(graph)
    yield EbsVolumes()
    if "karpenter.sh" in groups:
        yield karpenter
    if "ray.io" in groups:
        yield KubeRay()
    if "leaderworkerset.x-k8s.io" in groups:
        yield LeaderWorkerSets()
    if any(item.kind == "Ingress" for item in objects):
        yield LoadBalancers(graph)


def _stands_in(simulated: Simulation) -> Iterator[str]:
    """Yields what was not real."""
    yield "kwok stands in for the kubelets: pods become ready at once and Jobs end after a second; no container starts"
    names = ", ".join(item.title for item in simulated.opaque if item.urn in simulated.stood_in)
    if names:
        yield f"objects inside charts and add-ons are unknown; pods with the catalog's requests stand in for theirs: {names}"
    titles = ", ".join(part.title.removeprefix("the stand-in of ") for part in simulated.parts)
    yield f"also stand-ins: {titles}; they prove that the parts fit together, not that the real programs work"


def _differs(simulated: Simulation) -> Iterator[str]:
    """Yields how nodes and objects may differ from real ones."""
    graph = simulated.graph
    wanted = expected_of(graph).version
    if wanted and minor(wanted) > minor(simulated.plane.toolchain.versions[API_SERVER]):
        yield f"the stack runs Kubernetes {wanted}, which is newer than the simulated version"
    yield from (f"{one.subject}: {one.why}" if one.subject else one.why for one in unsimulated(graph))
    yield from (f"{name}: the catalog does not know what it runs" for name in without_footprint(graph))
    yield from (f"{one.title} is left out: {one.reason}" for one in left_out(graph))
    others = [second_scheduler for second_scheduler in second_schedulers(graph) if isinstance(second_scheduler, Unsimulated)]
    yield from unique(f"{one.subject}: {one.why}" for one in (*others, *simulated.schedulers.unsimulated()))
    yield from simulated.admission.assumed
