"""A stack on a simulated cluster: control plane, nodes, stand-ins, and everything the stack makes, from the first to the last."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from eks_inference.preview.graph import Graph
from eks_inference.preview.values import unique
from eks_inference.simulate import nodes, rollout
from eks_inference.simulate.admit import Admission, admit, install_definitions
from eks_inference.simulate.awaits import Object
from eks_inference.simulate.changes import with_other_images
from eks_inference.simulate.control_plane import ControlPlane, control_plane
from eks_inference.simulate.footprint import footprints
from eks_inference.simulate.landing import READS, Landing, landing
from eks_inference.simulate.objects import ClusterObject, Opaque, cluster_objects, left_out, opaque_of
from eks_inference.simulate.replicas import with_replicas
from eks_inference.simulate.report import Phase, Report
from eks_inference.simulate.schedulers import Schedulers
from eks_inference.simulate.stand_ins.device_plugins import DevicePlugins
from eks_inference.simulate.stand_ins.ebs import EbsVolumes
from eks_inference.simulate.stand_ins.helm import helm_records
from eks_inference.simulate.stand_ins.karpenter import Karpenter
from eks_inference.simulate.stand_ins.kuberay import KubeRay
from eks_inference.simulate.stand_ins.leader_worker_set import LeaderWorkerSets
from eks_inference.simulate.stand_ins.loop import StandIns
from eks_inference.simulate.toolchain import Toolchain
from eks_inference.simulate.unsimulated import unsimulated
from eks_inference.verify.checks import judge
from eks_inference.verify.cluster_api import Kubectl
from eks_inference.verify.expected import expected_of
from eks_inference.verify.verdicts import Check

Teller = Callable[[str], None]
"""Told in a few words what is being done."""

_SETTLE_SECONDS = 30.0


@dataclass
class Simulation:
    """A simulated cluster that holds nothing of the stack yet but its nodes. ``seconds`` are filled in as things happen."""

    graph: Graph
    plane: ControlPlane
    objects: tuple[ClusterObject, ...]
    opaque: tuple[Opaque, ...]
    stood_in: Mapping[str, tuple[Object, ...]]
    admission: Admission
    loop: StandIns
    schedulers: Schedulers
    stand_ins: tuple[str, ...]
    tell: Teller
    seconds: dict[str, float] = field(default_factory=dict)

    def ensure_alive(self) -> None:
        """Raises ``ComponentError`` when a program or a stand-in of the simulation has ended."""
        self.plane.processes.ensure_alive()
        self.loop.ensure_alive()

    def observe(self, seen: rollout.Seen) -> None:
        self.ensure_alive()

    def create(self) -> rollout.Outcome:
        """The stack, as ``pulumi up`` makes it."""
        self.tell(f"creating {len(self.objects)} objects")
        return rollout.create(self.plane, self.objects, self.opaque, stood_in=self.stood_in, observe=self.observe)

    def update(self) -> rollout.Outcome:
        """Another image everywhere, as the next ``pulumi up`` brings it."""
        self.tell("changing every image")
        changed = with_other_images(self.objects)
        outcome = rollout.update(self.plane, self.objects, changed, self.opaque, observe=self.observe)
        self.objects = changed
        return outcome

    def delete(self) -> rollout.Outcome:
        """Everything, as ``pulumi destroy`` does it."""
        self.tell("deleting everything")
        return rollout.delete(self.plane, self.objects, self.opaque, stood_in=self.stood_in, observe=self.observe)

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

    ``replicas`` are other numbers than the stack's (``replicas.with_replicas``). Raises ``PreviewError``: see there,
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
    with control_plane(toolchain, version=version) as plane, Schedulers(plane) as schedulers:
        ready = time.monotonic()
        install_definitions(plane, objects)
        for node in nodes.managed_nodes(graph):
            plane.api.create(nodes.manifest(node))
        parts = (DevicePlugins(graph), EbsVolumes(), Karpenter(graph), KubeRay(), LeaderWorkerSets(), schedulers)
        with StandIns(plane.api, parts) as loop:
            yield Simulation(
                graph=graph,
                plane=plane,
                objects=objects,
                opaque=opaque_of(graph),
                stood_in=footprints(graph),
                admission=admission,
                loop=loop,
                schedulers=schedulers,
                stand_ins=tuple(part.title for part in parts),
                tell=tell,
                seconds={"admit": admitted - began, "start": ready - admitted},
            )
